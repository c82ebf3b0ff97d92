#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "comm/groups/process_group.h"
#include "core/error.h"
#include "core/json.h"
#include "core/reporter.h"
#include "distributed/engine/engine.h"
#include "optim/lr_schedule.h"
#include "optim/optimizer.h"
#include "tensor/batch.h"
#include "training/norm_watch.h"
#include "training/step_graph.h"

namespace automodel::training {

/// Returns the sum of the cross-entropies of a micro-batch (or of this rank's part of it) divided
/// by `divisor`: a float32 scalar with a graph. `micro_batch` is its global index within the step,
/// which keys dropout.
using LossFunction = std::function<at::Tensor(const tensor::Batch& batch, double divisor,
                                              int64_t step, int64_t micro_batch)>;

/// The place of a batch in the run.
struct BatchPlace {
  int64_t step = 0;
  int64_t micro_batch = 0;  ///< global index within the step
  bool is_last = false;     ///< the last of this rank's batches in the step
};

/// A step's losses, added up where they are computed: to read each would make the host wait for the
/// device before every micro-batch. The sum keeps its place in memory, for steps that are recorded.
class LossSum final {
 public:
  void add(const at::Tensor& loss);
  /// The sum of what was added, which begins anew.
  double take();

 private:
  at::Tensor sum_;  ///< float64; undefined before the first loss
};

/// Computes a rank's batches: forward, backward and what gradients need before they are reduced.
/// What a kind of recipe has of its own around steps is told to its pass; one that needs none of it
/// leaves begin_step(), count(), begin_validation(), describe(), begin_evaluation() and
/// describe_validation() as they are.
class BatchPass {
 public:
  virtual ~BatchPass() = default;

  /// Called with a step's batches, before they are counted. Every rank calls it.
  virtual void begin_step(const std::vector<tensor::Batch>& batches, int64_t step);
  /// What a batch adds to its step's token counts; by default count_tokens().
  virtual tensor::TokenCounts count(const tensor::Batch& batch, int64_t ignore_index) const;
  /// Adds a batch's gradients; returns its sum of cross-entropies / divisor (0 on ranks without
  /// losses, and where known_everywhere() adds it).
  virtual double train(const tensor::Batch& batch, double divisor, const BatchPlace& place) = 0;
  /// Called after the gradients are reduced; divides them if train() has not.
  virtual void finish(double divisor) = 0;
  /// Called before a batch's evaluate(); may set the labels that are scored.
  virtual void begin_validation(tensor::Batch& batch, int64_t step);
  /// The batch's sum of cross-entropies, computed without gradients.
  virtual double evaluate(const tensor::Batch& batch, int64_t index) = 0;
  /// Returns a sum of losses, with those that train() did not return, on every rank that computes
  /// the same batches.
  virtual double known_everywhere(double loss) = 0;
  /// Changes the record of the step that just ended to the recipe's form. Every rank calls it.
  virtual void describe(Json& record) const;
  /// Announces a validation set, before its first batch.
  virtual void begin_evaluation();
  /// Makes the record of the set that was just evaluated the recipe's; the set has so many label
  /// tokens on all ranks. Every rank calls it.
  virtual void describe_validation(int64_t num_label_tokens, Json& record) const;
};

/// The pass for a whole model on this rank (or its tensor-parallel part).
std::unique_ptr<BatchPass> make_plain_pass(distributed::Engine& engine, LossFunction loss);

/// Divides the gradients of an engine, on this rank.
void divide_gradients(const distributed::Engine& engine, double divisor);

/// Counts labels, and tokens without the padding at the ends of sequences.
tensor::TokenCounts count_tokens(const tensor::Batch& batch, int64_t ignore_index);

struct TrainStepOptions {
  /// Absent: the norm is neither measured, clipped nor checked.
  std::optional<double> max_grad_norm = 1.0;
  int64_t ignore_index = -100;
  bool stops_on_non_finite = true;
  /// Set: the update of a step is left out whose norm is a NormWatch's spike with this multiple, or
  /// whose loss or norm is not finite, which then ends nothing.
  std::optional<double> spike_multiple;
  /// The ranks that read different data, this one among them; absent: the engine's, which average
  /// gradients. Context-parallel ranks read the same data.
  std::optional<comm::ProcessGroup> data_ranks;
  int ranks_per_replica = 1;    ///< tensor-parallel ranks; names ranks in errors
  int64_t first_loss_rank = 0;  ///< in the last pipeline stage, which computes losses
  /// Called on every rank with the reduced gradients of a step, before they are clipped; empty: no.
  std::function<void(const distributed::Engine& engine, int64_t step)> look_at_gradients;
  /// Waits for the device before a step's times are read; empty: no need to wait.
  std::function<void()> synchronize;
  /// Set: steps that are alike are recorded. For one rank, whose engine keeps nothing between a
  /// step's kernels, and a pass that divides by what train() is told.
  std::shared_ptr<StepGraph> graph;
  Reporter* reporter = nullptr;  ///< is told when a step could not be recorded; may be null
};

struct StepResult {
  double loss = 0;                      ///< mean over the step's label tokens of all ranks
  double grad_norm = 0;                 ///< before clipping; 0 if not measured
  double lr = 0;                        ///< after the schedule's step
  tensor::TokenCounts counts;           ///< of all ranks
  double forward_backward_seconds = 0;  ///< of all micro-batches and the reduction, on this rank
  double update_seconds = 0;            ///< of clipping and the optimizer, on this rank
  bool is_skipped = false;              ///< nothing was updated: a spike, or not finite
  double usual_norm = 0;                ///< of a skipped step: the median of those before
};

/// A non-finite loss or gradient, naming the step and the rank that saw it (exit code 5).
class NonFiniteError final : public UserError {
 public:
  explicit NonFiniteError(const std::string& text) : UserError(text, ExitCode::kNonFinite) {}
};

/// One optimizer step over a list of micro-batches, which every rank that has a part of them gets
/// whole: forward and backward of each with the loss divided by the label tokens of the whole step
/// on all ranks, reduction, clipping, update. Every data-parallel rank calls it with the same
/// number of micro-batches.
class TrainStep final {
 public:
  /// `engine` and `optimizer` outlive this object.
  TrainStep(distributed::Engine& engine, optim::Optimizer& optimizer, optim::LrSchedule schedule,
            LossFunction loss, const TrainStepOptions& options);
  TrainStep(distributed::Engine& engine, optim::Optimizer& optimizer, optim::LrSchedule schedule,
            std::unique_ptr<BatchPass> pass, const TrainStepOptions& options);

