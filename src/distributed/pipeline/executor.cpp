#include "distributed/pipeline/executor.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/tensor.h>

#include <algorithm>

#include "core/clock.h"
#include "core/error.h"
#include "distributed/moe_fsdp_mixin.h"
#include "distributed/pipeline/simulation.h"

namespace automodel::distributed {

namespace {

using StageMicrobatch = std::pair<int, int>;

/// Messages of a batch have tags of their own, so their order does not matter.
int tag_of(const PipelineAction& maker, int num_microbatches) {
  const int place = maker.stage * num_microbatches + maker.microbatch;
  return 2 * place + (maker.op == PipelineOp::kForward ? 0 : 1);
}

}  // namespace

/// One batch on its way through this rank.
struct PipelineExecutor::Pass {
  /// What is kept of a micro-batch between a stage's actions.
  struct InFlight {
    at::Tensor input;   // a leaf
    at::Tensor output;  // with its graph
    WeightBackward weights;
  };

  const std::vector<tensor::Batch>& batches;
  const std::vector<PipelineAction>& actions;
  bool is_training = true;
  double loss = 0;
  std::map<StageMicrobatch, InFlight> in_flight;
  std::map<PipelineAction, at::Tensor> handed_over;  // by what made it, on this rank
  std::vector<PipelineAction> receives;              // what other ranks make, in order of use
  size_t next_receive = 0;
  std::map<PipelineAction, Message> posted;
  std::deque<Message> sent;

