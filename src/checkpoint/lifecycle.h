#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "checkpoint/signature.h"
#include "core/checksum.h"
#include "core/reporter.h"

namespace automodel::checkpoint {

/// A checkpoint directory's name, epoch_E_step_S; S is the 0-based step at which it was saved.
struct CheckpointName {
  int64_t epoch = 0;
  int64_t step = 0;

  std::string text() const;
  /// nullopt for anything else.
  static std::optional<CheckpointName> parse(std::string_view text);
};

using NamedLosses = std::vector<std::pair<std::string, double>>;

/// The loss that LOWEST_VAL follows: the only one, else the one named best_metric_key; nullopt
/// where there is none of that name.
std::optional<std::pair<std::string, double>> followed_loss(const NamedLosses& losses,
                                                            const std::string& best_metric_key);

struct LifecycleOptions {
  std::string root = "checkpoints/";        ///< checkpoint.checkpoint_dir
  std::string best_metric_key = "default";  ///< used with several validation sets
  std::optional<int64_t> max_recent_checkpoints;
  bool is_coordinator = true;  ///< rank 0: only it changes directories
  /// Whether choose() may change the directory first: for runs that hold its lock and save to it.
  bool tidies = false;
  /// Verifies a checkpoint's bytes as checkpoint::find_damage does, with all ranks; absent: this
  /// process verifies alone.
  std::function<std::optional<std::string>(const std::string& checkpoint)> find_damage;
  /// Names of checkpoints that the run found damaged when it chose one. The run repeats their
  /// steps, so its saves move them aside even if they can be read by then.
  std::set<std::string> passed_over;
};

/// The checkpoints of a run: saves them, decides which are kept and from which one a run continues.
///
/// A save is  reserve() on all ranks | barrier | every rank writes its files | barrier | publish()
/// on all ranks. On ranks other than the coordinator these functions only compute paths. The caller
/// makes the barriers, notifies the others when the coordinator throws, and holds the FolderLock.
class Lifecycle final {
 public:
  Lifecycle(LifecycleOptions options, Reporter& reporter);

  const std::string& root() const { return options_.root; }

  /// The directory of a checkpoint.
  std::string path(const CheckpointName& name) const;

  /// Makes the directory, marked incomplete, with model/, optim/, rng/ and dataloader/ in it, and
  /// returns its path. Replaces an incomplete one of that name; moves aside, with a warning, a
  /// published one that is damaged or was passed over; throws InputError for a good one.
  std::string reserve(const CheckpointName& name);

  /// Called after all ranks' files are written. Order: losses.json, manifest, LATEST, removal of
  /// the marker, LOWEST_VAL, retention. `known`: records of files that were already checksummed.
  void publish(const CheckpointName& name, const std::optional<double>& train_loss,
               const NamedLosses& validation_losses, std::span<const FileRecord> known);

  /// Removes an unpublished checkpoint after a failed save.
  void abandon(const CheckpointName& name);

  /// The directory to continue from; nullopt for a fresh start. `restore_from` is the recipe's key.
  ///
  /// If it is absent or LATEST (in any case): LATEST's target, else the highest complete step;
  /// damaged and incomplete ones are skipped with a warning. Else a pointer (LOWEST_VAL), a name
  /// inside the root or a path; InputError if it is incomplete, damaged or missing. For a
  /// checkpoint of another model: InputError if the key is absent, else a warning. InputError for
  /// upstream's pickled checkpoints, and for one beside which later ones lie. With
  /// LifecycleOptions::tidies it first removes what kills have left half made or half removed, and
  /// points LOWEST_VAL at the good checkpoint of the lowest loss. Coordinator only.
  std::optional<std::string> choose(const std::optional<std::string>& restore_from,
                                    const ModelSignature& signature);

  /// Names that choose() found damaged, and those of LifecycleOptions::passed_over.
  const std::set<std::string>& passed_over() const { return options_.passed_over; }

  /// Names of complete checkpoints, by step, including damaged ones.
  std::vector<std::string> complete_checkpoints() const;

  /// The target of LATEST or LOWEST_VAL, a name inside the root; nullopt when there is none.
  std::optional<std::string> pointer_target(std::string_view pointer) const;

 private:
  std::optional<std::string> find_fault(const std::string& checkpoint) const;
  /// Why a published checkpoint may be moved aside.
  std::optional<std::string> fault_for_reserve(const std::string& name) const;
  void move_pointer(std::string_view pointer, const std::string& target);
  void write_losses(const std::string& directory, const std::optional<double>& train_loss,
                    const NamedLosses& validation_losses);
  void update_lowest(const std::string& name, const NamedLosses& validation_losses);
  /// Points LOWEST_VAL at the good checkpoint whose loss is the lowest below its target's, if one
  /// is: a save may have been killed after it removed the marker, before it moved the pointer.
  void mend_lowest();
  /// What a checkpoint's losses.json says of a validation set, or of the only one. Throws UserError
  /// where it cannot be read.
  std::optional<double> saved_loss(const std::string& checkpoint, const std::string& key) const;
  void prune();
  void remove_leftovers();
  void remove_checkpoint(const std::string& name);
  /// The checkpoints that choose_newest() tries, in this order.
  std::vector<std::string> candidates() const;
  std::optional<std::string> choose_newest(const ModelSignature* signature);
  std::string resolve_explicit(const std::string& restore_from) const;
  /// The complete checkpoints, but for a path that cannot be used: "in DIR there are: ...".
  std::string available(const std::string& unusable = "") const;
  /// `what` the path is, with which the error begins: "checkpoint".
  void check_is_newest(const std::string& path, const std::string& what) const;

  LifecycleOptions options_;
  Reporter& reporter_;
  std::optional<double> lowest_;
};

/// Why a run cannot continue from a directory; nullopt when it can. Reads every byte. Throws
/// InputError for upstream's pickled checkpoints.
std::optional<std::string> find_fault(const std::string& checkpoint);

}  // namespace automodel::checkpoint
