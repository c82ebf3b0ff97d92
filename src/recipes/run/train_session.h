#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "comm/process_group.h"
#include "comm/world.h"
#include "core/reporter.h"
#include "distributed/engine/engine.h"
#include "distributed/groups/device_mesh.h"
#include "loggers/progress.h"
#include "models/causal_lm.h"
#include "models/flops.h"
#include "recipes/build/build_engine.h"
#include "recipes/build/pipeline_request.h"
#include "recipes/read/recipe.h"
#include "recipes/run/block_diffusion_pass.h"
#include "recipes/run/expert_balance.h"
#include "recipes/run/metrics.h"
#include "recipes/run/run_log.h"
#include "recipes/run/session_checkpoint.h"
#include "tensor/cuda_runtime.h"
#include "training/signals.h"
#include "training/train_step.h"

namespace automodel::recipes {

/// What a run needs besides the recipe. Everything outlives the session.
struct RunContext {
  comm::World* world = nullptr;
  comm::ProcessGroup group;  ///< all ranks
  Reporter* reporter = nullptr;
  TraceSink* trace = nullptr;  ///< may be null
  at::Device device = at::kCPU;
  const tensor::CudaRuntime* cuda = nullptr;  ///< set when device is a CUDA device
  std::string resolved_recipe;                ///< YAML text that is saved beside every checkpoint
};

/// How ranks of a run wait for each other's files.
comm::SlowWorkOptions slow_work_options(const Recipe& recipe, Reporter& reporter);

/// TrainFinetuneRecipeForNextTokenPrediction: built by phases in upstream's order, then run once.
/// Every rank builds one and calls run().
class TrainSession final {
 public:
  TrainSession(const Recipe& recipe, const RunContext& context);
  ~TrainSession();

  /// Trains to the end, or to a preemption signal. Returns the exit status: kDone or kPreempted.
  ExitCode run();

 private:
  struct ValidationSet {
    std::string name;
    std::unique_ptr<datasets::BatchStream> stream;
  };
  /// The micro-batches of one step and the position behind them.
  struct Group {
    std::vector<tensor::Batch> batches;
    Json position;
  };

  void build_model();
  void build_stages(at::ScalarType dtype, const EnginePlace& place);
  void build_groups();
  void load_weights();
  /// Draws the tensors whose names begin with one of the prefixes; "" is all of them.
  void initialise_weights(const std::vector<std::string>& prefixes);
  void build_data();
  std::unique_ptr<datasets::BatchStream> build_stream(const DatasetSection& section,
                                                      bool is_training);
  void build_optimizer(distributed::Engine& engine);
  /// Schedule and step around the optimizer.
  void build_updates();
  void build_train_step(const optim::LrSchedule& schedule,
                        const training::TrainStepOptions& options);
  void describe();
  void resume();
  /// How ranks wait for each other's files.
  comm::SlowWork& slow_work();

  Group next_group();
  /// Gives tokens without a label the value that the loss leaves out.
  void leave_out_unlabelled(tensor::Batch& batch) const;
  /// One optimizer step with everything around it; true when the run ends here.
  bool run_step(const Group& group, bool ends_epoch);
  std::vector<std::pair<std::string, double>> validate();
  int agreed_signal();
  /// Floating-point operations of a step on all ranks, whose groups have this one's shape.
  double flops_of(const Group& group) const;
  /// An event of the trace that ends now.
  void trace(const std::string& name, std::string_view category, double begin);

  const Recipe& recipe_;
  RunContext context_;
  std::optional<distributed::DeviceMesh> mesh_;
  comm::ProcessGroup dp_group_;  // ranks that read other data
  comm::ProcessGroup tp_group_;  // ranks that hold parts of one replica and read the same data
  comm::ProcessGroup cp_group_;  // ranks that have parts of the same sequences
  std::shared_ptr<models::CausalLM> model_;               // the first of the parts
  std::vector<std::shared_ptr<models::CausalLM>> parts_;  // several where stages are a pipeline's
  std::optional<PipelineRequest> pipeline_;
  std::unique_ptr<training::BatchPass> pass_;  // of a pipeline, until train_step_ takes it
  BlockDiffusionPass* diffusion_ = nullptr;    // train_step_'s, of a recipe that denoises
  std::unique_ptr<distributed::Engine> engine_;
  std::vector<std::unique_ptr<datasets::TextEncoder>> encoders_;
  std::unique_ptr<datasets::BatchStream> stream_;
  std::vector<ValidationSet> validation_sets_;
  std::optional<training::StepScheduler> scheduler_;
  std::unique_ptr<optim::Optimizer> optimizer_;
  std::optional<training::TrainStep> train_step_;
  std::optional<ExpertBalance> balance_;
  std::optional<SessionCheckpoint> checkpoint_;
  std::optional<StepMeter> meter_;
  models::FlopCount count_flops_;
  std::optional<loggers::ProgressBar> progress_;
  double begin_seconds_ = 0;  // of the first step
  int stopped_by_ = 0;        // the signal that ended the run before its last step
  std::optional<training::SignalWatch> signals_;
  std::optional<RunLog> log_;
};

}  // namespace automodel::recipes
