#include "distributed/fully_shard.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/engine.h>

#include <algorithm>
#include <deque>
#include <set>

#include "core/clock.h"
#include "core/error.h"
#include "distributed/when_differentiated.h"

namespace automodel::distributed {

namespace {

constexpr size_t kKeptEvents = 4096;

const char* name_of(UnitTransition what) {
  switch (what) {
    case UnitTransition::kGather:
      return "gather";
    case UnitTransition::kUnsharded:
      return "unsharded";
    case UnitTransition::kForward:
      return "forward";
    case UnitTransition::kReshard:
      return "reshard";
    case UnitTransition::kBackward:
      return "backward";
    case UnitTransition::kReduce:
      return "reduce";
    case UnitTransition::kReduced:
      return "reduced";
  }
  return "";
}

nn::TensorList cast_floating(const nn::TensorList& tensors, std::optional<at::ScalarType> dtype) {
  if (!dtype) return tensors;
  nn::TensorList out;
  for (const at::Tensor& tensor : tensors) {
    out.push_back(tensor.is_floating_point() ? tensor.to(*dtype) : tensor);
  }
  return out;
}

}  // namespace

std::string UnitEvent::text() const {
  return cat(name_of(what), " ", unit.empty() ? "root" : unit);
}

/// Flat memory of the unit's parameters of one dtype and kind.
struct FSDPModule::Flat {
  UnitParameters what;
  std::vector<at::Tensor> parameters;  // the module's own
  at::ScalarType computed;             // of gathered parameters and their gradients
  at::ScalarType reduced;              // in which gradients are summed
  FlatBuffer gathered;                 // all ranges
  FlatBuffer gathered_gradient;        // of the same layout, which autograd adds into
  FlatBuffer accumulated;  // micro-batches' gradients in `reduced`, where that is another dtype
  bool is_stale = true;    // `gathered` lacks the latest values
  bool has_new_gradient = false;  // that was not reduced
  bool is_clean = true;           // `what.gradients` holds nothing yet
  std::optional<comm::Work> gathering;
  at::Tensor gather_input;
  double gather_begin = 0;
};

struct FSDPModule::Tree {
  /// A reduction under way.
  struct Pending {
    FSDPModule* unit = nullptr;
    Flat* flat = nullptr;
    at::Tensor sent;
    at::Tensor sum;
    comm::Work work;
    double begin = 0;
  };

  FSDPModule* root = nullptr;
  std::vector<FSDPModule*> units;
  FlatPool pool;
  ShardingCounts counts;
  std::deque<UnitEvent> events;
  std::vector<FSDPModule*> forward_order;
  std::optional<Pending> pending;
  int forward_depth = 0;
  bool is_last_backward = true;
  bool is_in_backward = false;
  bool is_sweep_queued = false;
  bool is_by_hand = false;

  void finish_reduction();
};

/// Sends a module's forward through its unit, which it owns.
class UnitForward final : public nn::UnitBehavior {
 public:
  explicit UnitForward(std::unique_ptr<FSDPModule> unit) : unit_(std::move(unit)) {}

  nn::TensorList run(const nn::TensorList& inputs, const nn::UnitBody& body) override {
    return unit_->run(inputs, body);
  }

  FSDPModule& unit() const { return *unit_; }

 private:
  std::unique_ptr<FSDPModule> unit_;
};

// ---- making units -------------------------------------------------------------------------------

/// Finds what a new unit takes and joins it with the units below into one tree.
class ModuleSharder final {
 public:
  ModuleSharder(torch::nn::Module& module, const ShardingGroups& groups,
                const ShardingOptions& options)
      : module_(module), unit_(new FSDPModule(module.name(), groups, options)) {
    unit_->tree_ = std::make_shared<FSDPModule::Tree>();
    unit_->tree_->root = unit_.get();
    unit_->tree_->units = {unit_.get()};
  }

