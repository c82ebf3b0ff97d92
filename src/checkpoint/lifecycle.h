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

struct LifecycleOptions {
  std::string root = "checkpoints/";        ///< checkpoint.checkpoint_dir
  std::string best_metric_key = "default";  ///< with several validation sets
  std::optional<int64_t> max_recent_checkpoints;
  bool is_coordinator = true;  ///< rank 0: the only one that changes directories
  /// Verifies a checkpoint's bytes as checkpoint::find_damage does, by all ranks when they are at
  /// hand; absent: by this process alone.
  std::function<std::optional<std::string>(const std::string& checkpoint)> find_damage;
  /// Names of checkpoints that the run found damaged when it chose one: it takes their steps anew,
  /// so that its saves move them aside even where they can be read by then.
  std::set<std::string> passed_over;
};

/// The checkpoints of a run: how they come to be, which are kept, which one is continued from.
///
/// A save is  reserve() on all ranks | barrier | every rank writes its files | barrier | publish()
/// on all ranks. What ranks other than the coordinator do here is compute paths. The caller makes
/// the barriers, tells the others when the coordinator throws, and holds the folder's FolderLock.
class Lifecycle final {
 public:
  Lifecycle(LifecycleOptions options, Reporter& reporter);

  const std::string& root() const { return options_.root; }

  /// The directory of a checkpoint.
  std::string path(const CheckpointName& name) const;

  /// Makes the directory, marked incomplete, with model/, optim/, rng/ and dataloader/ in it, and
  /// returns its path. An incomplete one of that name is replaced; a published one that is damaged
  /// or was passed over is moved aside with a warning; a good one is an InputError.
  std::string reserve(const CheckpointName& name);

  /// After all ranks' files are written: losses.json, manifest, LATEST, marker, LOWEST_VAL,
  /// retention, in this order. `known` are records of files already checksummed.
  void publish(const CheckpointName& name, const std::optional<double>& train_loss,
               const NamedLosses& validation_losses, std::span<const FileRecord> known);

  /// Removes an unpublished checkpoint after a failed save.
  void abandon(const CheckpointName& name);

  /// The directory to continue from; nullopt for a fresh start. `restore_from` is the recipe's key.
  ///
  /// Absent, or LATEST in any case: LATEST's target, else the highest complete step; damaged and
  /// incomplete ones are named in a warning and passed over. Otherwise a pointer (LOWEST_VAL), a
  /// name inside the root or a path: incomplete, damaged or missing is an InputError. A checkpoint
  /// of another model: InputError when the key is absent, else only a warning.
  /// Upstream's pickled checkpoints are an InputError. Coordinator only.
  std::optional<std::string> choose(const std::optional<std::string>& restore_from,
                                    const ModelSignature& signature);

  /// Names of those that choose() found damaged, and of LifecycleOptions::passed_over.
  const std::set<std::string>& passed_over() const { return options_.passed_over; }

  /// Names of complete checkpoints, by step; damaged ones are among them.
  std::vector<std::string> complete_checkpoints() const;

  /// What LATEST or LOWEST_VAL points at: a name inside the root; nullopt when there is none.
  std::optional<std::string> pointer_target(std::string_view pointer) const;

 private:
  std::optional<std::string> find_fault(const std::string& checkpoint) const;
  /// Why a published checkpoint may be moved aside.
  std::optional<std::string> fault_for_reserve(const std::string& name) const;
  void move_pointer(std::string_view pointer, const std::string& target);
  void write_losses(const std::string& directory, const std::optional<double>& train_loss,
                    const NamedLosses& validation_losses);
  void update_lowest(const std::string& name, const NamedLosses& validation_losses);
  std::optional<double> saved_lowest(const std::string& key) const;
  void prune();
  void remove_leftovers();
  void remove_checkpoint(const std::string& name);
  /// What choose_newest() tries, in this order.
  std::vector<std::string> candidates() const;
  std::optional<std::string> choose_newest(const ModelSignature* signature);
  std::string resolve_explicit(const std::string& restore_from) const;
  std::string available() const;

  LifecycleOptions options_;
  Reporter& reporter_;
  std::optional<double> lowest_;
};

/// Why a directory is no checkpoint to continue from; nullopt when it is good. Reads every byte.
/// Throws InputError for upstream's pickled checkpoints.
std::optional<std::string> find_fault(const std::string& checkpoint);

}  // namespace automodel::checkpoint
