#include "optim/optimizer.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <cmath>
#include <optional>

#include "core/error.h"
#include "core/python_pattern.h"
#include "core/utf8.h"
#include "kernels/optimizer/optimizer_step.h"
#include "optim/state_buffer.h"

namespace automodel::optim {

namespace {

using tensor::FlatShard;

/// One kind of state beside each parameter.
struct StateKind {
  std::string name;
  std::optional<at::ScalarType> dtype;  ///< absent: the parameter's
  bool is_master = false;               ///< only for parameters of lower precision

  at::ScalarType dtype_for(at::ScalarType parameter) const { return dtype.value_or(parameter); }
};

/// Whether float32 values are kept for parameters of a dtype; remainders only for bfloat16.
bool has_master(MasterWeights masters, at::ScalarType parameter) {
  if (masters == MasterWeights::kNone) return false;
  if (masters == MasterWeights::kRemainder) return parameter == at::kBFloat16;
  return parameter == at::kBFloat16 || parameter == at::kHalf;
}

/// Whether a kind of state is kept for parameters of a dtype.
bool is_kept(const StateKind& kind, MasterWeights masters, at::ScalarType parameter) {
  return !kind.is_master || has_master(masters, parameter);
}

std::vector<StateKind> adam_state(const AdamConfig& config) {
  std::vector<StateKind> kinds = {{"exp_avg", config.exp_avg_dtype},
                                  {"exp_avg_sq", config.exp_avg_sq_dtype}};
  if (config.amsgrad) kinds.push_back({"max_exp_avg_sq", config.exp_avg_sq_dtype});
  if (config.masters == MasterWeights::kFloat32) {
    kinds.push_back({"master_param", at::kFloat, true});
  }
  if (config.masters == MasterWeights::kRemainder) {
    kinds.push_back({"param_remainder", at::kShort, true});
  }
  return kinds;
}

/// A shard's zeroed state of one kind; empty for masters that the shard does not need.
FlatShard zero_state(const FlatShard& shard, const StateKind& kind, MasterWeights masters) {
  const at::ScalarType parameter = shard.buffer.scalar_type();
  const at::ScalarType dtype = kind.dtype_for(parameter);
  const bool is_needed = is_kept(kind, masters, parameter);
  FlatShard state = shard;
  if (!is_needed) state.segments.clear();
  const int64_t numel = is_needed ? shard.buffer.numel() : 0;
  state.buffer = state_buffer(shard, numel, dtype);
  return state;
}

OptimizerState zero_states(const std::vector<FlatShard>& shards, const StateKind& kind,
                           MasterWeights masters = MasterWeights::kNone) {
  OptimizerState state{kind.name, {}};
  for (const FlatShard& shard : shards) state.shards.push_back(zero_state(shard, kind, masters));
  return state;
}

/// The float32 values from bfloat16 parameters and the 16 bits that these lack.
at::Tensor join_remainder(const at::Tensor& parameter, const at::Tensor& remainder) {
  return parameter.view(at::kShort).to(at::kInt).mul_(1 << 16).add_(remainder).view(at::kFloat);
}

/// Splits float32 values: the parameter is rounded to nearest, ties away from zero; the remainder
/// is signed. A NaN stays NaN, whatever its bits.
void split_remainder(const at::Tensor& value, at::Tensor parameter, at::Tensor remainder) {
  const at::Tensor is_nan = value.isnan();
  const at::Tensor bits = value.view(at::kInt);
  const at::Tensor high = bits.add(1 << 15).__irshift__(16);
  remainder.copy_(bits.sub(high.mul(1 << 16)).masked_fill_(is_nan, 0));
  parameter.copy_(high.to(at::kShort).view(at::kBFloat16).masked_fill_(is_nan, std::nan("")));
}

/// The patterns of overrides.
class Patterns final {
 public:
  explicit Patterns(std::span<const ParamGroupOverride> overrides) : overrides_(overrides) {
    for (const ParamGroupOverride& each : overrides_) {
      explaining(each, [&] { patterns_.emplace_back(each.pattern); });
    }
  }

  /// The index of the first pattern found in a name.
  std::optional<size_t> first_match(const std::string& name) const {
    for (size_t i = 0; i < patterns_.size(); ++i) {
      bool is_match = false;
      explaining(overrides_[i], [&] { is_match = patterns_[i].is_in(name); });
      if (is_match) return i;
    }
    return std::nullopt;
  }

 private:
  template <typename Body>
  static void explaining(const ParamGroupOverride& override_, const Body& body) {
    constexpr size_t kShown = 200;  // bytes of a pattern
    try {
      body();
    } catch (const UserError& error) {
      throw UserError(cat("optimizer.param_group_overrides: '",
                          shortened(override_.pattern, kShown),
                          "' is not a regular expression that can be used: ", error.what()));
    }
  }