  std::unique_ptr<FSDPModule> shard() {
    adopt_below(module_, "");
    collect(module_, "");
    unit_->take(group_parameters("", parameters_));
    return std::move(unit_);
  }

 private:
  void adopt_below(const torch::nn::Module& module, const std::string& prefix) {
    for (const auto& child : module.named_children()) {
      const std::string fqn = prefix + child.key();
      if (FSDPModule* below = fsdp_module(*child.value())) {
        below->name_ = fqn;
        below->tree_ = unit_->tree_;
        unit_->tree_->units.push_back(below);
        unit_->below_.push_back(below);
        for (const FSDPModule::Flat& flat : below->flats_) {
          for (const at::Tensor& parameter : flat.parameters) {
            taken_.insert(parameter.unsafeGetTensorImpl());
          }
        }
      }
      adopt_below(*child.value(), fqn + ".");
    }
  }

  void collect(const torch::nn::Module& module, const std::string& prefix) {
    for (const auto& item : module.named_parameters(false)) {
      const at::TensorImpl* impl = item.value().unsafeGetTensorImpl();
      if (taken_.contains(impl)) {
        throw UserError(cat("fully_shard: parameter ", prefix, item.key(), " of ", module_.name(),
                            " is shared with a unit below it; make both part of one unit"));
      }
      if (own_.insert(impl).second) parameters_.emplace_back(prefix + item.key(), item.value());
    }
    for (const auto& child : module.named_children()) {
      if (fsdp_module(*child.value()) == nullptr) {
        collect(*child.value(), cat(prefix, child.key(), "."));
      }
    }
  }

