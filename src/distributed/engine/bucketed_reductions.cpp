#include "distributed/engine/bucketed_reductions.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "core/clock.h"
#include "core/error.h"
#include "distributed/autograd/when_differentiated.h"
#include "distributed/fsdp/flat_layout.h"
#include "nn/unit_hook.h"

namespace automodel::distributed {

/// The progress of a step's last backward, and the buckets under way.
struct BucketedReductions::State {
  struct Unit {
    int64_t num_forwards = 0;  // forwards that a backward will follow
    int64_t num_backwards = 0;
    bool is_done() const { return num_forwards > 0 && num_forwards == num_backwards; }
  };
  struct Bucket {
    at::Tensor gradients;
    size_t last_unit = 0;
    comm::Work work;
    double begin = 0;
  };

  State(comm::ProcessGroup ranks, size_t num_units, const Options& settings)
      : group(std::move(ranks)), options(settings), units(num_units) {}

  void start_next() {
    Bucket& bucket = buckets[num_started++];
    bucket.begin = monotonic_seconds();
    bucket.work = group.start_all_reduce(bucket.gradients, comm::ReduceOp::kAvg);
  }

  /// Called when a unit's backward has ended: starts the buckets whose units are all finished.
  void unit_done(size_t unit) {
    units[unit].num_backwards += 1;
    if (!is_last) return;
    while (num_done < units.size() && units[num_done].is_done()) ++num_done;
    while (num_started < buckets.size() && buckets[num_started].last_unit < num_done) start_next();
  }

  comm::ProcessGroup group;
  Options options;
  std::vector<Unit> units;
  std::vector<Bucket> buckets;  // in the order in which they are started
  bool is_last = false;
  size_t num_done = 0;  // number of finished units before the first unfinished one
  size_t num_started = 0;
};

class BucketedReductions::ReportsBackward final : public nn::UnitBehavior {
 public:
  ReportsBackward(std::shared_ptr<State> state, size_t unit)
      : state_(std::move(state)), unit_(unit), ended_([this] { state_->unit_done(unit_); }) {}

  nn::TensorList run(const nn::TensorList& inputs, const nn::UnitBody& body) override {
    if (!at::GradMode::is_enabled()) return body(inputs);
    AM_CHECK(!state_->is_last || unit_ >= state_->num_done,
             "a forward follows a backward whose gradients are being averaged");
    state_->units[unit_].num_forwards += 1;
    return body(when_differentiated(inputs, ended_));
  }

 private:
  std::shared_ptr<State> state_;
  size_t unit_;
  std::function<void()> ended_;  // autograd keeps its address
};

BucketedReductions::BucketedReductions(comm::ProcessGroup group, size_t num_units,
                                       const Options& options)
    : state_(std::make_shared<State>(std::move(group), num_units, options)) {}

BucketedReductions::~BucketedReductions() = default;

void BucketedReductions::add(const at::Tensor& gradients, const std::vector<GradientRun>& runs) {
  AM_CHECK(!runs.empty() && runs.back().end == gradients.numel());
  const Options& options = state_->options;
  for (const Bucket& cut :
       make_buckets(gradients.numel(), static_cast<int64_t>(gradients.element_size()),
                    options.first_bucket_bytes, options.bucket_bytes)) {
    const auto last = std::find_if(runs.begin(), runs.end(),
                                   [&](const GradientRun& run) { return run.end >= cut.end; });
    State::Bucket bucket;
    bucket.gradients = gradients.narrow(0, cut.begin, cut.end - cut.begin);
    bucket.last_unit = last->unit;
    state_->buckets.push_back(std::move(bucket));
  }
  std::stable_sort(
      state_->buckets.begin(), state_->buckets.end(),
      [](const auto& one, const auto& other) { return one.last_unit < other.last_unit; });
}

void BucketedReductions::watch(torch::nn::Module& module, size_t unit) {
  if (state_->group.size() == 1) return;
  if (auto* hooked = dynamic_cast<nn::HookedModule*>(&module)) {
    hooked->unit_hook().install(std::make_unique<ReportsBackward>(state_, unit));
  }
}

void BucketedReductions::begin_micro_batch(bool is_last) {
  state_->is_last = is_last;
  state_->num_done = 0;
  for (State::Unit& unit : state_->units) unit = {};
}

void BucketedReductions::prepare_for_backward() {
  begin_micro_batch(true);
  for (State::Unit& unit : state_->units) unit.num_forwards = 1;
}

void BucketedReductions::start() {
  State& state = *state_;
  state.is_last = false;
  if (state.group.size() == 1) return;
  while (state.num_started < state.buckets.size()) state.start_next();
}

void BucketedReductions::finish() {
  State& state = *state_;
  start();
  if (state.group.size() == 1) return;
  for (State::Bucket& bucket : state.buckets) {
    bucket.work.wait();
    bucket.work = {};
    if (state.options.trace == nullptr) continue;
    state.options.trace->record({cat("all_reduce ", format_bytes(bucket.gradients.nbytes())),
                                 "comm", bucket.begin, monotonic_seconds(), state.group.rank()});
  }
  state.num_started = 0;
}

}  // namespace automodel::distributed