  std::span<const ParamGroupOverride> overrides_;
  std::vector<PythonPattern> patterns_;
};

at::Tensor piece(const FlatShard& shard, const ParameterRun& run) {
  return shard.buffer.narrow(0, run.begin, run.end - run.begin);
}

/// The shards that both optimizers hold.
struct Parameters {
  std::vector<FlatShard> values;
  std::vector<FlatShard> gradients;
  std::vector<ParameterRun> runs;

  Parameters(std::vector<FlatShard> v, std::vector<FlatShard> g,
             std::span<const ParamGroupOverride> overrides)
      : values(std::move(v)), gradients(std::move(g)), runs(resolve_runs(values, overrides)) {
    AM_CHECK(values.size() == gradients.size());
  }
};

class Adam final : public Optimizer {
 public:
  Adam(const AdamConfig& config, std::vector<FlatShard> parameters,
       std::vector<FlatShard> gradients)
      : config_(config),
        parameters_(std::move(parameters), std::move(gradients), config.param_group_overrides) {
    AM_CHECK(config.betas.size() == 2);
    for (const StateKind& kind : adam_state(config)) {
      state_.push_back(zero_states(parameters_.values, kind, config.masters));
    }
  }

  void step(const StepRates& given) override {
    tensor::check_gradients(parameters_.gradients);
    const Rates rates(given, config_.lr, config_.weight_decay);
    ++num_steps_;
    for (const ParameterRun& run : parameters_.runs) {
      kernels::AdamOptions options;
      options.lr = rates.lr * run.lr_mult;
      options.beta1 = config_.betas[0];
      options.beta2 = config_.betas[1];
      options.eps = config_.eps;
      options.weight_decay = rates.weight_decay * run.wd_mult;
      options.is_decoupled = config_.is_decoupled;
      options.is_bias_corrected = config_.is_bias_corrected;
      options.step = num_steps_;
      options.grad_scale = config_.maximize ? -rates.grad_scale : rates.grad_scale;
      const at::ScalarType dtype = parameters_.values[run.shard].buffer.scalar_type();
      if (has_master(config_.masters, dtype)) {
        update_masters(run, options);
      } else {
        update(piece(parameters_.values[run.shard], run),
               piece(parameters_.gradients[run.shard], run), run, options);
      }
    }
  }

  std::vector<OptimizerState>& state() override { return state_; }
  int64_t num_steps() const override { return num_steps_; }
  void set_num_steps(int64_t steps) override { num_steps_ = steps; }

  std::string describe() const override {
    const char* masters = config_.masters == MasterWeights::kFloat32     ? ", float32 weights"
                          : config_.masters == MasterWeights::kRemainder ? ", weights' remainders"
                                                                         : "";
    return cat(config_.is_decoupled ? "AdamW" : "Adam", " (lr ", config_.lr, ", betas ",
               config_.betas[0], " ", config_.betas[1], ", eps ", config_.eps, ", weight_decay ",
               config_.weight_decay, config_.amsgrad ? ", amsgrad" : "", masters,
               config_.is_bias_corrected ? "" : ", no bias correction",
               config_.maximize ? ", maximize" : "", ")");
  }

 private:
  /// One step of a run; `values` are its parameters or their float32 values.
  void update(const at::Tensor& values, const at::Tensor& gradient, const ParameterRun& run,
              const kernels::AdamOptions& options) {
    kernels::adam_step(values, gradient, piece(state_[0].shards[run.shard], run),
                       piece(state_[1].shards[run.shard], run),
                       config_.amsgrad ? piece(state_[2].shards[run.shard], run) : at::Tensor(),
                       options);
  }

  /// One step of a run with float32 values; on a CPU in small pieces, so that copies are small.
  void update_masters(const ParameterRun& run, const kernels::AdamOptions& options) {
    at::NoGradGuard no_grad;
    const FlatShard& values = parameters_.values[run.shard];
    const int64_t most = values.buffer.is_cpu() ? int64_t{1} << 18 : run.end - run.begin;
    for (ParameterRun part = run; part.begin < run.end; part.begin = part.end) {
      part.end = std::min(run.end, part.begin + most);
      at::Tensor parameter = piece(values, part);
      at::Tensor kept = piece(state_.back().shards[run.shard], part);
      const at::Tensor gradient = piece(parameters_.gradients[run.shard], part);
      if (config_.masters == MasterWeights::kFloat32) {
        if (num_steps_ == 1) kept.copy_(parameter);
        update(kept, gradient, part, options);
        parameter.copy_(kept);
      } else {
        const at::Tensor value = join_remainder(parameter, kept);
        update(value, gradient, part, options);
        split_remainder(value, parameter, kept);
      }
    }
  }

  AdamConfig config_;
  Parameters parameters_;
  std::vector<OptimizerState> state_;
  int64_t num_steps_ = 0;
};

class Sgd final : public Optimizer {
 public:
  Sgd(const SgdConfig& config, std::vector<FlatShard> parameters, std::vector<FlatShard> gradients)
      : config_(config),
        parameters_(std::move(parameters), std::move(gradients), config.param_group_overrides) {
    if (config.momentum > 0) {
      state_.push_back(zero_states(parameters_.values, {"momentum_buffer", std::nullopt}));
    }
  }