  torch::nn::Module& module_;
  std::unique_ptr<FSDPModule> unit_;
  std::set<const at::TensorImpl*> taken_;
  std::set<const at::TensorImpl*> own_;
  std::vector<NamedParameter> parameters_;
};

FSDPModule::FSDPModule(std::string type, const ShardingGroups& groups,
                       const ShardingOptions& options)
    : type_(std::move(type)),
      groups_(groups),
      options_(options),
      reshards_after_forward_(options.reshard_after_forward) {
  after_backward_ = [this] { post_backward(); };
}

FSDPModule::~FSDPModule() = default;

FSDPModule::Flat FSDPModule::make_flat(const FlatGroup& group) const {
  const auto ranks = static_cast<int64_t>(groups_.shard.size());
  const int64_t rank = groups_.shard.rank();
  const std::string absent =
      cat("the parameters of this ", type_, " (", group.parameters[0].first,
          ", ...) are sharded: its forward must go through its unit hook, or call unshard() first");
  Flat flat;
  UnitParameters& what = flat.what;
  what.layout = group.layout(static_cast<int64_t>(c10::elementSize(group.dtype)), ranks);
  what.numel = group.numel();
  const int64_t range = what.layout.range_numel(ranks);
  what.range_begin = rank * range;
  what.range_end = what.range_begin + range;
  what.is_trained = group.is_trained;
  flat.computed = options_.param_dtype.value_or(group.dtype);
  flat.reduced = options_.reduce_dtype.value_or(flat.computed);
  const at::Device resting = options_.offload_policy ? at::Device(at::kCPU) : options_.device;
  const auto whole = [&](at::ScalarType dtype) {
    return FlatBuffer(what.layout.numel, dtype, options_.device, absent);
  };
  const auto own_range = [&](const FlatBuffer& buffer) {
    return buffer.flat().narrow(0, what.range_begin, range);
  };
  const at::ScalarType main = options_.main_dtype.value_or(group.dtype);
  flat.gathered = whole(flat.computed);
  const bool is_in_place = options_.parameters == Placement::kReplicated && flat.computed == main &&
                           resting == options_.device;
  what.values = is_in_place ? own_range(flat.gathered) : flat_zeros(range, main, resting);
  if (group.is_trained) {
    const at::ScalarType dtype = options_.gradient_dtype.value_or(main);
    flat.gathered_gradient = whole(flat.computed);
    if (flat.reduced != flat.computed) flat.accumulated = whole(flat.reduced);
    const FlatBuffer& last =
        flat.accumulated.is_defined() ? flat.accumulated : flat.gathered_gradient;
    const bool is_kept = options_.gradients == Placement::kReplicated &&
                         last.flat().scalar_type() == dtype && resting == options_.device;
    what.gradients = is_kept ? own_range(last) : flat_zeros(range, dtype, resting);
  }
  return flat;
}

void FSDPModule::take(std::vector<FlatGroup> groups) {
  at::NoGradGuard no_grad;
  for (const FlatGroup& group : groups) {
    Flat flat = make_flat(group);
    for (size_t i = 0; i < group.parameters.size(); ++i) {
      at::Tensor parameter = group.parameters[i].second;
      const std::vector<int64_t> sizes = parameter.sizes().vec();
      const int64_t offset = flat.what.layout.entries[i].offset;
      const int64_t begin = std::max(offset, flat.what.range_begin);
      const int64_t end = std::min(offset + parameter.numel(), flat.what.range_end);
      if (begin < end && !tensor::is_placeholder(parameter)) {
        const at::Tensor kept = parameter.detach().reshape({-1});
        flat.what.values.narrow(0, begin - flat.what.range_begin, end - begin)
            .copy_(kept.narrow(0, begin - offset, end - begin));
      }
      parameter.set_data(alias(flat.gathered.flat(), offset, sizes));
      if (flat.what.is_trained) {
        parameter.mutable_grad() = alias(flat.gathered_gradient.flat(), offset, sizes);
      }
      flat.parameters.push_back(parameter);
    }
    FlatPool& pool = tree_->pool;
    const bool keeps_gradients = options_.gradients == Placement::kReplicated;
    if (options_.parameters == Placement::kSharded) flat.gathered.release(pool);
    if (flat.what.is_trained) {
      if (flat.accumulated.is_defined() || !keeps_gradients) flat.gathered_gradient.release(pool);
      if (flat.accumulated.is_defined() && !keeps_gradients) flat.accumulated.release(pool);
    }
    described_.push_back(flat.what);
    flats_.push_back(std::move(flat));
  }
}

FSDPModule* fsdp_module(const torch::nn::Module& module) {
  auto* hooked = dynamic_cast<nn::HookedModule*>(const_cast<torch::nn::Module*>(&module));
  if (hooked == nullptr) return nullptr;
  const auto* forward = hooked->unit_hook().find<UnitForward>();
  return forward == nullptr ? nullptr : &forward->unit();
}

FSDPModule& fully_shard(torch::nn::Module& module, const ShardingGroups& groups,
                        const ShardingOptions& options) {
  if (FSDPModule* unit = fsdp_module(module)) return *unit;
  auto* hooked = dynamic_cast<nn::HookedModule*>(&module);
  if (hooked == nullptr) {
    throw UserError(cat("fully_shard: ", module.name(),
                        " has no unit hook: derive it from nn::HookedModule and send its forward "
                        "through an nn::UnitHook"));
  }
  auto unit = ModuleSharder(module, groups, options).shard();
  FSDPModule& made = *unit;
  hooked->unit_hook().install(std::make_unique<UnitForward>(std::move(unit)));
  return made;
}

std::unique_ptr<FSDPModule> fully_shard_root(torch::nn::Module& module,
                                             const ShardingGroups& groups,
                                             const ShardingOptions& options) {
  return ModuleSharder(module, groups, options).shard();
}

// ---- gathering ----------------------------------------------------------------------------------

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
    flat.gathered.allocate(tree_->pool);
    const at::Tensor& full = flat.gathered.flat();
    const at::Tensor& values = flat.what.values;
    flat.gather_begin = monotonic_seconds();
    flat.gather_input = values.to(full.options());
    if (!flat.gather_input.is_same(values)) {
      tree_->counts.copied_bytes += static_cast<int64_t>(flat.gather_input.nbytes());
    }
    flat.gathering = groups_.shard.start_all_gather(full, flat.gather_input);
  }
}

