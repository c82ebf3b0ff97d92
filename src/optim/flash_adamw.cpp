#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <optional>

#include "core/error.h"
#include "core/text.h"
#include "kernels/optimizer/flash_adam.h"
#include "optim/block_spec.h"
#include "optim/optimizer.h"
#include "optim/state_buffer.h"
#include "tensor/dtype.h"

namespace automodel::optim {

namespace {

using tensor::FlatSegment;
using tensor::FlatShard;

/// The dtype of what is kept beside parameters of a dtype of the bits that they lack; none for
/// float32, and without master_weight_bits.
std::optional<at::ScalarType> correction_dtype(const FlashAdamWConfig& config,
                                               at::ScalarType parameter) {
  if (!config.master_weight_bits || c10::elementSize(parameter) != 2) return std::nullopt;
  return *config.master_weight_bits == 24 ? at::kChar : at::kShort;
}

/// One kind of state beside each parameter.
struct AverageKind {
  std::string name;
  std::optional<at::ScalarType> dtype;  ///< absent: the parameter's
  bool is_of_groups = false;  ///< an element for each group, else for each of a parameter's
};

/// Averages, with their scales behind each.
std::vector<AverageKind> average_kinds(const FlashAdamWConfig& config) {
  if (!config.quantize) return {{"flash_exp_avg", {}}, {"flash_exp_avg_sq", {}}};
  return {{"flash_exp_avg_codes", at::kChar},
          {"flash_exp_avg_scales", at::kHalf, true},
          {"flash_exp_avg_sq_codes", at::kByte},
          {"flash_exp_avg_sq_scales", at::kHalf, true}};
}

/// A shard's zeroed state of a dtype.
FlatShard zero_average(const FlatShard& shard, at::ScalarType dtype, bool is_of_groups) {
  return packed_state(shard, dtype, [&](const FlatSegment& segment) {
    return std::optional(is_of_groups ? block_spec(segment, kStateGroup) : segment.spec);
  });
}

OptimizerState zero_averages(const std::vector<FlatShard>& shards, const AverageKind& kind) {
  OptimizerState state{kind.name, {}};
  for (const FlatShard& shard : shards) {
    state.shards.push_back(
        zero_average(shard, kind.dtype.value_or(shard.buffer.scalar_type()), kind.is_of_groups));
  }
  return state;
}

/// Corrections of the shards that have any; of others no segment.
OptimizerState zero_corrections(const FlashAdamWConfig& config,
                                const std::vector<FlatShard>& shards) {
  const bool are_narrow = *config.master_weight_bits == 24;
  OptimizerState state{are_narrow ? "flash_corrections_int8" : "flash_corrections_int16", {}};
  for (const FlatShard& shard : shards) {
    const auto dtype = correction_dtype(config, shard.buffer.scalar_type());
    FlatShard covered = shard;
    if (!dtype) covered.segments.clear();
    state.shards.push_back(
        zero_average(covered, dtype.value_or(at::kChar), /*is_of_groups=*/false));
  }
  return state;
}

/// A rank's part of one tensor, its hyper-parameters, and where its state lies.
struct FlashPart {
  ParameterRun run;
  std::string name;
  int64_t state_begin = 0;
  int64_t group_begin = 0;
  std::optional<double> largest = std::nullopt;  ///< magnitude; absent: not measured
};

std::vector<FlashPart> parts_of(const FlashAdamWConfig& config,
                                const std::vector<FlatShard>& shards) {
  std::vector<FlashPart> parts;
  size_t shard = shards.size();
  int64_t num_elements = 0, num_groups = 0;
  for (const auto& [run, segment] : segment_runs(shards, config.param_group_overrides)) {
    if (run.shard != shard) num_elements = num_groups = 0;
    shard = run.shard;
    parts.push_back({run, segment->fqn, num_elements, num_groups});
    num_elements += run.end - run.begin;
    num_groups += num_blocks(run.end - run.begin, kStateGroup);
  }
  return parts;
}

/// The logarithm of the smallest change of a number that its bits can hold, by flashoptim's rule:
/// the gap between numbers of its magnitude, divided by 0.49.
double log_resolution(at::ScalarType dtype, int64_t bits, double magnitude) {
  const int exponent_bits = dtype == at::kHalf ? 5 : 8;
  const auto mantissa_bits = static_cast<double>(bits - 1 - exponent_bits);
  return std::floor(std::log2(magnitude)) - mantissa_bits - std::log2(0.49);
}

class FlashAdamW final : public Optimizer {
 public:
  FlashAdamW(const FlashAdamWConfig& config, std::vector<FlatShard> parameters,
             std::vector<FlatShard> gradients)
      : config_(config), parameters_(std::move(parameters)), gradients_(std::move(gradients)) {
    AM_CHECK(config.betas.size() == 2 && parameters_.size() == gradients_.size());
    for (const FlatShard& shard : parameters_) {
      const at::ScalarType dtype = shard.buffer.scalar_type();
      if (dtype != at::kFloat && dtype != at::kBFloat16 && dtype != at::kHalf) {
        throw UserError(cat("FlashAdamW takes parameters of float32, bfloat16 and float16, not of ",
                            tensor::dtype_name(dtype)));
      }
    }
    for (const AverageKind& kind : average_kinds(config)) {
      state_.push_back(zero_averages(parameters_, kind));
    }
    if (config.master_weight_bits) state_.push_back(zero_corrections(config, parameters_));
    parts_ = parts_of(config, parameters_);
  }

