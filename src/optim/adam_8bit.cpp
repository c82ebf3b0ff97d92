#include <ATen/ATen.h>

#include <optional>
#include <utility>

#include "core/error.h"
#include "kernels/optimizer/optimizer_step.h"
#include "optim/block_spec.h"
#include "optim/optimizer.h"
#include "optim/state_buffer.h"

namespace automodel::optim {

namespace {

using tensor::FlatSegment;
using tensor::FlatShard;

bool has_8bit_state(const Adam8bitConfig& config, const FlatSegment& segment) {
  return segment.spec.global_numel() >= config.min_8bit_size;
}

/// How a state is laid out: which tensors have it, and its elements.
enum class StateLayout {
  kCodes,    ///< one byte an element of a tensor in 8 bits
  kFactors,  ///< one float32 a block of it
  kFloats,   ///< one float32 an element of a smaller tensor
};

/// A shard's zeroed state.
FlatShard zero_state(const Adam8bitConfig& config, const FlatShard& shard, StateLayout layout) {
  const at::ScalarType dtype = layout == StateLayout::kCodes ? at::kByte : at::kFloat;
  return packed_state(
      shard, dtype, [&](const FlatSegment& segment) -> std::optional<tensor::ShardSpec> {
        if (has_8bit_state(config, segment) == (layout == StateLayout::kFloats)) return {};
        return layout == StateLayout::kFactors ? block_spec(segment, kStateBlock) : segment.spec;
      });
}

OptimizerState zero_states(const Adam8bitConfig& config, const std::vector<FlatShard>& shards,
                           const std::string& name, StateLayout layout) {
  OptimizerState state{name, {}};
  for (const FlatShard& shard : shards) state.shards.push_back(zero_state(config, shard, layout));
  return state;
}

/// A rank's part of one tensor, where its state lies, and its hyper-parameters.
struct Part {
  ParameterRun run;  ///< its elements in the unit's buffer
  bool is_8bit = false;
  int64_t state_begin = 0;  ///< of codes, or of float32 averages
  int64_t block_begin = 0;
};

std::vector<Part> parts_of(const Adam8bitConfig& config, const std::vector<FlatShard>& shards) {
  std::vector<Part> parts;
  for (const auto& [run, segment] : segment_runs(shards, config.param_group_overrides)) {
    parts.push_back({run, has_8bit_state(config, *segment)});
  }
  return parts;
}

class Adam8bit final : public Optimizer {
 public:
  Adam8bit(const Adam8bitConfig& config, std::vector<FlatShard> parameters,
           std::vector<FlatShard> gradients)
      : config_(config), parameters_(std::move(parameters)), gradients_(std::move(gradients)) {
    AM_CHECK(config.betas.size() == 2 && parameters_.size() == gradients_.size());
    parts_ = parts_of(config, parameters_);
    for (const std::string name : {"exp_avg", "exp_avg_sq"}) {
      state_.push_back(zero_states(config, parameters_, name + "_8bit", StateLayout::kCodes));
      state_.push_back(zero_states(config, parameters_, name + "_absmax", StateLayout::kFactors));
      state_.push_back(zero_states(config, parameters_, name, StateLayout::kFloats));
    }
    place_state();
  }

  void step(const StepRates& given) override {
    tensor::check_gradients(gradients_);
    const Rates rates(given, config_.lr, config_.weight_decay);
    ++num_steps_;
    for (const Part& part : parts_) {
      kernels::AdamOptions options;
      options.lr = rates.lr * part.run.lr_mult;
      options.beta1 = config_.betas[0];
      options.beta2 = config_.betas[1];
      options.eps = config_.eps;
      options.weight_decay = rates.weight_decay * part.run.wd_mult;
      options.step = num_steps_;
      options.grad_scale = rates.grad_scale;
      update(part, options);
    }
  }

  std::vector<OptimizerState>& state() override { return state_; }
  int64_t num_steps() const override { return num_steps_; }
  void set_num_steps(int64_t steps) override { num_steps_ = steps; }

  std::string describe() const override {
    return cat("8-bit AdamW (lr ", config_.lr, ", betas ", config_.betas[0], " ", config_.betas[1],
               ", eps ", config_.eps, ", weight_decay ", config_.weight_decay, ", float32 below ",
               config_.min_8bit_size, " elements)");
  }

 private:
  /// Where state_ holds the three layouts of an average.
  static constexpr size_t kCodes = 0, kFactors = 1, kFloats = 2, kNumLayouts = 3;

  /// Finds each part's state: the layouts have the parts of a unit in one order.
  void place_state() {
    size_t shard = parameters_.size();
    int64_t num_codes = 0, num_factors = 0, num_floats = 0;
    for (Part& part : parts_) {
      if (part.run.shard != shard) num_codes = num_factors = num_floats = 0;
      shard = part.run.shard;
      const int64_t numel = part.run.end - part.run.begin;
      part.state_begin = part.is_8bit ? num_codes : num_floats;
      part.block_begin = num_factors;
      (part.is_8bit ? num_codes : num_floats) += numel;
      if (part.is_8bit) num_factors += num_blocks(numel, kStateBlock);
    }
  }

  at::Tensor floats(size_t average, const Part& part) const {
    return state_[average * kNumLayouts + kFloats].shards[part.run.shard].buffer.narrow(
        0, part.state_begin, part.run.end - part.run.begin);
  }

  kernels::EightBitState bits(size_t average, const Part& part) const {
    const int64_t numel = part.run.end - part.run.begin;
    const auto buffer = [&](size_t layout) {
      return state_[average * kNumLayouts + layout].shards[part.run.shard].buffer;
    };
    return {buffer(kCodes).narrow(0, part.state_begin, numel),
            buffer(kFactors).narrow(0, part.block_begin, num_blocks(numel, kStateBlock))};
  }

  void update(const Part& part, const kernels::AdamOptions& options) {
    const auto piece = [&](const std::vector<FlatShard>& shards) {
      return shards[part.run.shard].buffer.narrow(0, part.run.begin, part.run.end - part.run.begin);
    };
    if (part.is_8bit) {
      kernels::adam_eight_bit_step(piece(parameters_), piece(gradients_), bits(0, part),
                                   bits(1, part), options);
    } else {
      kernels::adam_step(piece(parameters_), piece(gradients_), floats(0, part), floats(1, part),
                         at::Tensor(), options);
    }
  }

  Adam8bitConfig config_;
  std::vector<FlatShard> parameters_;
  std::vector<FlatShard> gradients_;
  std::vector<Part> parts_;
  std::vector<OptimizerState> state_;
  int64_t num_steps_ = 0;
};

}  // namespace

int64_t adam_8bit_state_bytes(const Adam8bitConfig& config, std::span<const FlatSegment> segments) {
  int64_t bytes = 0;
  for (const FlatSegment& segment : segments) {
    const int64_t numel = segment.spec.numel();
    const bool is_8bit = has_8bit_state(config, segment);
    const int64_t average =
        is_8bit ? numel + 4 * block_spec(segment, kStateBlock).numel() : 4 * numel;
    bytes += 2 * average;
  }
  return bytes;
}

std::unique_ptr<Optimizer> make_adam_8bit(const Adam8bitConfig& config,
                                          std::vector<FlatShard> parameters,
                                          std::vector<FlatShard> gradients) {
  return std::make_unique<Adam8bit>(config, std::move(parameters), std::move(gradients));
}

}  // namespace automodel::optim