void FSDPModule::unshard() {
  start_unshard();
  bool is_gathered = false;
  for (Flat& flat : flats_) {
    if (!flat.gathering) continue;
    flat.gathering->wait();
    flat.gathering.reset();
    flat.gather_input.reset();
    flat.is_stale = false;
    is_gathered = true;
    const auto bytes = static_cast<int64_t>(flat.gathered.bytes());
    tree_->counts.gathers += 1;
    tree_->counts.gathered_bytes += bytes;
    if (options_.trace != nullptr) {
      options_.trace->record({cat("gather ", name_.empty() ? "root" : name_), "comm",
                              flat.gather_begin, monotonic_seconds(), groups_.all.rank()});
    }
  }
  if (is_gathered) record(UnitTransition::kUnsharded);
}

void FSDPModule::release() {
  if (options_.parameters == Placement::kReplicated) return;
  bool is_released = false;
  for (Flat& flat : flats_) {
    if (flat.gathering) {  // gathered ahead and not used
      flat.gathering->wait();
      flat.gathering.reset();
      flat.gather_input.reset();
    }
    is_released = is_released || flat.gathered.is_there();
    flat.gathered.release(tree_->pool);
    flat.is_stale = true;
  }
  if (is_released) record(UnitTransition::kReshard);
}

void FSDPModule::reshard() {
  release();
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
  const bool is_outermost = tree.forward_depth == 0 && !tree.is_by_hand && !tree.is_in_backward;
  const bool has_backward = at::GradMode::is_enabled();
  start_unshard();
  prefetch(forward_prefetch_);
  unshard();
  record(UnitTransition::kForward);
  nn::TensorList in =
      cast_floating(inputs, options_.casts_inputs ? options_.param_dtype : std::nullopt);
  if (has_backward) in = when_differentiated(in, after_backward_);
  tree.forward_depth += 1;
  nn::TensorList out;
  try {
    out = cast_floating(body(in), options_.output_dtype);
  } catch (...) {
    tree.forward_depth -= 1;
    throw;
  }
  tree.forward_depth -= 1;
  if (!has_backward || !keeps_after_forward()) release();
  if (!has_backward) {
    if (is_outermost) {
      for (FSDPModule* unit : tree.units) unit->release();  // also what was gathered ahead
    }
    return out;
  }
  if (!tree.is_in_backward) tree.forward_order.push_back(this);
  for (const at::Tensor& tensor : out) {
    if (!tensor.requires_grad()) continue;
    tensor.register_hook([this, is_outermost](const at::Tensor&) {
      tree_->is_in_backward = true;
      if (is_outermost && !std::exchange(tree_->is_sweep_queued, true)) {
        torch::autograd::Engine::get_default_engine().queue_callback(
            [this] { root_post_backward(); });
      }
      pre_backward();
    });
  }
  return out;
}

void FSDPModule::pre_backward() {
  start_unshard();
  if (!backward_prefetch_.empty()) {
    prefetch(backward_prefetch_);
  } else if (options_.prefetches_implicitly.value_or(!options_.device.is_cpu())) {
    auto& order = tree_->forward_order;
    const auto last = std::find(order.rbegin(), order.rend(), this);
    if (last != order.rend() && std::next(last) != order.rend())
      (*std::next(last))->start_unshard();
    if (last != order.rend()) order.erase(std::next(last).base(), order.end());
  }
  unshard();
  prepare_gradients();
  record(UnitTransition::kBackward);
}

void FSDPModule::prepare_gradients() {
  for (Flat& flat : flats_) {
    if (!flat.what.is_trained) continue;
    if (tree_->pending && tree_->pending->flat == &flat) tree_->finish_reduction();
    flat.gathered_gradient.allocate_zeroed(tree_->pool);
    flat.has_new_gradient = true;
  }
}

