#include "distributed/pipeline/executor.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/tensor.h>

#include <algorithm>

#include "core/clock.h"
#include "core/error.h"
#include "distributed/engine/moe_fsdp_mixin.h"
#include "distributed/pipeline/simulation.h"

namespace automodel::distributed {

namespace {

using StageMicrobatch = std::pair<int, int>;

/// The name that both ends use for a message. The receiver of a gradient does not know whether it
/// is made alone or with the weights', so both have the name of a full backward.
PipelineAction named(PipelineAction maker) {
  if (maker.op == PipelineOp::kBackwardInput) maker.op = PipelineOp::kFullBackward;
  return maker;
}

/// A rank's messages in an order that both ends share. There are no tags, and on a device messages
/// between two ranks run one after the other in either direction, so each end starts them in this
/// order. The first message that has not arrived then waits only for the action that makes it.
std::vector<PipelineMessage> messages_of(const PipelineSchedule& schedule, int rank) {
  std::vector<PipelineMessage> messages;
  for (PipelineMessage& message : simulate(schedule).messages) {
    message.maker = named(message.maker);
    if (message.from == rank || message.to == rank) messages.push_back(message);
  }
  return messages;
}

}  // namespace

/// The state of one batch on this rank.
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
  std::map<PipelineAction, at::Tensor> handed_over;  // for stages here, by action
  std::vector<PipelineMessage> messages;             // to and from this rank, in the shared order
  size_t next_message = 0;                           // first one not yet started
  std::map<PipelineAction, Message> posted;
  std::deque<Message> sent;
};

PipelineExecutor::PipelineExecutor(comm::ProcessGroup pp_group, PipelineSchedule schedule,
                                   std::vector<PipelineStage*> stages,
                                   const PipelineOptions& options)
    : group_(std::move(pp_group)), schedule_(std::move(schedule)), options_(options) {
  AM_CHECK(group_.size() == schedule_.shape.num_ranks, "a schedule for another number of ranks");
  const std::vector<int> own = schedule_.stages_of(group_.rank());
  AM_CHECK(own.size() == stages.size(), "rank ", group_.rank(), " has ", own.size(), " stages");
  for (size_t i = 0; i < own.size(); ++i) stages_[own[i]] = stages[i];
  messages_ = messages_of(schedule_, group_.rank());
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
  pass.messages = is_usual ? messages_ : messages_of(schedule, group_.rank());
  post_next_receive(pass);
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
  PipelineSchedule forwards = schedule_;
  forwards.shape.num_microbatches = static_cast<int>(microbatches.size());
  for (int rank = 0; rank < group_.size(); ++rank) {
    forwards.actions[static_cast<size_t>(rank)] =
        forwards_of(schedule_.stages_of(rank), forwards.shape.num_microbatches);
  }
  const auto& actions = forwards.actions[static_cast<size_t>(group_.rank())];
  Pass pass{.batches = microbatches, .actions = actions, .is_training = false};
  pass.messages = messages_of(forwards, group_.rank());
  post_next_receive(pass);
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
    if (is_end) pass.loss += own.loss(batch, action.microbatch, output).item<double>();
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
    graph.output = own.loss(pass.batches[static_cast<size_t>(action.microbatch)], action.microbatch,
                            kept.output);
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

/// Waits for the tensor that the action needs; returns an undefined one when it needs none.
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
  const PipelineAction maker = named(needs[0]);
  auto posted = pass.posted.find(maker);
  if (posted == pass.posted.end()) {
    posted = post_receive(pass, come_to(pass, maker));
  }
  Message message = std::move(posted->second);
  pass.posted.erase(posted);
  post_next_receive(pass);
  message.work.wait();
  counts_.receives += 1;
  return message.tensor.to(options_.device);
}

/// Returns the message that `maker` makes, after starting the receives that precede it in the
/// order.
const PipelineMessage& PipelineExecutor::come_to(Pass& pass, const PipelineAction& maker) {
  while (pass.next_message < pass.messages.size()) {
    const PipelineMessage& message = pass.messages[pass.next_message++];
    if (message.maker == maker) return message;
    AM_CHECK(message.to == group_.rank(), maker.text(), " before ", message.maker.text());
    post_receive(pass, message);
  }
  AM_CHECK(false, "no message ", maker.text());
}

/// Starts the next receive ahead if the next message in the order is one.
void PipelineExecutor::post_next_receive(Pass& pass) {
  if (!pass.posted.empty() || pass.next_message == pass.messages.size()) return;
  const PipelineMessage& message = pass.messages[pass.next_message];
  if (message.to != group_.rank()) return;
  pass.next_message += 1;
  post_receive(pass, message);
}

std::map<PipelineAction, PipelineExecutor::Message>::iterator PipelineExecutor::post_receive(
    Pass& pass, const PipelineMessage& planned) {
  const tensor::Batch& batch = pass.batches[static_cast<size_t>(planned.maker.microbatch)];
  Message message;
  message.tensor = at::empty(stages_.begin()->second->hidden_sizes(batch),
                             at::TensorOptions().dtype(options_.dtype));
  message.work = group_.start_recv(message.tensor, planned.from);
  return pass.posted.emplace(planned.maker, std::move(message)).first;
}

/// Gives a result to stage `to_stage`: sends it, or stores it when the stage is on this rank.
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
  come_to(pass, named(action));
  Message message{result.cpu().contiguous(), {}};
  message.work = group_.start_send(message.tensor, peer);
  counts_.sends += 1;
  pass.sent.push_back(std::move(message));
  post_next_receive(pass);
}

void PipelineExecutor::trace(const PipelineAction& action, double begin) {
  if (options_.trace == nullptr) return;
  options_.trace->record({action.text(), "pipeline", begin, monotonic_seconds(), group_.rank()});
}

}  // namespace automodel::distributed