  /// Throws NonFiniteError before the update for a loss or norm that is not finite, if the options
  /// or the engine's gradient_check() ask for it, unless such updates are left out.
  StepResult run(const std::vector<tensor::Batch>& group, int64_t step);

  struct Evaluation {
    double loss = 0;  ///< mean over all ranks' label tokens
    int64_t num_label_tokens = 0;
  };
  /// Mean loss, without updating, over the batches that `next_batch` returns until it returns
  /// false; `step` is the one that just ended. Every data-parallel rank calls it.
  Evaluation evaluate(const std::function<bool(tensor::Batch&)>& next_batch, int64_t step);
  /// Gives up the memory of a recorded step, before forwards that are none of a step's.
  void drop_recorded_step();

  /// BatchPass::describe for the step that just ended.
  void describe(Json& record) const { pass_->describe(record); }
  /// BatchPass::describe_validation of the set that was just evaluated.
  void describe_validation(const Evaluation& evaluation, Json& record) const {
    pass_->describe_validation(evaluation.num_label_tokens, record);
  }

  const optim::LrSchedule& schedule() const { return schedule_; }
  void set_schedule(optim::LrSchedule schedule) { schedule_ = std::move(schedule); }
  /// The norms by which spikes are known; null where no update is left out.
  NormWatch* norms() { return norms_ ? &*norms_ : nullptr; }
  /// The learning rate for the log: the next step's.
  double lr() const { return schedule_.lr(optimizer_.num_steps()); }

 private:
  /// Adds up and reduces a step's gradients; returns the loss on this rank.
  double compute(const std::vector<tensor::Batch>& group, double divisor, int64_t step);
  /// compute() by the graph, where the step is one that it records.
  double compute_alike(const std::vector<tensor::Batch>& group, double divisor, int64_t step);
  /// The micro-batches, and the reduction of what they added; returns the losses that are known.
  double train(const std::vector<tensor::Batch>& group, double divisor, int64_t step);
  /// Ends the run if the loss is not finite and the recipe asks for it; names ranks.
  void check_finite(double local_loss, double loss, int64_t step) const;
  const comm::ProcessGroup& data_ranks() const;
  /// The time, after waiting for the device if the options say how.
  double now() const;
  /// Ends the run if the norm is not finite and the recipe or the strategy asks for it; names
  /// tensors.
  void check_gradients(const StepResult& result, int64_t step) const;
  /// Whether the step's update is left out; known from loss and norm, which all ranks have.
  bool skips(StepResult& result);

  distributed::Engine& engine_;
  optim::Optimizer& optimizer_;
  optim::LrSchedule schedule_;
  std::unique_ptr<BatchPass> pass_;
  TrainStepOptions options_;
  std::optional<NormWatch> norms_;
};

}  // namespace automodel::training