  void step(const StepRates& given) override {
    tensor::check_gradients(parameters_.gradients);
    const Rates rates(given, config_.lr, config_.weight_decay);
    ++num_steps_;
    for (const ParameterRun& run : parameters_.runs) {
      kernels::SgdOptions options;
      options.lr = rates.lr * run.lr_mult;
      options.momentum = config_.momentum;
      options.dampening = config_.dampening;
      options.weight_decay = rates.weight_decay * run.wd_mult;
      options.is_nesterov = config_.nesterov;
      options.is_first_step = num_steps_ == 1;
      options.grad_scale = config_.maximize ? -rates.grad_scale : rates.grad_scale;
      kernels::sgd_step(
          piece(parameters_.values[run.shard], run), piece(parameters_.gradients[run.shard], run),
          state_.empty() ? at::Tensor() : piece(state_[0].shards[run.shard], run), options);
    }
  }

  std::vector<OptimizerState>& state() override { return state_; }
  int64_t num_steps() const override { return num_steps_; }
  void set_num_steps(int64_t steps) override { num_steps_ = steps; }

  std::string describe() const override {
    return cat("SGD (lr ", config_.lr, ", momentum ", config_.momentum, ", weight_decay ",
               config_.weight_decay,
               config_.dampening != 0 ? cat(", dampening ", config_.dampening) : "",
               config_.nesterov ? ", nesterov" : "", config_.maximize ? ", maximize" : "", ")");
  }

 private:
  SgdConfig config_;
  Parameters parameters_;
  std::vector<OptimizerState> state_;
  int64_t num_steps_ = 0;
};

}  // namespace

void check_overrides(std::span<const ParamGroupOverride> overrides,
                     std::span<const std::string> names) {
  std::vector<bool> has_match(overrides.size(), false);
  const Patterns patterns(overrides);
  for (const std::string& name : names) {
    if (const auto match = patterns.first_match(name)) has_match[*match] = true;
  }
  for (size_t i = 0; i < overrides.size(); ++i) {
    if (has_match[i]) continue;
    const Patterns alone(overrides.subspan(i, 1));
    const auto taken = std::ranges::find_if(
        names, [&](const auto& name) { return alone.first_match(name).has_value(); });
    throw UserError(cat("optimizer.param_group_overrides: pattern '", overrides[i].pattern,
                        taken == names.end()
                            ? std::string("' matches no parameter")
                            : cat("' gets no parameter, since the first pattern that matches one "
                                  "takes it, and all of these match earlier ones (",
                                  *taken, " '", overrides[*patterns.first_match(*taken)].pattern,
                                  "'); put it before them")));
  }
}

std::vector<ParameterRun> resolve_runs(std::span<const FlatShard> parameters,
                                       std::span<const ParamGroupOverride> overrides) {
  const Patterns patterns(overrides);
  std::vector<ParameterRun> runs;
  for (size_t shard = 0; shard < parameters.size(); ++shard) {
    const FlatShard& unit = parameters[shard];
    bool is_first = true;
    for (const tensor::FlatSegment& segment : unit.segments) {
      double lr_mult = 1.0, wd_mult = 1.0;
      if (const auto match = patterns.first_match(segment.fqn)) {
        lr_mult = overrides[*match].lr_mult;
        wd_mult = overrides[*match].wd_mult;
      }
      const bool extends =
          !is_first && runs.back().lr_mult == lr_mult && runs.back().wd_mult == wd_mult;
      if (!extends) {
        if (!is_first) runs.back().end = segment.offset;
        runs.push_back({shard, is_first ? 0 : segment.offset, 0, lr_mult, wd_mult});
      }
      is_first = false;
    }
    if (!is_first) runs.back().end = unit.buffer.numel();
  }
  return runs;
}

int64_t adam_state_bytes(const AdamConfig& config, at::ScalarType parameter) {
  int64_t bytes = 0;
  for (const StateKind& kind : adam_state(config)) {
    if (!is_kept(kind, config.masters, parameter)) continue;
    bytes += static_cast<int64_t>(c10::elementSize(kind.dtype_for(parameter)));
  }
  return bytes;
}

int64_t sgd_state_bytes(const SgdConfig& config, at::ScalarType parameter) {
  return config.momentum > 0 ? static_cast<int64_t>(c10::elementSize(parameter)) : 0;
}

std::unique_ptr<Optimizer> make_adam(const AdamConfig& config, std::vector<FlatShard> parameters,
                                     std::vector<FlatShard> gradients) {
  return std::make_unique<Adam>(config, std::move(parameters), std::move(gradients));
}

std::unique_ptr<Optimizer> make_sgd(const SgdConfig& config, std::vector<FlatShard> parameters,
                                    std::vector<FlatShard> gradients) {
  return std::make_unique<Sgd>(config, std::move(parameters), std::move(gradients));
}

}  // namespace automodel::optim
