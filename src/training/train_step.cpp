#include "training/train_step.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "comm/groups/sums.h"
#include "core/clock.h"
#include "core/error.h"
#include "distributed/fsdp/gradient_check.h"

namespace automodel::training {

namespace {

constexpr size_t kNamed = 3;  // tensors in an error

/// "nan" whatever its sign, "inf", "-inf", or the number.
std::string name_of(double value) {
  return std::isnan(value) ? "nan" : cat(value);
}

class PlainPass final : public BatchPass {
 public:
  PlainPass(distributed::Engine& engine, LossFunction loss)
      : engine_(engine), loss_(std::move(loss)) {}

  double train(const tensor::Batch& batch, double divisor, const BatchPlace& place) override {
    engine_.begin_micro_batch(place.is_last);
    const at::Tensor loss = loss_(batch, divisor, place.step, place.micro_batch);
    if (loss.requires_grad()) loss.backward();
    engine_.end_micro_batch();
    sum_.add(loss);
    return 0;
  }

  void finish(double) override {}

  double evaluate(const tensor::Batch& batch, int64_t index) override {
    engine_.begin_micro_batch(true);
    const double value = loss_(batch, 1.0, 0, index).item<double>();
    engine_.end_micro_batch();
    return value;
  }

  double known_everywhere(double loss) override {
    return loss + sum_.take() / engine_.group().size();
  }