  void step(const StepRates& given) override {
    tensor::check_gradients(gradients_);
    const Rates rates(given, config_.lr, config_.weight_decay);
    if (config_.check_numerics) check_rates(rates);
    ++num_steps_;
    for (const FlashPart& part : parts_) {
      kernels::FlashAdamOptions options;
      options.lr = rates.lr * part.run.lr_mult;
      options.beta1 = config_.betas[0];
      options.beta2 = config_.betas[1];
      options.eps = config_.eps;
      const double decay = rates.weight_decay * part.run.wd_mult;
      options.decay = config_.decouple_lr ? decay * (options.lr / config_.lr) : decay * options.lr;
      options.step = num_steps_;
      options.grad_scale = rates.grad_scale;
      kernels::flash_adam_step(piece(parameters_, part), piece(gradients_, part), state_of(part),
                               options);
    }
  }

  std::vector<OptimizerState>& state() override { return state_; }
  int64_t num_steps() const override { return num_steps_; }

  void set_num_steps(int64_t steps) override {
    num_steps_ = steps;
    for (FlashPart& part : parts_) part.largest.reset();
  }

  std::string describe() const override {
    const bool has_corrections = config_.master_weight_bits.has_value() &&
                                 std::ranges::any_of(parameters_, [](const FlatShard& shard) {
                                   return shard.buffer.itemsize() == 2;
                                 });
    return cat("FlashAdamW (lr ", config_.lr, ", betas ", config_.betas[0], " ", config_.betas[1],
               ", eps ", config_.eps, ", weight_decay ", config_.weight_decay,
               config_.quantize ? ", averages in 8 bits" : "",
               has_corrections ? cat(", weights of ", *config_.master_weight_bits, " bits") : "",
               config_.decouple_lr ? ", weight decay by lr's share" : "", ")");
  }

 private:
  static at::Tensor piece(const std::vector<FlatShard>& shards, const FlashPart& part) {
    return shards[part.run.shard].buffer.narrow(0, part.run.begin, part.run.end - part.run.begin);
  }

  kernels::FlashAdamState state_of(const FlashPart& part) const {
    const int64_t numel = part.run.end - part.run.begin;
    const auto elements = [&](size_t kind) {
      return state_[kind].shards[part.run.shard].buffer.narrow(0, part.state_begin, numel);
    };
    const auto groups = [&](size_t kind) {
      return state_[kind].shards[part.run.shard].buffer.narrow(0, part.group_begin,
                                                               num_blocks(numel, kStateGroup));
    };
    kernels::FlashAdamState state;
    state.exp_avg = elements(0);
    state.exp_avg_sq = elements(config_.quantize ? 2 : 1);
    if (config_.quantize) {
      state.exp_avg_scales = groups(1);
      state.exp_avg_sq_scales = groups(3);
    }
    const at::ScalarType dtype = parameters_[part.run.shard].buffer.scalar_type();
    if (correction_dtype(config_, dtype)) state.corrections = elements(state_.size() - 1);
    return state;
  }

  /// Throws where a step of a tenth of the rate, which flashoptim takes for a small one of Adam,
  /// changes the largest weight of a part by less than its bits can hold. Weights are measured in
  /// the first step, and in the first one after a checkpoint was read.
  void check_rates(const Rates& rates) {
    for (FlashPart& part : parts_) {
      if (part.run.begin == part.run.end) continue;
      if (!part.largest) part.largest = piece(parameters_, part).abs().max().item<double>();
      const double lr = rates.lr * part.run.lr_mult;
      if (lr == 0 || *part.largest <= 0 || !std::isfinite(*part.largest)) continue;
      const at::ScalarType dtype = parameters_[part.run.shard].buffer.scalar_type();
      const int64_t bits = std::max<int64_t>(8 * static_cast<int64_t>(c10::elementSize(dtype)),
                                             config_.master_weight_bits.value_or(0));
      const double resolution = std::exp2(log_resolution(dtype, bits, *part.largest));
      if (resolution <= lr * 0.1) continue;
      throw UserError(cat("optimizer.check_numerics: the learning rate ", lr,
                          " may be too small to change ", part.name, ": its largest weight is ",
                          *part.largest, ", which ", bits, " bits hold to ",
                          format_scientific(resolution, 2),
                          ", and a step may be a tenth of the rate. Take a larger lr or more "
                          "master_weight_bits, or check_numerics: false"));
    }
  }

  FlashAdamWConfig config_;
  std::vector<FlatShard> parameters_;
  std::vector<FlatShard> gradients_;
  std::vector<FlashPart> parts_;
  std::vector<OptimizerState> state_;
  int64_t num_steps_ = 0;
};

}  // namespace

int64_t flash_adamw_state_bytes(const FlashAdamWConfig& config,
                                std::span<const FlatSegment> segments, at::ScalarType parameter) {
  const auto size_of = [](at::ScalarType dtype) {
    return static_cast<int64_t>(c10::elementSize(dtype));
  };
  const auto correction = correction_dtype(config, parameter);
  int64_t bytes = 0;
  for (const FlatSegment& segment : segments) {
    for (const AverageKind& kind : average_kinds(config)) {
      const int64_t numel =
          kind.is_of_groups ? block_spec(segment, kStateGroup).numel() : segment.spec.numel();
      bytes += numel * size_of(kind.dtype.value_or(parameter));
    }
    if (correction) bytes += segment.spec.numel() * size_of(*correction);
  }
  return bytes;
}

std::unique_ptr<Optimizer> make_flash_adamw(const FlashAdamWConfig& config,
                                            std::vector<FlatShard> parameters,
                                            std::vector<FlatShard> gradients) {
  return std::make_unique<FlashAdamW>(config, std::move(parameters), std::move(gradients));
}

}  // namespace automodel::optim
