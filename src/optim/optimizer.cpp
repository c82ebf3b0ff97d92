#include "optim/optimizer.h"

#include <optional>
#include <regex>

#include "core/error.h"
#include "kernels/optimizer_step.h"
#include "tensor/memory.h"

namespace automodel::optim {

namespace {

using tensor::FlatShard;

std::vector<FlatShard> zeros_like(const std::vector<FlatShard>& shards) {
  std::vector<FlatShard> zeros;
  for (const FlatShard& shard : shards) {
    FlatShard copy = shard;
    copy.buffer = shard.buffer.device().is_cpu()
                      ? tensor::mapped_zeros(shard.buffer.numel(), shard.buffer.scalar_type())
                      : shard.buffer.new_zeros({shard.buffer.numel()});
    zeros.push_back(std::move(copy));
  }
  return zeros;
}

std::regex compile(const std::string& pattern) {
  try {
    return std::regex(pattern);
  } catch (const std::regex_error& error) {
    throw UserError(cat("optimizer.param_group_overrides: '", pattern,
                        "' is not a regular expression: ", error.what()));
  }
}

std::vector<std::regex> compile_all(std::span<const ParamGroupOverride> overrides) {
  std::vector<std::regex> patterns;
  for (const ParamGroupOverride& override_ : overrides) {
    patterns.push_back(compile(override_.pattern));
  }
  return patterns;
}

/// The index of the first pattern found in a name.
std::optional<size_t> first_match(std::span<const std::regex> patterns, const std::string& name) {
  for (size_t i = 0; i < patterns.size(); ++i) {
    if (std::regex_search(name, patterns[i])) return i;
  }
  return std::nullopt;
}

at::Tensor piece(const FlatShard& shard, const ParameterRun& run) {
  return shard.buffer.narrow(0, run.begin, run.end - run.begin);
}

/// What both optimizers hold.
struct Parameters {
  std::vector<FlatShard> values;
  std::vector<FlatShard> gradients;
  std::vector<ParameterRun> runs;

  Parameters(std::vector<FlatShard> v, std::vector<FlatShard> g,
             std::span<const ParamGroupOverride> overrides)
      : values(std::move(v)), gradients(std::move(g)), runs(resolve_runs(values, overrides)) {
    AM_CHECK(values.size() == gradients.size());
    // A rank of a sharded group may hold padding only.
    if (values.empty()) throw UserError("optimizer received no trainable parameters");
  }
};

class Adam final : public Optimizer {
 public:
  Adam(const AdamConfig& config, std::vector<FlatShard> parameters,
       std::vector<FlatShard> gradients)
      : config_(config),
        parameters_(std::move(parameters), std::move(gradients), config.param_group_overrides) {
    AM_CHECK(config.betas.size() == 2);
    state_.push_back({"exp_avg", zeros_like(parameters_.values)});
    state_.push_back({"exp_avg_sq", zeros_like(parameters_.values)});
    if (config.amsgrad) state_.push_back({"max_exp_avg_sq", zeros_like(parameters_.values)});
  }

  void step(const StepRates& rates) override {
    ++num_steps_;
    for (const ParameterRun& run : parameters_.runs) {
      kernels::AdamOptions options;
      options.lr = rates.lr * run.lr_mult;
      options.beta1 = config_.betas[0];
      options.beta2 = config_.betas[1];
      options.eps = config_.eps;
      options.weight_decay = rates.weight_decay * run.wd_mult;
      options.is_decoupled = config_.is_decoupled;
      options.step = num_steps_;
      options.grad_scale = config_.maximize ? -rates.grad_scale : rates.grad_scale;
      kernels::adam_step(
          piece(parameters_.values[run.shard], run), piece(parameters_.gradients[run.shard], run),
          piece(state_[0].shards[run.shard], run), piece(state_[1].shards[run.shard], run),
          config_.amsgrad ? piece(state_[2].shards[run.shard], run) : at::Tensor(), options);
    }
  }

  std::vector<OptimizerState>& state() override { return state_; }
  int64_t num_steps() const override { return num_steps_; }
  void set_num_steps(int64_t steps) override { num_steps_ = steps; }

  std::string describe() const override {
    return cat(config_.is_decoupled ? "AdamW" : "Adam", " (lr ", config_.lr, ", betas ",
               config_.betas[0], " ", config_.betas[1], ", eps ", config_.eps, ", weight_decay ",
               config_.weight_decay, config_.amsgrad ? ", amsgrad" : "", ")");
  }

 private:
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
    if (config.momentum > 0) state_.push_back({"momentum_buffer", zeros_like(parameters_.values)});
  }

  void step(const StepRates& rates) override {
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
               config_.weight_decay, config_.nesterov ? ", nesterov" : "", ")");
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
  const std::vector<std::regex> patterns = compile_all(overrides);
  for (const std::string& name : names) {
    if (const auto match = first_match(patterns, name)) has_match[*match] = true;
  }
  for (size_t i = 0; i < overrides.size(); ++i) {
    if (!has_match[i]) {
      throw UserError(cat("optimizer.param_group_overrides: pattern '", overrides[i].pattern,
                          "' matches no parameter"));
    }
  }
}

std::vector<ParameterRun> resolve_runs(std::span<const FlatShard> parameters,
                                       std::span<const ParamGroupOverride> overrides) {
  const std::vector<std::regex> patterns = compile_all(overrides);
  std::vector<ParameterRun> runs;
  for (size_t shard = 0; shard < parameters.size(); ++shard) {
    const FlatShard& unit = parameters[shard];
    bool is_first = true;
    for (const tensor::FlatSegment& segment : unit.segments) {
      double lr_mult = 1.0, wd_mult = 1.0;
      if (const auto match = first_match(patterns, segment.fqn)) {
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

std::unique_ptr<Optimizer> make_adam(const AdamConfig& config, std::vector<FlatShard> parameters,
                                     std::vector<FlatShard> gradients) {
  return std::make_unique<Adam>(config, std::move(parameters), std::move(gradients));
}

std::unique_ptr<Optimizer> make_sgd(const SgdConfig& config, std::vector<FlatShard> parameters,
                                    std::vector<FlatShard> gradients) {
  return std::make_unique<Sgd>(config, std::move(parameters), std::move(gradients));
}

}  // namespace automodel::optim