 private:
  distributed::Engine& engine_;
  LossFunction loss_;
  LossSum sum_;
};

}  // namespace

void LossSum::add(const at::Tensor& loss) {
  const at::NoGradGuard no_grad;
  if (!sum_.defined()) sum_ = at::zeros({}, loss.options().dtype(at::kDouble));
  sum_.add_(loss.detach().to(at::kDouble));
}

double LossSum::take() {
  if (!sum_.defined()) return 0;
  const double sum = sum_.item<double>();
  sum_.zero_();
  return sum;
}

void BatchPass::begin_step(const std::vector<tensor::Batch>&, int64_t) {}

tensor::TokenCounts BatchPass::count(const tensor::Batch& batch, int64_t ignore_index) const {
  return count_tokens(batch, ignore_index);
}

void BatchPass::begin_validation(tensor::Batch&, int64_t) {}

void BatchPass::describe(Json&) const {}

void BatchPass::begin_evaluation() {}

void BatchPass::describe_validation(int64_t, Json&) const {}

std::unique_ptr<BatchPass> make_plain_pass(distributed::Engine& engine, LossFunction loss) {
  return std::make_unique<PlainPass>(engine, std::move(loss));
}

void divide_gradients(const distributed::Engine& engine, double divisor) {
  const at::NoGradGuard no_grad;
  const double scale = 1.0 / divisor;
  for (const tensor::FlatShard& shard : engine.gradients()) {
    at::Tensor gradients = shard.buffer;
    gradients.mul_(scale);
  }
}

tensor::TokenCounts count_tokens(const tensor::Batch& batch, int64_t ignore_index) {
  tensor::TokenCounts counts;
  const at::Tensor labels = batch.labels.cpu().contiguous();
  const int64_t* data = labels.data_ptr<int64_t>();
  const int64_t length = labels.size(1);
  for (int64_t row = 0; row < labels.size(0); ++row) {
    const int64_t* first = data + row * length;
    counts.num_label_tokens += length - std::count(first, first + length, ignore_index);
    int64_t used = length;
    while (used > 0 && first[used - 1] == ignore_index) --used;
    counts.num_tokens += used;
  }
  return counts;
}

TrainStep::TrainStep(distributed::Engine& engine, optim::Optimizer& optimizer,
                     optim::LrSchedule schedule, LossFunction loss, const TrainStepOptions& options)
    : TrainStep(engine, optimizer, std::move(schedule), make_plain_pass(engine, std::move(loss)),
                options) {}

TrainStep::TrainStep(distributed::Engine& engine, optim::Optimizer& optimizer,
                     optim::LrSchedule schedule, std::unique_ptr<BatchPass> pass,
                     const TrainStepOptions& options)
    : engine_(engine),
      optimizer_(optimizer),
      schedule_(std::move(schedule)),
      pass_(std::move(pass)),
      options_(options) {
  if (options_.spike_multiple) norms_.emplace(*options_.spike_multiple);
  if (options_.graph != nullptr) engine_.keep_gradients();
}

StepResult TrainStep::run(const std::vector<tensor::Batch>& group, int64_t step) {
  const comm::ProcessGroup& ranks = engine_.group();
  pass_->begin_step(group, step);
  tensor::TokenCounts local;
  for (const tensor::Batch& batch : group) {
    const tensor::TokenCounts counts = pass_->count(batch, options_.ignore_index);
    local.num_tokens += counts.num_tokens;
    local.num_label_tokens += counts.num_label_tokens;
  }
  const comm::ProcessGroup& readers = data_ranks();
  const std::vector<double> counts = comm::sum_over(
      readers,
      {static_cast<double>(local.num_tokens), static_cast<double>(local.num_label_tokens)});
  const double begin = monotonic_seconds();
  StepResult result;
  result.counts = {static_cast<int64_t>(counts[0]), static_cast<int64_t>(counts[1])};

  // The reduction averages over ranks, so dividing by labels / ranks gives the mean over all ranks'
  // labels. A step without labels has zero gradients.
  const auto num_ranks = static_cast<double>(ranks.size());
  const double divisor = std::max(counts[1], 1.0) / num_ranks;
  const double local_loss = options_.graph == nullptr ? compute(group, divisor, step)
                                                      : compute_alike(group, divisor, step);
  result.loss = comm::sum_over(ranks, local_loss);
  check_finite(local_loss, result.loss, step);
  const double computed = now();
  result.forward_backward_seconds = computed - begin;
  double coefficient = 1.0;
  if (options_.max_grad_norm) {
    result.grad_norm = engine_.gradient_norm();
    check_gradients(result, step);
    if (options_.look_at_gradients) options_.look_at_gradients(engine_, step);
    coefficient = std::min(1.0, *options_.max_grad_norm / (result.grad_norm + 1e-6));
  }
  if (!skips(result)) {
    const int64_t done = optimizer_.num_steps();
    optimizer_.step({schedule_.lr(done), schedule_.weight_decay(done), coefficient});
    engine_.parameters_changed();
  }
  engine_.zero_gradients();
  result.update_seconds = now() - computed;
  result.lr = lr();
  return result;
}

double TrainStep::train(const std::vector<tensor::Batch>& group, double divisor, int64_t step) {
  const comm::ProcessGroup& readers = data_ranks();
  double loss = 0;
  for (size_t i = 0; i < group.size(); ++i) {
    const auto micro_batch = static_cast<int64_t>(i) * readers.size() + readers.rank();
    const BatchPlace place{step, micro_batch, i + 1 == group.size()};
    loss += pass_->train(group[i], divisor, place) / engine_.group().size();
  }
  engine_.reduce_gradients();
  return loss;
}

double TrainStep::compute(const std::vector<tensor::Batch>& group, double divisor, int64_t step) {
  const double loss = train(group, divisor, step);
  pass_->finish(divisor);
  return pass_->known_everywhere(loss);
}

double TrainStep::compute_alike(const std::vector<tensor::Batch>& group, double divisor,
                                int64_t step) {
  double loss = 0;
  bool is_undivided = false;
  try {
    is_undivided = options_.graph->run(group, [&](const auto& batches, bool is_recorded) {
      loss = train(batches, is_recorded ? 1.0 : divisor, step);
    });
  } catch (const NotRecorded& error) {
    options_.graph.reset();
    if (options_.reporter != nullptr) {
      options_.reporter->warning(cat("a step cannot be recorded: ", error.what(),
                                     "; all steps are launched kernel by kernel"));
    }
    return compute(group, divisor, step);
  }
  if (!is_undivided) {
    pass_->finish(divisor);
    return pass_->known_everywhere(loss);
  }
  divide_gradients(engine_, divisor);
  return pass_->known_everywhere(0) / divisor;
}

bool TrainStep::skips(StepResult& result) {
  if (!norms_) return false;
  const bool is_finite = std::isfinite(result.loss) && std::isfinite(result.grad_norm);
  result.is_skipped = !is_finite || norms_->is_spike(result.grad_norm);
  if (result.is_skipped) result.usual_norm = norms_->usual();
  norms_->add(result.grad_norm);
  return result.is_skipped;
}

double TrainStep::now() const {
  if (options_.synchronize) options_.synchronize();
  return monotonic_seconds();
}

const comm::ProcessGroup& TrainStep::data_ranks() const {
  return options_.data_ranks ? *options_.data_ranks : engine_.group();
}

void TrainStep::check_finite(double local_loss, double loss, int64_t step) const {
  if (!options_.stops_on_non_finite || norms_ || std::isfinite(loss)) return;
  const comm::ProcessGroup& ranks = engine_.group();
  std::vector<double> per_rank(static_cast<size_t>(ranks.size()), 0.0);
  per_rank[static_cast<size_t>(ranks.rank())] = std::isfinite(local_loss) ? 0.0 : 1.0;
  per_rank = comm::sum_over(ranks, std::move(per_rank));
  std::vector<int64_t> bad;
  for (size_t rank = 0; rank < per_rank.size(); ++rank) {
    // A replica's ranks are consecutive and compute the same loss.
    for (int i = 0; per_rank[rank] > 0 && i < options_.ranks_per_replica; ++i) {
      bad.push_back(options_.first_loss_rank +
                    static_cast<int64_t>(rank) * options_.ranks_per_replica + i);
    }
  }
  const std::vector<std::string> names = engine_.non_finite(distributed::ValuesOf::kParameters);
  const std::string state =
      names.empty() ? ""
                    : cat(". Parameters are not finite in ", join_first(names, kNamed),
                          ": the last update made them so, or they were when the run began");
  throw NonFiniteError(cat("step ", step, ": the loss is ", name_of(loss), " (non-finite on rank ",
                           join(bad),
                           "); nothing was updated. Lower the learning rate, check the data, or "
                           "train in float32",
                           state));
}

void TrainStep::check_gradients(const StepResult& result, int64_t step) const {
  if (norms_ || std::isfinite(result.grad_norm)) return;
  const bool is_stopped_by_strategy =
      engine_.gradient_check() == distributed::GradientCheck::kNonFinite;
  if (!options_.stops_on_non_finite && !is_stopped_by_strategy) return;
  const std::vector<std::string> names = engine_.non_finite(distributed::ValuesOf::kGradients);
  const std::string where =
      names.empty() ? "" : cat(" (not finite in ", join_first(names, kNamed), ")");
  throw NonFiniteError(cat("step ", step, ": the gradient norm is ", name_of(result.grad_norm),
                           where, " while the loss is ", name_of(result.loss),
                           "; nothing was updated. Lower the learning rate, check the data, or "
                           "train in float32"));
}

void TrainStep::drop_recorded_step() {
  if (options_.graph != nullptr) options_.graph->drop();
}

TrainStep::Evaluation TrainStep::evaluate(const std::function<bool(tensor::Batch&)>& next_batch,
                                          int64_t step) {
  drop_recorded_step();
  at::NoGradGuard no_grad;
  pass_->begin_evaluation();
  double loss_sum = 0;
  double num_labels = 0;
  tensor::Batch batch;
  for (int64_t i = 0; next_batch(batch); ++i) {
    pass_->begin_validation(batch, step);
    loss_sum += pass_->evaluate(batch, i);
    num_labels += static_cast<double>(pass_->count(batch, options_.ignore_index).num_label_tokens);
  }
  loss_sum = pass_->known_everywhere(loss_sum);
  loss_sum = comm::sum_over(engine_.group(), loss_sum);
  num_labels = comm::sum_over(data_ranks(), num_labels);
  return {loss_sum / std::max(num_labels, 1e-8), static_cast<int64_t>(num_labels)};
}

}  // namespace automodel::training