void FSDPModule::post_backward() {
  if (reshards_after_backward_) release();
  at::NoGradGuard no_grad;
  for (Flat& flat : flats_) {
    if (!flat.what.is_trained || !flat.has_new_gradient) continue;
    if (requires_sync_) {
      reduce(flat);
    } else if (flat.accumulated.is_defined()) {
      stash(flat);
    }
  }
}

/// Adds the micro-batch's gradient to those before, in the dtype of the reduction.
void FSDPModule::stash(Flat& flat) {
  if (!flat.gathered_gradient.is_there()) return;
  const bool is_first = !flat.accumulated.is_there();
  flat.accumulated.allocate(tree_->pool);
  const at::Tensor& sum = flat.accumulated.flat();
  if (is_first) {
    sum.copy_(flat.gathered_gradient.flat());
  } else {
    sum.add_(flat.gathered_gradient.flat());
  }
  tree_->counts.copied_bytes += static_cast<int64_t>(sum.nbytes());
  flat.gathered_gradient.release(tree_->pool);
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
  const bool is_in_place = own.data_ptr() == gradients.data_ptr();
  const bool is_direct = is_in_place || (flat.is_clean && gradients.scalar_type() == flat.reduced &&
                                         gradients.device() == pending.sent.device());
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

void FSDPModule::Tree::finish_reduction() {
  if (!pending) return;
  at::NoGradGuard no_grad;
  Pending done = std::move(*pending);
  pending.reset();
  Flat& flat = *done.flat;
  const ShardingOptions& options = done.unit->options_;
  const ShardingGroups& groups = done.unit->groups_;
  done.work.wait();
  const bool is_average = options.scaling == GradientScaling::kAverage;
  if (groups.replicate.size() > 1) {
    groups.replicate.all_reduce(done.sum, is_average ? comm::ReduceOp::kAvg : comm::ReduceOp::kSum);
  }
  if (options.scaling == GradientScaling::kSumThenDivide && groups.all.size() > 1) {
    done.sum.mul_(1.0 / groups.all.size());
  }
  if (!done.sum.is_same(flat.what.gradients)) {
    flat.what.gradients.add_(done.sum.to(flat.what.gradients.device()));
    counts.copied_bytes += static_cast<int64_t>(flat.what.gradients.nbytes());
  }
  flat.is_clean = false;
  if (options.gradients == Placement::kSharded) {
    flat.gathered_gradient.release(pool);
    if (flat.accumulated.is_defined()) flat.accumulated.release(pool);
  }
  counts.reductions += 1;
  counts.reduced_bytes += static_cast<int64_t>(done.sent.nbytes());
  done.unit->record(UnitTransition::kReduced);
  if (options.trace != nullptr) {
    options.trace->record(
        {cat("reduce_scatter ", done.unit->name_.empty() ? "root" : done.unit->name_), "comm",
         done.begin, monotonic_seconds(), groups.all.rank()});
  }
}

void FSDPModule::root_post_backward() {
  Tree& tree = *tree_;
  for (FSDPModule* unit : tree.units) unit->post_backward();
  if (tree.is_last_backward) {
    tree.finish_reduction();
    tree.forward_order.clear();
  }
  tree.is_in_backward = false;
  tree.is_sweep_queued = false;
}

void FSDPModule::begin_by_hand() {
  tree_->is_by_hand = true;
  unshard();
  if (at::GradMode::is_enabled()) prepare_gradients();
}

void FSDPModule::end_by_hand() {
  root_post_backward();
  tree_->is_by_hand = false;
}

void FSDPModule::zero_gradients() {
  at::NoGradGuard no_grad;
  for (Flat& flat : flats_) {
    if (!flat.what.is_trained) continue;
    if (tree_->pending && tree_->pending->flat == &flat) tree_->finish_reduction();
    flat.what.gradients.zero_();
    flat.is_clean = true;
    flat.has_new_gradient = false;
    for (FlatBuffer* buffer : {&flat.gathered_gradient, &flat.accumulated}) {
      if (!buffer->is_defined() || !buffer->is_there()) continue;
      if (options_.gradients == Placement::kReplicated) {
        buffer->flat().zero_();
      } else {
        buffer->release(tree_->pool);
      }
    }
  }
}

// ---- switches and reports -----------------------------------------------------------------------

void FSDPModule::set_requires_gradient_sync(bool requires_sync, bool recurse) {
  requires_sync_ = requires_sync;
  if (!recurse) return;
  for (FSDPModule* unit : below_) unit->requires_sync_ = requires_sync;
}

void FSDPModule::set_reshard_after_backward(bool reshards, bool recurse) {
  reshards_after_backward_ = reshards;
  if (!recurse) return;
  for (FSDPModule* unit : below_) unit->reshards_after_backward_ = reshards;
}

void FSDPModule::set_reshard_after_forward(bool reshards, bool recurse) {
  reshards_after_forward_ = reshards;
  if (!recurse) return;
  for (FSDPModule* unit : below_) unit->reshards_after_forward_ = reshards;
}

void FSDPModule::set_is_last_backward(bool is_last) {
  tree_->is_last_backward = is_last;
}

bool FSDPModule::is_last_backward() const {
  return tree_->is_last_backward;
}

void FSDPModule::set_modules_to_forward_prefetch(std::vector<FSDPModule*> modules) {
  forward_prefetch_ = std::move(modules);
}

void FSDPModule::set_modules_to_backward_prefetch(std::vector<FSDPModule*> modules) {
  backward_prefetch_ = std::move(modules);
}

int64_t FSDPModule::resting_bytes() const {
  size_t bytes = 0;
  const auto add = [&](const at::Tensor& held, const FlatBuffer& whole) {
    const bool is_inside =
        whole.is_there() && held.defined() && held.storage().is_alias_of(whole.flat().storage());
    if (held.defined() && !is_inside) bytes += held.nbytes();
    if (whole.is_there()) bytes += whole.bytes();
  };
  for (const Flat& flat : flats_) {
    const bool is_accumulated = flat.accumulated.is_defined();
    add(flat.what.values, flat.gathered);
    add(flat.what.gradients, is_accumulated ? flat.accumulated : flat.gathered_gradient);
    if (is_accumulated && flat.gathered_gradient.is_there()) {
      bytes += flat.gathered_gradient.bytes();
    }
  }
  return static_cast<int64_t>(bytes);
}

std::vector<FSDPModule*> FSDPModule::tree_units() const {
  return tree_->units;
}

const ShardingCounts& FSDPModule::counts() const {
  tree_->counts.fresh_buffers = tree_->pool.num_made();
  return tree_->counts;
}

std::vector<UnitEvent> FSDPModule::events() const {
  return {tree_->events.begin(), tree_->events.end()};
}

void FSDPModule::clear_events() {
  tree_->events.clear();
}

void FSDPModule::record(UnitTransition what) {
  if (tree_->events.size() == kKeptEvents) tree_->events.pop_front();
  tree_->events.push_back({name_, what});
}

// ---- unsharded models ---------------------------------------------------------------------------

namespace {

void find_units(const torch::nn::Module& module, std::vector<FSDPModule*>& units) {
  if (FSDPModule* unit = fsdp_module(module)) units.push_back(unit);
  for (const auto& child : module.named_children()) find_units(*child.value(), units);
}

}  // namespace

UnshardedModel::UnshardedModel(torch::nn::Module& module) {
  find_units(module, units_);
  try {
    for (FSDPModule* unit : units_) unit->unshard();
  } catch (...) {
    for (FSDPModule* unit : units_) unit->reshard();
    throw;
  }
}

UnshardedModel::~UnshardedModel() {
  for (FSDPModule* unit : units_) unit->reshard();
}

void unshard_fsdp2_model(torch::nn::Module& module, const std::function<void()>& body) {
  const UnshardedModel unsharded(module);
  body();
}

}  // namespace automodel::distributed
