#include "distributed/fully_sharded.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include <cmath>
#include <functional>
#include <map>

#include "core/clock.h"
#include "core/error.h"
#include "distributed/flat_units.h"
#include "kernels/optimizer.h"
#include "tensor/dtype.h"

namespace automodel::distributed {

using tensor::FlatShard;

/// Memory of buffers that were released, for the next of the same size: blocks are alike, so a few
/// pieces serve all of them, and fresh pages cost more than the copying done in them.
class FullySharded::Pool final {
 public:
  at::DataPtr take(const at::Tensor& like) {
    auto& pieces = free_[static_cast<size_t>(like.numel()) * like.itemsize()];
    if (pieces.empty()) {
      const at::Tensor fresh = flat_zeros(like.numel(), like.scalar_type(), like.device());
      return fresh.storage().unsafeGetStorageImpl()->set_data_ptr(at::DataPtr());
    }
    at::DataPtr piece = std::move(pieces.back());
    pieces.pop_back();
    return piece;
  }

  void give(at::DataPtr piece, size_t bytes) {
    std::vector<at::DataPtr>& pieces = free_[bytes];
    if (pieces.size() < kKept) pieces.push_back(std::move(piece));
  }

 private:
  static constexpr size_t kKept = 2;
  std::map<size_t, std::vector<at::DataPtr>> free_;  // by bytes; an engine has one device
};

/// Flat memory that comes and goes below tensors that stay: their storage is emptied and refilled.
class FullySharded::Buffer final {
 public:
  Buffer() = default;
  Buffer(int64_t numel, at::ScalarType dtype, at::Device device, Pool& pool)
      : flat_(flat_zeros(numel, dtype, device)),
        bytes_(static_cast<size_t>(flat_.numel()) * flat_.itemsize()),
        pool_(&pool),
        is_there_(true) {}

  const at::Tensor& flat() const { return flat_; }
  bool is_there() const { return is_there_; }

  /// Memory with any contents.
  void allocate() {
    if (is_there_) return;
    c10::StorageImpl* storage = flat_.storage().unsafeGetStorageImpl();
    storage->set_data_ptr_noswap(pool_->take(flat_));
    storage->set_nbytes(bytes_);
    is_there_ = true;
  }

  void allocate_zeroed() {
    if (is_there_) return;
    allocate();
    flat_.zero_();
  }

  void release() {
    if (!is_there_) return;
    c10::StorageImpl* storage = flat_.storage().unsafeGetStorageImpl();
    pool_->give(storage->set_data_ptr(at::DataPtr(nullptr, flat_.device())), bytes_);
    storage->set_nbytes(0);
    is_there_ = false;
  }

 private:
  at::Tensor flat_;
  size_t bytes_ = 0;
  Pool* pool_ = nullptr;
  bool is_there_ = false;
};

/// Parameters of one unit, dtype and kind.
struct FullySharded::Flat {
  FlatShard values;     // this rank's range
  FlatShard gradients;  // the same; no buffer when not trained
  bool is_trained = false;
  Buffer gathered;           // all ranges, in the dtype of computation
  Buffer gathered_gradient;  // of the same layout
};

struct FullySharded::Unit {
  std::string name;  // "" for the root
  std::vector<Flat> flats;
  bool keeps_after_forward = false;  // of blocks
  std::function<void()> after_backward;
};

/// What a block's hook does.
class FullySharded::Behavior final : public nn::UnitBehavior {
 public:
  Behavior(FullySharded& engine, Unit& unit) : engine_(engine), unit_(unit) {}

  nn::TensorList run(const nn::TensorList& inputs, const nn::UnitBody& body) override {
    return engine_.run_unit(unit_, inputs, body);
  }

 private:
  FullySharded& engine_;
  Unit& unit_;
};

namespace {

using torch::autograd::AutogradContext;
using torch::autograd::tensor_list;

/// Calls an action when the last of several has reported.
struct Countdown : torch::CustomClassHolder {
  int64_t left = 0;
  const std::function<void()>* action = nullptr;
};

/// Passes a tensor on; its backward, which runs when all that was computed from the tensor has been
/// differentiated, reports to the countdown.
struct WhenDifferentiated : torch::autograd::Function<WhenDifferentiated> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& tensor,
                            const c10::intrusive_ptr<Countdown>& countdown) {
    context->saved_data["countdown"] = c10::IValue::make_capsule(countdown);
    return tensor.view_as(tensor);
  }

  static tensor_list backward(AutogradContext* context, tensor_list gradients) {
    const auto holder = context->saved_data["countdown"].toCapsule();
    auto& countdown = static_cast<Countdown&>(*holder);
    if (--countdown.left == 0) (*countdown.action)();
    return {gradients[0], at::Tensor()};
  }
};

