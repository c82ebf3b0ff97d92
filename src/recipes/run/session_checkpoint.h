#pragma once

#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "checkpoint/folder_lock.h"
#include "checkpoint/signature.h"
#include "comm/groups/process_group.h"
#include "comm/watch/slow_work.h"
#include "core/reporter.h"
#include "distributed/engine/engine.h"
#include "models/causal_lm.h"
#include "recipes/read/recipe.h"
#include "recipes/run/background_task.h"
#include "recipes/run/checkpoint_writer.h"
#include "training/early_stopping.h"
#include "training/train_step.h"

namespace automodel::recipes {

/// References to the parts of a session that a checkpoint holds.
struct SessionState {
  distributed::Engine& engine;
  optim::Optimizer& optimizer;
  training::TrainStep& train_step;
  training::StepScheduler& scheduler;
  datasets::BatchStream& stream;
  models::CausalLM& model;
  int64_t& num_rollbacks;                   ///< of the run so far
  training::EarlyStopping* early_stopping;  ///< null: the recipe has none
};

/// What a checkpoint holds beside the SessionState, and what the save means for the run.
struct SaveRequest {
  Json position;  ///< of the data, after the step that just ended
  double train_loss = 0;
  std::vector<std::pair<std::string, double>> validation_losses;
  bool is_final = false;  ///< the run's last checkpoint
  bool ends_run = false;  ///< nothing is trained after it: the last one, or one for a signal
};

/// A checkpoint that has been saved.
struct FinishedSave {
  std::string folder;
  int64_t step = 0;
  int64_t epoch = 0;
  double begin_seconds = 0;
  double seconds = 0;         ///< from the beginning to the end
  double waited_seconds = 0;  ///< of a background save: how long training stood still for it
  bool is_in_background = false;
};

/// What saves in the background need. Task and work outlive the session: a run that fails tells the
/// other ranks why before it waits for a save.
struct Background {
  BackgroundTask& task;
  comm::SlowWork& work;
};

/// Saves and restores sessions in upstream's layout. All ranks call save() and restore() together;
/// they wait for each other as long as a disk makes progress.
class SessionCheckpoint final {
 public:
  /// Locks the folder of checkpoints and logs for its lifetime. Throws InputError when another run
  /// has locked it. `background`: saves go on there while training does; absent: training waits.
  SessionCheckpoint(const Recipe& recipe, comm::ProcessGroup group, comm::SlowWork& slow_work,
                    std::optional<Background> background, Reporter& reporter,
                    std::string resolved_recipe);

  /// Continues from the checkpoint that restore_from names, else the newest good one, and returns
  /// its folder; "" when there is none and the run starts afresh.
  std::string restore(const SessionState& state);

  /// Goes back to newest(): everything but the data's position and the epoch, so that the run goes
  /// on from there with the data that come next. No save may be under way. Throws InputError when
  /// it has been damaged.
  void roll_back(const SessionState& state);

  /// The folder of the checkpoint that was restored or saved last; "" before there is one.
  const std::string& newest() const { return newest_; }

  /// With a `background` on the CPU: has the first save's memory reserved there while training goes
  /// on. Called after every step that was not skipped; after the first one the optimizer has its
  /// states.
  void prepare(const SessionState& state);

  /// Saves, and returns what has been saved; with a `background`, unless the save ends the run,
  /// only copies what is to be written, which takes the memory of it once more (on a CPU until the
  /// run ends, on a device until it is written), and returns nothing: take_finished() or finish()
  /// does later. No save may be under way.
  std::optional<FinishedSave> save(const SessionState& state, const SaveRequest& request);

  /// The background save, once, when it has ended; nullopt while it is under way or there is none.
  /// Throws what it ended with.
  std::optional<FinishedSave> take_finished();

  /// Waits for the background save; nullopt when there is none. Throws what it ended with.
  std::optional<FinishedSave> finish();

 private:
  const std::vector<tensor::FlatShard>& saved_parameters(const distributed::Engine& engine) const;
  CheckpointContents contents(const SessionState& state, const SaveRequest& request) const;
  void load(const SessionState& state, const std::string& folder) const;
  /// Takes over a checkpoint's learning-rate schedule; warns of the recipe's values that differ.
  void take_schedule(const SessionState& state, const Json& saved) const;
  void compare_optimizers(const std::string& saved, const std::string& own) const;
  void lock_folder();
  /// The checkpoint that `wanted` (as the key restore_from) names, "" for none. All ranks verify
  /// it, each rank a part.
  std::string choose(const std::optional<std::string>& wanted);
  std::string verify_candidates();
  std::optional<std::string> verify(const std::string& checkpoint);
  /// Returns rank 0's text on every rank.
  std::string broadcast_text(const std::string& text);

  const Recipe& recipe_;
  comm::ProcessGroup group_;
  comm::SlowWork& slow_work_;
  std::optional<Background> background_;
  Reporter& reporter_;
  std::string resolved_recipe_;
  checkpoint::ModelSignature signature_;  // rank 0's, of the files at the beginning of the run
  /// Shared with a save in the background, which may outlive the session.
  std::shared_ptr<checkpoint::FolderLock> lock_;
  std::set<std::string> passed_over_;      // damaged checkpoints found when one was chosen
  std::optional<FinishedSave> under_way_;  // in the background
  at::Tensor copies_;                      // memory of what it writes
  BackgroundTask reserving_;               // that memory
  bool is_prepared_ = false;
  std::string newest_;
};

}  // namespace automodel::recipes