  int num_microbatches() const { return static_cast<int>(batches.size()); }
};

PipelineExecutor::PipelineExecutor(comm::ProcessGroup pp_group, PipelineSchedule schedule,
                                   std::vector<PipelineStage*> stages,
                                   const PipelineOptions& options)
    : group_(std::move(pp_group)), schedule_(std::move(schedule)), options_(options) {
  AM_CHECK(group_.size() == schedule_.shape.num_ranks, "a schedule for another number of ranks");
  const std::vector<int> own = schedule_.stages_of(group_.rank());
  AM_CHECK(own.size() == stages.size(), "rank ", group_.rank(), " has ", own.size(), " stages");
  for (size_t i = 0; i < own.size(); ++i) stages_[own[i]] = stages[i];
}

PipelineSchedule PipelineExecutor::schedule_for(int num_microbatches) const {
  ScheduleShape shape = schedule_.shape;
  shape.num_microbatches = num_microbatches;
  const bool is_made =
      schedule_.kind != ScheduleKind::kCsv && schedule_finding(schedule_.kind, shape).empty();
  return is_made ? make_schedule(schedule_.kind, shape)
                 : make_plain_schedule(schedule_.kind, shape, schedule_.rank_of_stage);
}

namespace {

/// What the actions of a rank need of other ranks. Of a gradient it is known who makes it, not
/// whether alone or with the weights': it stands for both.
std::vector<PipelineAction> receives_of(const PipelineSchedule& schedule,
                                        const std::vector<PipelineAction>& actions, int rank) {
  std::vector<PipelineAction> receives;
  for (const PipelineAction& action : actions) {
    for (const PipelineAction& need : needs_of(action, schedule.shape.num_stages())) {
      const bool is_here = schedule.rank_of_stage[static_cast<size_t>(need.stage)] == rank;
      if (!is_here && need.op != PipelineOp::kBackwardInput) receives.push_back(need);
    }
  }
  return receives;
}

std::vector<PipelineAction> forwards_of(const std::vector<int>& stages, int num_microbatches) {
  std::vector<PipelineAction> actions;
  for (const int stage : stages) {
    for (int i = 0; i < num_microbatches; ++i) {
      actions.push_back({stage, PipelineOp::kForward, i});
    }
  }
  return actions;
}

}  // namespace

double PipelineExecutor::train(const std::vector<tensor::Batch>& microbatches, bool is_last) {
  const auto count = static_cast<int>(microbatches.size());
  const bool is_usual = count == schedule_.shape.num_microbatches;
  const PipelineSchedule other = is_usual ? PipelineSchedule{} : schedule_for(count);
  const PipelineSchedule& schedule = is_usual ? schedule_ : other;
  const auto& actions = schedule.actions[static_cast<size_t>(group_.rank())];
  Pass pass{.batches = microbatches, .actions = actions};
  pass.receives = receives_of(schedule, actions, group_.rank());
  post_receive(pass);
  std::map<int, size_t> last_of_stage;
  for (size_t i = 0; i < actions.size(); ++i) last_of_stage[actions[i].stage] = i;
  for (size_t i = 0; i < actions.size(); ++i) {
    run_action(pass, actions[i], is_last && last_of_stage[actions[i].stage] == i);
  }
  for (Message& message : pass.sent) message.work.wait();
  return pass.loss;
}

double PipelineExecutor::evaluate(const std::vector<tensor::Batch>& microbatches) {
  const at::NoGradGuard no_grad;
  const std::vector<int> stages = schedule_.stages_of(group_.rank());
  const auto actions = forwards_of(stages, static_cast<int>(microbatches.size()));
  Pass pass{.batches = microbatches, .actions = actions, .is_training = false};
  pass.receives = receives_of(schedule_, actions, group_.rank());
  post_receive(pass);
  for (const PipelineAction& action : actions) forward(pass, action);
  for (Message& message : pass.sent) message.work.wait();
  return pass.loss;
}

double PipelineExecutor::from_last_stage(double value) const {
  at::Tensor number = at::tensor({value}, at::TensorOptions().dtype(at::kDouble));
  group_.broadcast(number, rank_of(num_stages() - 1));
  return number.item<double>();
}

void PipelineExecutor::run_action(Pass& pass, const PipelineAction& action, bool is_last) {
  const double begin = monotonic_seconds();
  switch (action.op) {
    case PipelineOp::kForward:
      forward(pass, action);
      break;
    case PipelineOp::kFullBackward:
    case PipelineOp::kBackwardInput:
      backward(pass, action, is_last);
      break;
    case PipelineOp::kBackwardWeight:
      weight_backward(pass, action, is_last);
      break;
  }
  trace(action, begin);
}

void PipelineExecutor::forward(Pass& pass, const PipelineAction& action) {
  at::Tensor input = take_input(pass, action);
  PipelineStage& own = stage(action.stage);
  const tensor::Batch& batch = pass.batches[static_cast<size_t>(action.microbatch)];
  const bool is_end = action.stage + 1 == num_stages();
  counts_.forwards += 1;
  if (!pass.is_training) {
    const at::Tensor output = own.run(batch, action.microbatch, input);
    if (is_end) pass.loss += own.loss(batch, output).item<double>();
    if (!is_end) pass_on(pass, action, action.stage + 1, output);
    return;
  }
  if (input.defined()) input.requires_grad_();
  const at::Tensor output = own.run(batch, action.microbatch, input);
  Pass::InFlight& kept = pass.in_flight[{action.stage, action.microbatch}];
  kept.input = input;
  kept.output = output;
  counts_.peak_in_flight =
      std::max(counts_.peak_in_flight, static_cast<int>(pass.in_flight.size()));
  if (!is_end) pass_on(pass, action, action.stage + 1, output);
}

void PipelineExecutor::backward(Pass& pass, const PipelineAction& action, bool is_last) {
  PipelineStage& own = stage(action.stage);
  const StageMicrobatch key{action.stage, action.microbatch};
  Pass::InFlight& kept = pass.in_flight.at(key);
  const bool is_full = action.op == PipelineOp::kFullBackward;
  const bool is_end = action.stage + 1 == num_stages();
  StageGraph graph{kept.input, kept.output, at::Tensor()};
  if (!is_end) {
    graph.output_gradient = take_input(pass, action).to(kept.output.scalar_type());
  } else {
    graph.output = own.loss(pass.batches[static_cast<size_t>(action.microbatch)], kept.output);
    pass.loss += graph.output.item<double>();
  }
  kept.input.reset();
  kept.output.reset();
  BackwardOutcome outcome = patched_backward_maybe_with_nosync(
      own.engine().backward_stage(), is_full ? "full" : "input", {std::move(graph)}, is_last);
  if (outcome.param_groups) kept.weights = std::move(*outcome.param_groups);
  if (is_full) pass.in_flight.erase(key);
  counts_.backwards += 1;
  if (action.stage > 0) pass_on(pass, action, action.stage - 1, outcome.grads);
}

void PipelineExecutor::weight_backward(Pass& pass, const PipelineAction& action, bool is_last) {
  PipelineStage& own = stage(action.stage);
  const auto kept = pass.in_flight.find({action.stage, action.microbatch});
  AM_CHECK(kept != pass.in_flight.end(), action.text());
  patched_backward_maybe_with_nosync(own.engine().backward_stage(), "weight",
                                     {.param_groups = &kept->second.weights}, is_last);
  pass.in_flight.erase(kept);
  counts_.weight_backwards += 1;
}

/// Waits for what the action needs; undefined when that is nothing.
at::Tensor PipelineExecutor::take_input(Pass& pass, const PipelineAction& action) {
  const std::vector<PipelineAction> needs = needs_of(action, num_stages());
  if (needs.empty()) return {};
  if (rank_of(needs[0].stage) == group_.rank()) {
    for (const PipelineAction& need : needs) {
      const auto made = pass.handed_over.find(need);
      if (made == pass.handed_over.end()) continue;
      at::Tensor tensor = std::move(made->second);
      pass.handed_over.erase(made);
      return tensor;
    }
    AM_CHECK(false, action.text(), " comes before what it needs of its own rank");
  }
  const auto posted = pass.posted.find(needs[0]);
  AM_CHECK(posted != pass.posted.end(), action.text());
  Message message = std::move(posted->second);
  pass.posted.erase(posted);
  post_receive(pass);
  message.work.wait();
  counts_.receives += 1;
  return message.tensor.to(options_.device);
}

/// Starts the receive that is needed next.
void PipelineExecutor::post_receive(Pass& pass) {
  if (pass.next_receive == pass.receives.size()) return;
  const PipelineAction& maker = pass.receives[pass.next_receive++];
  const tensor::Batch& batch = pass.batches[static_cast<size_t>(maker.microbatch)];
  Message message;
  message.peer = rank_of(maker.stage);
  message.tag = tag_of(maker, pass.num_microbatches());
  message.tensor = at::empty(stages_.begin()->second->hidden_sizes(batch),
                             at::TensorOptions().dtype(options_.dtype));
  message.work = group_.start_recv(message.tensor, message.peer, message.tag);
  pass.posted.emplace(maker, std::move(message));
}

/// Sends a result to its stage, which may be on this rank.
void PipelineExecutor::pass_on(Pass& pass, const PipelineAction& action, int to_stage,
                               const at::Tensor& tensor) {
  const at::Tensor result = tensor.detach().to(options_.dtype);
  const int peer = rank_of(to_stage);
  if (peer == group_.rank()) {
    pass.handed_over[action] = result;
    return;
  }
  while (!pass.sent.empty() && pass.sent.front().work.is_done()) {
    pass.sent.front().work.wait();
    pass.sent.pop_front();
  }
  Message message{peer, tag_of(action, pass.num_microbatches()), result.cpu().contiguous(), {}};
  message.work = group_.start_send(message.tensor, message.peer, message.tag);
  counts_.sends += 1;
  pass.sent.push_back(std::move(message));
}

void PipelineExecutor::trace(const PipelineAction& action, double begin) {
  if (options_.trace == nullptr) return;
  options_.trace->record({action.text(), "pipeline", begin, monotonic_seconds(), group_.rank()});
}

}  // namespace automodel::distributed
