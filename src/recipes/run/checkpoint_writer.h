#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "checkpoint/hf_export.h"
#include "checkpoint/lifecycle.h"
#include "comm/watch/slow_work.h"
#include "core/json.h"
#include "core/reporter.h"
#include "distributed/engine/engine.h"
#include "recipes/read/recipe.h"
#include "tensor/shard_spec.h"

namespace automodel::recipes {

/// Everything that a rank writes of a checkpoint, as of one moment.
struct CheckpointContents {
  checkpoint::CheckpointName name;
  distributed::HeldPart part;
  std::vector<tensor::FlatShard> parameters;  ///< those that this rank saves
  /// Prefixes of tensors' names ("exp_avg.") and the shards that this rank saves.
  std::vector<std::pair<std::string, std::vector<tensor::FlatShard>>> optimizer;
  Json optimizer_scalars;
  Json step_scheduler;
  Json position;  ///< of the data
  double train_loss = 0;
  checkpoint::NamedLosses validation_losses;
  bool is_exported = false;  ///< as a Hugging Face folder; adapters always are
  std::string architecture;
  Json hf_config;
  std::vector<std::string> kept_prefixes;
  std::vector<std::string> saved_modules;  ///< whole, beside adapters
  std::string tied_embedding;              ///< peft::tied_saved_embedding()
};

/// The device on which parameters lie, if any does; else the CPU.
at::Device device_of(const CheckpointContents& contents);

/// The memory that copy_tensors() will keep, as large as these need; undefined where tensors are
/// not on the CPU.
at::Tensor memory_of_copies(CheckpointContents contents);

/// Copies the tensors to memory of their own on the CPU, so that training may go on while they are
/// written. `kept`: memory of a CPU's copies, taken again in the next call, before which those of
/// this one must be gone.
void copy_tensors(CheckpointContents& contents, at::Tensor& kept);

/// How the run's checkpoints are kept, for a rank; rank 0 is the coordinator.
checkpoint::LifecycleOptions lifecycle_options(const CheckpointSection& section,
                                               bool is_coordinator);

/// What a checkpoint must agree with to be continued from: the model, and a distilled one's
/// teacher.
checkpoint::ModelSignature signature_of(const Recipe& recipe);

/// Throws InputError where a model that began with a folder's weights could not be saved as a
/// Hugging Face folder, since that folder has none any more.
void check_base(const Recipe& recipe);

/// How a recipe's model of this configuration is written as a Hugging Face folder: with the files,
/// dtypes and further tensors of the folder that it began with, or, if that cannot be read any
/// more, a warning and without them.
checkpoint::HfExport export_of(const Recipe& recipe, Json hf_config,
                               std::vector<std::string> kept_prefixes, Reporter& reporter);

/// The files with which Sentence Transformers make the embeddings of a model with this config.json;
/// none of other models, and where those files cannot say how it makes them (sentence_obstacle()).
std::vector<checkpoint::TextFile> sentence_files_of(const Recipe& recipe, const Json& hf_config);

/// Writes checkpoints, in the order that Lifecycle asks for.
class CheckpointWriter final {
 public:
  /// The recipe and the reporter outlive the writer and its copies. `signature`: signature_of() at
  /// the beginning of the run; rank 0 alone needs it.
  CheckpointWriter(const Recipe& recipe, std::string resolved_recipe,
                   checkpoint::ModelSignature signature, int rank, Reporter& reporter);

  /// Reserves a checkpoint's folder, writes and publishes it. All ranks call it, with the same kind
  /// of `work`, by which they wait for each other. After a failure the half checkpoint is removed.
  void write(const CheckpointContents& contents, checkpoint::LifecycleOptions options,
             comm::SlowWork& work) const;

 private:
  void write_rank_files(const CheckpointContents& contents, const std::string& folder,
                        ByteCounter& progress) const;
  /// Returns records of large files, so that the manifest need not compute their checksums again.
  std::vector<FileRecord> write_shared_files(const CheckpointContents& contents,
                                             const std::string& folder,
                                             ByteCounter& progress) const;
  std::vector<FileRecord> export_model(const CheckpointContents& contents,
                                       const std::string& folder, ByteCounter& progress) const;
  void abandon(checkpoint::Lifecycle& lifecycle, const checkpoint::CheckpointName& name) const;

  const Recipe& recipe_;
  std::string resolved_recipe_;
  checkpoint::ModelSignature signature_;
  int rank_;
  Reporter& reporter_;
};

}  // namespace automodel::recipes
