#pragma once

#include <ATen/core/Tensor.h>

#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "comm/groups/process_group.h"
#include "core/reporter.h"
#include "distributed/autograd/stage_backward.h"
#include "distributed/engine/engine.h"
#include "distributed/pipeline/schedule.h"
#include "distributed/pipeline/simulation.h"
#include "tensor/batch.h"

namespace automodel::distributed {

/// A stage of the model, as the executor uses it.
class PipelineStage {
 public:
  virtual ~PipelineStage() = default;

  /// Returns the hidden states after this stage. `input` is undefined for the first stage.
  /// `microbatch` counts within the batch.
  virtual at::Tensor run(const tensor::Batch& batch, int microbatch, const at::Tensor& input) = 0;
  /// Sum of the cross-entropies of the final hidden states: a float32 scalar. Last stage only.
  virtual at::Tensor loss(const tensor::Batch& batch, int microbatch, const at::Tensor& hidden) = 0;
  /// Sizes of the hidden states that the stage receives and sends.
  virtual std::vector<int64_t> hidden_sizes(const tensor::Batch& batch) const = 0;
  /// The owner of the stage's parameters.
  virtual Engine& engine() = 0;
};

struct PipelineOptions {
  at::ScalarType dtype = at::kFloat;  ///< of hidden states between stages
  at::Device device = at::kCPU;
  TraceSink* trace = nullptr;  ///< may be null
};

/// What a rank has done since it was made, for tests and reports.
struct PipelineCounts {
  int64_t forwards = 0;
  int64_t backwards = 0;  ///< full ones and those of inputs only
  int64_t weight_backwards = 0;
  int64_t sends = 0;
  int64_t receives = 0;
  int peak_in_flight = 0;  ///< most (stage, micro-batch) pairs whose graphs were kept at once
};

/// Runs a rank's list of a schedule. A send starts when its tensor is computed, a receive one
/// message ahead, and both are waited for when needed. Both ends use the same order, so messages
/// need no tags; they go through CPU memory. The last stage computes head and loss at the beginning
/// of a backward, so that only one micro-batch's gradients of logits exist. Every rank of the pp
/// group calls every function with the same batches.
class PipelineExecutor final {
 public:
  /// `stages` are this rank's stages of the schedule, ascending; they outlive this object.
  PipelineExecutor(comm::ProcessGroup pp_group, PipelineSchedule schedule,
                   std::vector<PipelineStage*> stages, const PipelineOptions& options);

  /// Runs forward and backward of a batch's micro-batches; gradients are those of the sum of the
  /// cross-entropies. `is_last`: the batch is the step's last, so each stage's last backward
  /// reduces its gradients. Returns that sum on the last stage's rank, 0 elsewhere. A batch with
  /// another number of micro-batches than the schedule's gets its own schedule.
  double train(const std::vector<tensor::Batch>& microbatches, bool is_last);
  /// Runs the forwards only; returns the same sum.
  double evaluate(const std::vector<tensor::Batch>& microbatches);
  /// Returns the last stage's rank's `value` on all ranks.
  double from_last_stage(double value) const;

  const PipelineSchedule& schedule() const { return schedule_; }
  const PipelineCounts& counts() const { return counts_; }

 private:
  struct Pass;
  struct Message {
    at::Tensor tensor;
    comm::Work work;
  };

  PipelineSchedule schedule_for(int num_microbatches) const;
  void run_action(Pass& pass, const PipelineAction& action, bool is_last);
  void forward(Pass& pass, const PipelineAction& action);
  void backward(Pass& pass, const PipelineAction& action, bool is_last);
  void weight_backward(Pass& pass, const PipelineAction& action, bool is_last);
  at::Tensor take_input(Pass& pass, const PipelineAction& action);
  void pass_on(Pass& pass, const PipelineAction& action, int to_stage, const at::Tensor& tensor);
  const PipelineMessage& come_to(Pass& pass, const PipelineAction& maker);
  void post_next_receive(Pass& pass);
  std::map<PipelineAction, Message>::iterator post_receive(Pass& pass,
                                                           const PipelineMessage& planned);
  void trace(const PipelineAction& action, double begin);
  PipelineStage& stage(int index) const { return *stages_.at(index); }
  int num_stages() const { return schedule_.shape.num_stages(); }
  int rank_of(int stage) const { return schedule_.rank_of_stage[static_cast<size_t>(stage)]; }

  comm::ProcessGroup group_;
  PipelineSchedule schedule_;
  std::vector<PipelineMessage> messages_;  // to and from here, for a batch of the schedule's size
  std::map<int, PipelineStage*> stages_;
  PipelineOptions options_;
  PipelineCounts counts_;
};

}  // namespace automodel::distributed