/// The same tensors; `action` runs when everything computed from them has been differentiated.
nn::TensorList when_differentiated(const nn::TensorList& tensors,
                                   const std::function<void()>& action) {
  auto countdown = c10::make_intrusive<Countdown>();
  countdown->action = &action;
  nn::TensorList out;
  for (const at::Tensor& tensor : tensors) {
    if (!tensor.requires_grad()) {
      out.push_back(tensor);
      continue;
    }
    countdown->left += 1;
    out.push_back(WhenDifferentiated::apply(tensor, countdown));
  }
  return out;
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

FullyShardedOptions fully_sharded_options(const FSDP2Config& config, at::Device device) {
  const MixedPrecisionPolicy policy = config.mp_policy.value_or(MixedPrecisionPolicy{});
  const auto dtype = [](const std::optional<std::string>& name) -> std::optional<at::ScalarType> {
    if (!name) return std::nullopt;
    const auto parsed = tensor::parse_dtype(*name);
    if (!parsed) throw UserError(cat("distributed.mp_policy: unknown dtype '", *name, "'"));
    return parsed;
  };
  FullyShardedOptions options;
  options.device = device;
  options.param_dtype = dtype(policy.param_dtype);
  options.reduce_dtype = dtype(policy.reduce_dtype);
  options.output_dtype = dtype(policy.output_dtype);
  options.casts_inputs = policy.cast_forward_inputs;
  options.reshards_after_forward = config.reshard_after_forward;
  options.defers_gradients = config.defer_fsdp_grad_sync;
  return options;
}

FullyShardedOptions fully_sharded_options(const MegatronFSDPConfig& config, at::Device device) {
  FullyShardedOptions options;
  options.device = device;
  if (config.grad_reduce_in_fp32) options.reduce_dtype = at::kFloat;
  options.reshards_after_forward = true;
  return options;
}

FullySharded::FullySharded(torch::nn::Module& module, const nn::ParallelPlan& plan,
                           const tensor::KeyMap& keys, const ShardingGroups& groups,
                           const FullyShardedOptions& options)
    : Engine(groups.all),
      shard_(groups.shard),
      replicate_(groups.replicate),
      options_(options),
      pool_(std::make_unique<Pool>()) {
  add_units(module, plan, keys);
  install_hooks(module);
}

FullySharded::~FullySharded() = default;

HeldPart FullySharded::held_part() const {
  return {shard_.rank(), shard_.size(), replicate_.rank() == 0};
}

void FullySharded::add_units(torch::nn::Module& module, const nn::ParallelPlan& plan,
                             const tensor::KeyMap& keys) {
  const int64_t ranks = shard_.size();
  const int64_t rank = shard_.rank();
  at::NoGradGuard no_grad;
  for (FlatGroup& group : group_parameters(module, plan)) {
    Unit& unit = unit_named(group.unit);
    const FlatLayout layout =
        group.layout(static_cast<int64_t>(c10::elementSize(group.dtype)), ranks);
    const int64_t range = layout.range_numel(ranks);
    const at::ScalarType computed = options_.param_dtype.value_or(group.dtype);
    Flat flat;
    flat.is_trained = group.is_trained;
    flat.values = {group.unit, flat_zeros(range, group.dtype, options_.device),
                   segments_in(layout, keys, rank * range, (rank + 1) * range)};
    flat.gathered = Buffer(layout.numel, computed, options_.device, *pool_);
    if (group.is_trained) {
      flat.gradients = {group.unit, flat_zeros(range, group.dtype, options_.device),
                        flat.values.segments};
      flat.gathered_gradient = Buffer(layout.numel, computed, options_.device, *pool_);
    }
    for (size_t i = 0; i < group.parameters.size(); ++i) {
      at::Tensor parameter = group.parameters[i].second;
      const std::vector<int64_t> sizes = parameter.sizes().vec();
      const int64_t offset = layout.entries[i].offset;
      parameter.set_data(alias(flat.gathered.flat(), offset, sizes));
      if (group.is_trained) {
        parameter.mutable_grad() = alias(flat.gathered_gradient.flat(), offset, sizes);
      }
    }
    flat.gathered.release();
    flat.gathered_gradient.release();
    num_parameters_ += group.numel();
    parameters_.push_back(flat.values);
    if (group.is_trained) {
      num_trained_parameters_ += group.numel();
      trained_.push_back(flat.values);
      gradients_.push_back(flat.gradients);
    }
    unit.flats.push_back(std::move(flat));
  }
}

FullySharded::Unit& FullySharded::unit_named(const std::string& name) {
  for (const auto& unit : units_) {
    if (unit->name == name) return *unit;
  }
  units_.push_back(std::make_unique<Unit>());
  Unit& unit = *units_.back();
  unit.name = name;
  unit.after_backward = [this, &unit] { finish_backward(unit); };
  return unit;
}

void FullySharded::install_hooks(torch::nn::Module& module) {
  Unit* last = nullptr;
  for (const auto& unit : units_) {
    if (unit->name.empty()) continue;  // the root has no hook: a micro-batch's begin and end do it
    last = unit.get();
    unit->keeps_after_forward = options_.reshards_after_forward == false;
    auto* hooked = dynamic_cast<nn::HookedModule*>(&module_at(module, unit->name));
    AM_CHECK(hooked != nullptr, unit->name, " is a unit but its forward goes through no UnitHook");
    hooked->unit_hook().install(std::make_unique<Behavior>(*this, *unit));
  }
  if (last != nullptr && !options_.reshards_after_forward) last->keeps_after_forward = true;
}

nn::TensorList FullySharded::run_unit(Unit& unit, const nn::TensorList& inputs,
                                      const nn::UnitBody& body) {
  gather(unit);
  nn::TensorList in =
      cast_floating(inputs, options_.casts_inputs ? options_.param_dtype : std::nullopt);
  const bool has_backward = at::GradMode::is_enabled();
  if (has_backward) in = when_differentiated(in, unit.after_backward);
  nn::TensorList out = cast_floating(body(in), options_.output_dtype);
  if (has_backward) {
    for (const at::Tensor& tensor : out) {
      if (!tensor.requires_grad()) continue;
      tensor.register_hook([this, &unit](const at::Tensor&) {
        gather(unit);
        prepare_gradients(unit);
      });
    }
  }
  if (!has_backward || !unit.keeps_after_forward) release(unit);
  return out;
}

void FullySharded::gather(Unit& unit) {
  for (Flat& flat : unit.flats) {
    if (flat.gathered.is_there()) continue;
    const double begin = monotonic_seconds();
    flat.gathered.allocate();
    const at::Tensor& full = flat.gathered.flat();
    shard_.all_gather(full, flat.values.buffer.to(full.scalar_type()));
    counts_.gathers += 1;
    counts_.gathered_bytes += static_cast<int64_t>(full.nbytes());
    trace("gather", unit, begin);
  }
}

void FullySharded::release(Unit& unit) {
  for (Flat& flat : unit.flats) flat.gathered.release();
}

void FullySharded::prepare_gradients(Unit& unit) {
  for (Flat& flat : unit.flats) {
    if (flat.is_trained) flat.gathered_gradient.allocate_zeroed();
  }
}

void FullySharded::finish_backward(Unit& unit) {
  release(unit);
  if (is_last_micro_batch_ || !options_.defers_gradients) reduce(unit);
}

void FullySharded::reduce(Unit& unit) {
  const auto ranks = static_cast<double>(group_.size());
  at::NoGradGuard no_grad;
  for (Flat& flat : unit.flats) {
    if (!flat.is_trained || !flat.gathered_gradient.is_there()) continue;
    const double begin = monotonic_seconds();
    const at::Tensor& full = flat.gathered_gradient.flat();
    const at::Tensor sent = full.to(options_.reduce_dtype.value_or(full.scalar_type()));
    at::Tensor sum = at::empty({flat.gradients.buffer.numel()}, sent.options());
    shard_.reduce_scatter(sum, sent, comm::ReduceOp::kSum);
    if (replicate_.size() > 1) replicate_.all_reduce(sum, comm::ReduceOp::kSum);
    flat.gradients.buffer.add_(sum, 1.0 / ranks);
    flat.gathered_gradient.release();
    counts_.reductions += 1;
    counts_.reduced_bytes += static_cast<int64_t>(sent.nbytes());
    trace("reduce_scatter", unit, begin);
  }
}

void FullySharded::trace(const char* what, const Unit& unit, double begin) const {
  if (options_.trace == nullptr) return;
  const std::string name = cat(what, " ", unit.name.empty() ? "root" : unit.name);
  options_.trace->record({name, "comm", begin, monotonic_seconds(), group_.rank()});
}

void FullySharded::begin_micro_batch(bool is_last) {
  is_last_micro_batch_ = is_last;
  for (const auto& unit : units_) {
    if (!unit->name.empty()) continue;
    gather(*unit);
    if (at::GradMode::is_enabled()) prepare_gradients(*unit);
  }
}

void FullySharded::end_micro_batch() {
  // The root, and blocks whose inputs carry no gradient, end here.
  for (const auto& unit : units_) finish_backward(*unit);
}

void FullySharded::zero_gradients() {
  for (FlatShard& shard : gradients_) shard.buffer.zero_();
}

void FullySharded::reduce_gradients() {
  for (const auto& unit : units_) reduce(*unit);
}

double FullySharded::gradient_norm() const {
  double sum = 0;
  for (const FlatShard& shard : gradients_) sum += kernels::sum_of_squares(shard.buffer);
  at::Tensor total = at::tensor({sum}, at::TensorOptions().dtype(at::kDouble));
  shard_.all_reduce(total, comm::ReduceOp::kSum);  // replicas hold the same
  return std::sqrt(total.item<double>());
}

}  // namespace automodel::distributed
