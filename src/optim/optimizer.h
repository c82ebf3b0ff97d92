#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/json.h"
#include "optim/options.h"
#include "tensor/shard_spec.h"

namespace automodel::optim {

/// The rates of one step, from the schedule; an absent one is the optimizer's own.
struct StepRates {
  std::optional<double> lr = {};
  std::optional<double> weight_decay = {};
  double grad_scale = 1.0;  ///< clipping coefficient; gradients are multiplied by it when read
};

/// The rates of one step, all of them.
struct Rates {
  double lr;
  double weight_decay;
  double grad_scale;

  Rates(const StepRates& given, double own_lr, double own_weight_decay)
      : lr(given.lr.value_or(own_lr)),
        weight_decay(given.weight_decay.value_or(own_weight_decay)),
        grad_scale(given.grad_scale) {}
};

/// State tensors of an optimizer of one kind ("exp_avg"), laid out as the parameters are.
struct OptimizerState {
  std::string name;
  std::vector<tensor::FlatShard> shards;
};

/// Updates flat shards in place. Rates are passed to every step; differences between parameters
/// (lr_mult, wd_mult) are resolved once into runs of equal hyper-parameters.
class Optimizer {
 public:
  virtual ~Optimizer() = default;

  /// One update of all parameters from their gradients. Throws UserError while these have no
  /// memory.
  virtual void step(const StepRates& rates) = 0;

  /// Tensors to be saved and loaded, in a fixed order.
  virtual std::vector<OptimizerState>& state() = 0;

  /// Number of steps done; saved with the state.
  virtual int64_t num_steps() const = 0;
  virtual void set_num_steps(int64_t steps) = 0;

  /// "AdamW (lr 1e-05, betas 0.9 0.999, eps 1e-08, weight_decay 0.01), 2 groups".
  virtual std::string describe() const = 0;
};

/// A run of a unit's buffer whose elements share hyper-parameters.
struct ParameterRun {
  size_t shard = 0;
  int64_t begin = 0;
  int64_t end = 0;
  double lr_mult = 1.0;
  double wd_mult = 1.0;
};

/// Throws UserError for a pattern that is no regular expression, or that is not the first match of
/// any trained parameter of the model. Uses the whole model's names, since a rank may hold none
/// that match.
void check_overrides(std::span<const ParamGroupOverride> overrides,
                     std::span<const std::string> names);

/// Resolves overrides by segment names into the fewest runs; padding belongs to the run before it.
/// Throws UserError for a pattern that is no regular expression.
std::vector<ParameterRun> resolve_runs(std::span<const tensor::FlatShard> parameters,
                                       std::span<const ParamGroupOverride> overrides);

/// Bytes of state that Adam keeps per element of a parameter of that dtype.
int64_t adam_state_bytes(const AdamConfig& config, at::ScalarType parameter);
/// Bytes of state that an 8-bit Adam keeps for parts of tensors.
int64_t adam_8bit_state_bytes(const Adam8bitConfig& config,
                              std::span<const tensor::FlatSegment> segments);
/// Bytes of state that FlashAdamW keeps for parts of tensors whose parameters have a dtype.
int64_t flash_adamw_state_bytes(const FlashAdamWConfig& config,
                                std::span<const tensor::FlatSegment> segments,
                                at::ScalarType parameter);
int64_t sgd_state_bytes(const SgdConfig& config, at::ScalarType parameter);

/// Parameters and gradients have equal units and segments. State is zeroed, in the parameters'
/// dtype as in torch unless the configuration names another. Float32 values of 16-bit parameters
/// (`masters`) are state too: "master_param" is set to the parameters' values before the first
/// step, "param_remainder" (int16) begins as zero.
std::unique_ptr<Optimizer> make_adam(const AdamConfig& config,
                                     std::vector<tensor::FlatShard> parameters,
                                     std::vector<tensor::FlatShard> gradients);
/// Averages of tensors with min_8bit_size elements or more are kept in 8 bits, by blocks of 256
/// elements (kernels/optimizer/optimizer_step.h): state "exp_avg_8bit" and "exp_avg_sq_8bit" with
/// an element for each of the parameter's, "exp_avg_absmax" and "exp_avg_sq_absmax" with one for
/// each block (block_spec.h). Others have "exp_avg" and "exp_avg_sq" in float32. Throws UserError
/// when the border between two ranks' parts lies within a block.
std::unique_ptr<Optimizer> make_adam_8bit(const Adam8bitConfig& config,
                                          std::vector<tensor::FlatShard> parameters,
                                          std::vector<tensor::FlatShard> gradients);
/// Averages are kept in 8 bits by groups of 32 elements (kernels/optimizer/flash_adam.h): state
/// "flash_exp_avg_codes" (int8) and "flash_exp_avg_sq_codes" (uint8) with an element for each of
/// the parameter's, "flash_exp_avg_scales" and "flash_exp_avg_sq_scales" (float16) with one for
/// each group (block_spec.h); with `quantize` false "flash_exp_avg" and "flash_exp_avg_sq" in the
/// parameters' dtype. Beside 16-bit parameters, "flash_corrections_int8" or
/// "flash_corrections_int16" with master_weight_bits of 24 or 32. Throws UserError for parameters
/// of float64, and when the border between two ranks' parts lies within a group. With
/// `check_numerics`, step() throws UserError where the rate is too small for a weight.
std::unique_ptr<Optimizer> make_flash_adamw(const FlashAdamWConfig& config,
                                            std::vector<tensor::FlatShard> parameters,
                                            std::vector<tensor::FlatShard> gradients);
std::unique_ptr<Optimizer> make_sgd(const SgdConfig& config,
                                    std::vector<tensor::FlatShard> parameters,
                                    std::vector<tensor::FlatShard> gradients);

}  // namespace automodel::optim
