// A unit's life: gathering, forward, backward, reduction.
#include "distributed/fsdp/fully_shard.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/graph_task.h>

#include <algorithm>

#include "core/clock.h"
#include "core/error.h"
#include "distributed/autograd/when_differentiated.h"
#include "distributed/fsdp/fully_shard_state.h"
#include "distributed/groups/sharding_groups.h"

namespace automodel::distributed {

namespace {

nn::TensorList cast_floating(const nn::TensorList& tensors, std::optional<at::ScalarType> dtype) {
  if (!dtype) return tensors;
  nn::TensorList out;
  for (const at::Tensor& tensor : tensors) {
    out.push_back(tensor.is_floating_point() ? tensor.to(*dtype) : tensor);
  }
  return out;
}

}  // namespace

bool FSDPModule::is_unsharded() const {
  return std::all_of(flats_.begin(), flats_.end(), [](const Flat& flat) {
    return flat.gathered.is_there() && !flat.is_stale && !flat.gathering;
  });
}

void FSDPModule::start_unshard() {
  at::NoGradGuard no_grad;
  bool is_started = false;
  for (Flat& flat : flats_) {
    const bool is_current = flat.gathered.is_there() && !flat.is_stale;
    if (is_current || flat.gathering) continue;
    if (!std::exchange(is_started, true)) record(UnitTransition::kGather);
    flat.gathered.allocate();
    const at::Tensor& full = flat.gathered.flat();
    const at::Tensor& values = flat.what.values;
    flat.gather_begin = monotonic_seconds();
    const auto start = [&] {
      flat.gathering = groups_.shard.start_all_gather(full, flat.gather_input);
    };
    flat.gather_input = options_.offload_policy ? tree_->copies.to_device(values, full.options())
                                                : values.to(full.options());
    if (!flat.gather_input.is_same(values)) {
      tree_->counts.copied_bytes += static_cast<int64_t>(flat.gather_input.nbytes());
    }
    if (options_.offload_policy) {
      flat.gather_started = tree_->copies.start_behind(start);
    } else {
      start();
    }
  }
}

/// Makes the current stream wait for a gather.
void FSDPModule::finish_gather(Flat& flat) {
  flat.gathering->wait();
  flat.gathering.reset();
  if (options_.offload_policy) {
    tree_->copies.wait(flat.gather_started);  // a group of one gathers in the copies' stream
    tree_->copies.release(flat.gather_input);
  }
  flat.gather_input.reset();
}

void FSDPModule::unshard() {
  start_unshard();
  bool is_gathered = false;
  for (Flat& flat : flats_) {
    if (!flat.gathering) continue;
    finish_gather(flat);
    flat.is_stale = false;
    is_gathered = true;
    const auto bytes = static_cast<int64_t>(flat.gathered.bytes());
    tree_->counts.gathers += 1;
    tree_->counts.gathered_bytes += bytes;
    if (options_.trace != nullptr && groups_.shard.size() > 1) {
      options_.trace->record({cat("gather ", name_.empty() ? "root" : name_), "comm",
                              flat.gather_begin, monotonic_seconds(), groups_.all.rank()});
    }
  }
  if (is_gathered) record(UnitTransition::kUnsharded);
}

void FSDPModule::reshard() {
  if (options_.parameters == Placement::kReplicated) return;
  bool is_released = false;
  for (Flat& flat : flats_) {
    if (flat.gathering) finish_gather(flat);  // gathered ahead but not used
    is_released = is_released || flat.gathered.is_there();
    flat.gathered.release();
    flat.is_stale = true;
  }
  if (is_released) record(UnitTransition::kReshard);
}

void FSDPModule::prefetch(const std::vector<FSDPModule*>& modules) {
  for (FSDPModule* module : modules) module->start_unshard();
}

void FSDPModule::parameters_changed() {
  for (Flat& flat : flats_) flat.is_stale = true;
}

// ---- forward and backward -----------------------------------------------------------------------

bool FSDPModule::keeps_after_forward() const {
  return !reshards_after_forward_.value_or(tree_->root != this);
}

nn::TensorList FSDPModule::run(const nn::TensorList& inputs, const nn::UnitBody& body) {
  Tree& tree = *tree_;
  tree.end_failed_backward();
  const bool is_outermost = tree.forward_depth == 0 && !tree.is_in_backward;
  const bool has_backward = at::GradMode::is_enabled();
  if (has_backward) check_trained();
  start_unshard();
  prefetch(forward_prefetch_);
  unshard();
  record(UnitTransition::kForward);
  nn::TensorList in =
      cast_floating(inputs, options_.casts_inputs ? options_.param_dtype : std::nullopt);
  if (has_backward) {
    in = when_differentiated(in, after_backward_);
  }
  // A forward in backward is a recomputation; the block was counted in its first run, without a
  // graph.
  const bool has_later_backward = has_backward ? !tree.is_in_backward : tree.graph_depth > 0;
  if (has_later_backward) {
    for (Flat& flat : flats_) flat.num_open_forwards += 1;
  }
  // Only units below the root are recomputed: a forward without a graph directly in it is its own
  // pass.
  const int depth_of_graph = has_backward && tree.root != this ? 1 : 0;
  tree.forward_depth += 1;
  tree.graph_depth += depth_of_graph;
  nn::TensorList out;
  try {
    out = cast_floating(body(in), options_.output_dtype);
  } catch (...) {
    tree.forward_depth -= 1;
    tree.graph_depth -= depth_of_graph;
    throw;
  }
  tree.forward_depth -= 1;
  tree.graph_depth -= depth_of_graph;
  if (!is_held_ && (!has_backward || !keeps_after_forward())) reshard();
  if (!has_backward) {
    if (is_outermost) {
      for (FSDPModule* unit : tree.units) {
        if (!unit->is_held_) unit->reshard();  // frees units gathered ahead, too
      }
    }
    return out;
  }
  if (!tree.is_in_backward) tree.forward_order.push_back(this);
  return before_differentiated(std::move(out), [this, is_outermost] {
    tree_->is_in_backward = true;
    if (is_outermost && !std::exchange(tree_->is_sweep_queued, true)) {
      torch::autograd::Engine::get_default_engine().queue_callback(
          [this] { root_post_backward(); });
    }
    pre_backward();
  });
}

void FSDPModule::pre_backward() {
  if (options_.gathers_in_backward) start_unshard();
  if (!backward_prefetch_.empty()) {
    prefetch(backward_prefetch_);
  } else if (options_.prefetches_implicitly.value_or(!options_.device.is_cpu())) {
    auto& order = tree_->forward_order;
    const auto last = std::find(order.rbegin(), order.rend(), this);
    if (last != order.rend() && std::next(last) != order.rend() &&
        (*std::next(last))->options_.gathers_in_backward) {
      (*std::next(last))->start_unshard();
    }
    if (last != order.rend()) order.erase(std::next(last).base(), order.end());
  }
  if (options_.gathers_in_backward) unshard();
  prepare_gradients();
  record(UnitTransition::kBackward);
}

/// Throws for a parameter that was frozen, or is to be trained, since its memory was made.
void FSDPModule::check_trained() const {
  for (const Flat& flat : flats_) {
    for (size_t i = 0; i < flat.parameters.size(); ++i) {
      if (flat.parameters[i].requires_grad() == flat.what.is_trained) continue;
      throw UserError(cat("parameter ", flat.what.layout.entries[i].parameter, " of this ", type_,
                          flat.what.is_trained ? " was frozen" : " was to be trained",
                          " after fully_shard, which settles that: set requires_grad before"));
    }
  }
}

/// Binds gradients again that torch::nn::Module::zero_grad() has taken off.
void FSDPModule::bind_gradients(Flat& flat) {
  for (size_t i = 0; i < flat.parameters.size(); ++i) {
    at::Tensor& gradient = flat.parameters[i].mutable_grad();
    if (gradient.defined()) continue;
    gradient = alias(flat.gathered_gradient.flat(), flat.what.layout.entries[i].offset,
                     flat.parameters[i].sizes());
  }
}

void FSDPModule::prepare_gradients() {
  for (Flat& flat : flats_) {
    if (!flat.what.is_trained) continue;
    if (tree_->pending && tree_->pending->flat == &flat) tree_->finish_reduction();
    flat.gathered_gradient.allocate_zeroed();
    bind_gradients(flat);
    flat.has_new_gradient = true;
  }
}

void FSDPModule::post_backward() {
  if (reshards_after_backward_ && !is_held_) reshard();
  at::NoGradGuard no_grad;
  for (Flat& flat : flats_) {
    if (!flat.what.is_trained || !flat.has_new_gradient) continue;
    // Whole gradients are averaged in place, so only once: after the last of several forwards.
    const bool is_whole = options_.gradients == Placement::kReplicated;
    if (is_whole && requires_sync_ && flat.num_open_forwards > 0) continue;
    if (requires_sync_) {
      reduce(flat);
    } else if (flat.accumulated.is_defined()) {
      stash(flat);
    }
  }
}

/// Adds the micro-batch's gradient to the sum of earlier ones, in the dtype of the reduction.
void FSDPModule::stash(Flat& flat) {
  if (!flat.gathered_gradient.is_there()) return;
  const bool is_first = !flat.accumulated.is_there();
  flat.accumulated.allocate();
  const at::Tensor& sum = flat.accumulated.flat();
  if (is_first) {
    sum.copy_(flat.gathered_gradient.flat());
  } else {
    sum.add_(flat.gathered_gradient.flat());
  }
  tree_->counts.copied_bytes += static_cast<int64_t>(sum.nbytes());
  flat.gathered_gradient.release();
}

void FSDPModule::reduce(Flat& flat) {
  Tree& tree = *tree_;
  tree.finish_reduction();
  if (flat.accumulated.is_defined()) stash(flat);
  Tree::Pending pending;
  pending.unit = this;
  pending.flat = &flat;
  pending.begin = monotonic_seconds();
  pending.sent = (flat.accumulated.is_defined() ? flat.accumulated : flat.gathered_gradient).flat();
  const at::Tensor& gradients = flat.what.gradients;
  const at::Tensor own = pending.sent.narrow(0, flat.what.range_begin, gradients.numel());
  const bool is_in_place = share_storage(gradients, pending.sent);
  const bool is_direct = is_in_place || (flat.is_clean && gradients.scalar_type() == flat.reduced &&
                                         gradients.device() == pending.sent.device());
  if (flat.own_gradient.is_defined()) {
    if (is_direct) {
      flat.own_gradient.allocate();
    } else {
      flat.own_gradient.allocate_zeroed();
    }
  }
  pending.sum = is_direct ? gradients : at::empty_like(own);
  if (options_.scaling == GradientScaling::kDivideThenSum) {
    pending.sent.mul_(1.0 / groups_.all.size());
  }
  const auto op =
      options_.scaling == GradientScaling::kAverage ? comm::ReduceOp::kAvg : comm::ReduceOp::kSum;
  record(UnitTransition::kReduce);
  pending.work = groups_.shard.start_reduce_scatter(pending.sum, pending.sent, op);
  flat.has_new_gradient = false;
  tree.pending = std::move(pending);
  if (!options_.overlaps_reductions) tree.finish_reduction();
}

/// Adds a reduction's result to the rank's range of gradients.
void FSDPModule::Tree::add_reduced(Flat& flat, const at::Tensor& sum) {
  at::Tensor& gradients = flat.what.gradients;
  if (gradients.device() == sum.device()) {
    gradients.add_(sum);
  } else if (flat.is_clean) {
    copies.to_host(gradients, sum);  // root_post_backward() waits for it
  } else {
    const at::Tensor arrived = at::empty_like(gradients);
    copies.to_host(arrived, sum);
    copies.synchronize();
    gradients.add_(arrived);
  }
}

void FSDPModule::Tree::finish_reduction() {
  if (!pending) return;
  at::NoGradGuard no_grad;
  Pending done = std::move(*pending);
  pending.reset();
  Flat& flat = *done.flat;
  const ShardingOptions& options = done.unit->options_;
  const ShardingGroups& groups = done.unit->groups_;
  done.work.wait();
  const double end_of_scatter = monotonic_seconds();
  const bool is_average = options.scaling == GradientScaling::kAverage;
  if (groups.replicate.size() > 1) {
    groups.replicate.all_reduce(done.sum, is_average ? comm::ReduceOp::kAvg : comm::ReduceOp::kSum);
  }
  const double end_of_reduction = monotonic_seconds();
  const int num_averaged = options.num_averaged.value_or(groups.all.size());
  if (options.scaling == GradientScaling::kSumThenDivide && num_averaged > 1) {
    done.sum.mul_(1.0 / num_averaged);
  }
  if (!done.sum.is_same(flat.what.gradients)) {
    add_reduced(flat, done.sum);
    counts.copied_bytes += static_cast<int64_t>(flat.what.gradients.nbytes());
  }
  flat.is_clean = false;
  if (options.gradients == Placement::kSharded) {
    flat.gathered_gradient.release();
    if (flat.accumulated.is_defined()) flat.accumulated.release();
  }
  counts.reductions += 1;
  counts.reduced_bytes += static_cast<int64_t>(done.sent.nbytes());
  done.unit->record(UnitTransition::kReduced);
  if (options.trace == nullptr) return;
  const std::string name = done.unit->name_.empty() ? "root" : done.unit->name_;
  if (groups.shard.size() > 1) {
    options.trace->record(
        {cat("reduce_scatter ", name), "comm", done.begin, end_of_scatter, groups.all.rank()});
  }
  if (groups.replicate.size() > 1) {
    options.trace->record(
        {cat("all_reduce ", name), "comm", end_of_scatter, end_of_reduction, groups.all.rank()});
  }
}

void FSDPModule::root_post_backward() {
  Tree& tree = *tree_;
  for (FSDPModule* unit : tree.units) {
    for (Flat& flat : unit->flats_) flat.num_open_forwards = 0;
    unit->post_backward();
  }
  if (tree.is_last_backward) {
    tree.finish_reduction();
    tree.copies.synchronize();
    tree.forward_order.clear();
    for (FSDPModule* unit : tree.units) unit->allocate_missing_gradients();
  }
  tree.is_in_backward = false;
  tree.is_sweep_queued = false;
  tree.is_backward_of_weights = false;
}

void FSDPModule::Tree::end_failed_backward() {
  const bool is_under_way =
      is_backward_of_weights || torch::autograd::get_current_graph_task_id() >= 0;
  if (!is_in_backward || is_under_way) return;
  finish_reduction();
  copies.synchronize();
  forward_order.clear();
  for (FSDPModule* unit : units) {
    for (Flat& flat : unit->flats_) flat.num_open_forwards = 0;
    if (!unit->is_held_) unit->reshard();
  }
  is_in_backward = false;
  is_sweep_queued = false;
}

/// Gives the gradients memory if the step has not used this unit: zeros.
void FSDPModule::allocate_missing_gradients() {
  at::NoGradGuard no_grad;
  for (Flat& flat : flats_) {
    if (flat.own_gradient.is_defined()) flat.own_gradient.allocate_zeroed();
  }
}

void FSDPModule::begin_backward_of_weights() {
  tree_->is_in_backward = true;
  tree_->is_sweep_queued = true;  // no sweep: outputs may be passed several times
  tree_->is_backward_of_weights = true;
  for (FSDPModule* unit : tree_->units) {
    unit->unshard();
    unit->prepare_gradients();
  }
}

void FSDPModule::zero_gradients() {
  at::NoGradGuard no_grad;
  tree_->end_failed_backward();
  for (Flat& flat : flats_) {
    if (!flat.what.is_trained) continue;
    if (tree_->pending && tree_->pending->flat == &flat) tree_->finish_reduction();
    tree_->copies.synchronize();
    if (flat.own_gradient.is_defined()) {
      flat.own_gradient.release();
    } else {
      flat.what.gradients.zero_();
    }
    flat.is_clean = true;
    flat.has_new_gradient = false;
    for (FlatBuffer* buffer : {&flat.gathered_gradient, &flat.accumulated}) {
      if (!buffer->is_defined() || !buffer->is_there()) continue;
      if (options_.gradients == Placement::kReplicated) {
        buffer->flat().zero_();
      } else {
        buffer->release();
      }
    }
  }
}

}  // namespace automodel::distributed
