#pragma once

#include <c10/core/ScalarType.h>

#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "checkpoint/folder_lock.h"
#include "checkpoint/hf_folder.h"
#include "checkpoint/lifecycle.h"
#include "comm/process_group.h"
#include "comm/slow_work.h"
#include "core/reporter.h"
#include "distributed/engine/engine.h"
#include "models/causal_lm.h"
#include "recipes/read/recipe.h"
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
};

/// What a save records of the moment.
struct SaveRequest {
  Json position;  ///< of the data, after the step that just ended
  double train_loss = 0;
  std::vector<std::pair<std::string, double>> validation_losses;
  bool is_final = false;  ///< the run's last checkpoint
};

/// Saves and restores sessions in upstream's layout. All ranks call save() and restore() together;
/// they wait for each other as long as a disk makes progress.
class SessionCheckpoint final {
 public:
  /// Locks the folder of checkpoints and logs for its lifetime. Throws InputError when another run
  /// has locked it.
  SessionCheckpoint(const Recipe& recipe, comm::ProcessGroup group, comm::SlowWork& slow_work,
                    Reporter& reporter, std::string resolved_recipe);

  /// Continues from the checkpoint that restore_from names, else the newest good one, and returns
  /// its folder; "" when there is none and the run starts afresh.
  std::string restore(const SessionState& state);

  /// Returns the new checkpoint's folder.
  std::string save(const SessionState& state, const SaveRequest& request);

 private:
  const std::vector<tensor::FlatShard>& saved_parameters(const distributed::Engine& engine) const;
  void write_rank_files(const SessionState& state, const std::string& folder) const;
  /// Returns records of large files, so that the manifest need not compute their checksums again.
  std::vector<FileRecord> write_shared_files(const SessionState& state, const SaveRequest& request,
                                             const std::string& folder) const;
  std::vector<FileRecord> export_model(const SessionState& state, const std::string& folder) const;
  void load(const SessionState& state, const std::string& folder) const;
  void lock_folder();
  /// The checkpoint to continue from, "" for none. All ranks verify it, each rank a part.
  std::string choose();
  std::string verify_candidates();
  std::optional<std::string> verify(const std::string& checkpoint);
  /// Returns rank 0's text on every rank.
  std::string broadcast_text(const std::string& text);
  void abandon(checkpoint::Lifecycle& lifecycle, const checkpoint::CheckpointName& name) const;

  const Recipe& recipe_;
  comm::ProcessGroup group_;
  comm::SlowWork& slow_work_;
  Reporter& reporter_;
  std::string resolved_recipe_;
  std::optional<checkpoint::FolderLock> lock_;
  std::set<std::string> passed_over_;  // damaged checkpoints found when one was chosen
};

}  // namespace automodel::recipes
