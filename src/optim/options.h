#pragma once

#include <c10/core/ScalarType.h>

#include <cstdint>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "core/field.h"

namespace automodel::optim {

/// Scales the learning rate and weight decay of parameters whose name contains a match of a regular
/// expression; the first matching override is used.
struct ParamGroupOverride {
  std::string pattern;
  double lr_mult = 1.0;
  double wd_mult = 1.0;

  static constexpr auto fields() {
    using O = ParamGroupOverride;
    return std::tuple{
        field("pattern", &O::pattern, "regular expression of Python's, searched in the name")
            .required(),
        field("lr_mult", &O::lr_mult, "multiplies the learning rate").at_least(0),
        field("wd_mult", &O::wd_mult, "multiplies the weight decay").at_least(0)};
  }
};

/// What `param_group_overrides` takes, of every optimizer.
inline constexpr const char* kOverridesText =
    "a list of pattern (a regular expression of Python's, searched in parameters' names), lr_mult "
    "and wd_mult, which multiply their learning rate and weight decay; the first that fits a "
    "parameter acts";

/// How float32 values of 16-bit parameters are kept between steps.
enum class MasterWeights {
  kNone,       ///< not kept: each update is rounded to the parameter's dtype
  kFloat32,    ///< as a float32 copy; the parameter is its value rounded to nearest even
  kRemainder,  ///< as the 16 bits that the parameter lacks; ties round away from zero
};

/// torch.optim.Adam and AdamW; the makers set the defaults of the name that the recipe uses.
struct AdamConfig {
  double lr = 1e-3;
  std::vector<double> betas = {0.9, 0.999};
  double eps = 1e-8;
  double weight_decay = 0;
  bool amsgrad = false;
  std::optional<bool> foreach;
  std::optional<bool> fused;
  bool maximize = false;
  bool capturable = false;
  bool differentiable = false;
  std::vector<ParamGroupOverride> param_group_overrides;

  // Set by the target's name and by FusedAdam's keys, not by keys of torch's optimizers.
  bool is_decoupled = false;  ///< AdamW
  bool is_bias_corrected = true;
  MasterWeights masters = MasterWeights::kNone;
  std::optional<at::ScalarType> exp_avg_dtype;     ///< absent: the parameter's
  std::optional<at::ScalarType> exp_avg_sq_dtype;  ///< absent: the parameter's

  static constexpr auto fields() {
    using C = AdamConfig;
    return std::tuple{
        field("lr", &C::lr, "learning rate").at_least(0),
        field("betas", &C::betas, "decay of the averages of the gradient and its square"),
        field("eps", &C::eps, "added to the denominator").at_least(0),
        field("weight_decay", &C::weight_decay, "weight decay").at_least(0),
        field("amsgrad", &C::amsgrad, "use the largest average of squares so far"),
        field("foreach", &C::foreach, "implementation choice of torch")
            .without_effect("the update is always one fused pass here"),
        field("fused", &C::fused, "implementation choice of torch")
            .without_effect("the update is always one fused pass here"),
        field("maximize", &C::maximize, "ascend instead of descend"),
        field("capturable", &C::capturable, "implementation choice of torch")
            .without_effect("the step count never leaves the CPU here"),
        field("differentiable", &C::differentiable, "differentiate through the step"),
        field("param_group_overrides", &C::param_group_overrides, kOverridesText)};
  }
};

/// Transformer Engine's FusedAdam: Adam or AdamW with float32 state for 16-bit parameters, and with
/// the part of each update that is below their precision.
struct FusedAdamConfig {
  double lr = 1e-3;
  std::vector<double> betas = {0.9, 0.999};
  double eps = 1e-8;
  double weight_decay = 0;
  bool amsgrad = false;
  bool adam_w_mode = true;
  bool bias_correction = true;
  bool master_weights = false;
  bool store_param_remainders = false;
  std::string exp_avg_dtype = "float32";
  std::string exp_avg_sq_dtype = "float32";
  std::string master_weight_dtype = "float32";
  bool use_decoupled_grad = false;
  std::optional<bool> set_grad_none;
  bool capturable = false;
  std::vector<ParamGroupOverride> param_group_overrides;

  static constexpr auto fields() {
    using C = FusedAdamConfig;
    return std::tuple{
        field("lr", &C::lr, "learning rate").at_least(0),
        field("betas", &C::betas, "decay of the averages of the gradient and its square"),
        field("eps", &C::eps, "added to the denominator").at_least(0),
        field("weight_decay", &C::weight_decay, "weight decay").at_least(0),
        field("amsgrad", &C::amsgrad, "use the largest average of squares so far"),
        field("adam_w_mode", &C::adam_w_mode,
              "decoupled weight decay (AdamW); false: added to the gradient (L2)"),
        field("bias_correction", &C::bias_correction, "correct the averages for their zero start"),
        field("master_weights", &C::master_weights,
              "keep float32 values of parameters with 16 bits"),
        field("store_param_remainders", &C::store_param_remainders,
              "keep of a bfloat16 parameter's float32 value only the 16 bits that it lacks"),
        field("exp_avg_dtype", &C::exp_avg_dtype, "dtype of the gradient's average"),
        field("exp_avg_sq_dtype", &C::exp_avg_sq_dtype, "dtype of the average of its square"),
        field("master_weight_dtype", &C::master_weight_dtype, "dtype of the kept values"),
        field("use_decoupled_grad", &C::use_decoupled_grad,
              "take gradients from another attribute"),
        field("set_grad_none", &C::set_grad_none, "implementation choice of Transformer Engine")
            .without_effect("gradients' memory is the engine's here"),
        field("capturable", &C::capturable, "implementation choice of torch")
            .without_effect("the step count never leaves the CPU here"),
        field("param_group_overrides", &C::param_group_overrides, kOverridesText)};
  }
};

/// bitsandbytes' AdamW8bit, Adam8bit and their paged namesakes: Adam with decoupled weight decay
/// whose averages are kept in 8 bits. The makers set the defaults of the name that the recipe uses.
struct Adam8bitConfig {
  double lr = 1e-3;
  std::vector<double> betas = {0.9, 0.999};
  double eps = 1e-8;
  double weight_decay = 0;
  bool amsgrad = false;
  int64_t optim_bits = 32;
  std::optional<std::string> args;
  int64_t min_8bit_size = 4096;
  bool is_paged = false;
  std::vector<ParamGroupOverride> param_group_overrides;

  static constexpr auto fields() {
    using C = Adam8bitConfig;
    return std::tuple{
        field("lr", &C::lr, "learning rate").at_least(0),
        field("betas", &C::betas, "decay of the averages of the gradient and its square"),
        field("eps", &C::eps, "added to the denominator").at_least(0),
        field("weight_decay", &C::weight_decay,
              "decoupled weight decay, under every name of the optimizer")
            .at_least(0),
        field("amsgrad", &C::amsgrad, "not with averages in 8 bits"),
        field("optim_bits", &C::optim_bits,
              "must be 32, bitsandbytes' default; the averages have 8 bits whatever it says"),
        field("args", &C::args, "an object of Python that replaces the options"),
        field("min_8bit_size", &C::min_8bit_size,
              "tensors with fewer elements keep averages in float32")
            .at_least(0),
        field("is_paged", &C::is_paged,
              "keep the averages in memory that a CUDA device shares with the host; on a CPU they "
              "lie in its memory either way"),
        field("param_group_overrides", &C::param_group_overrides, kOverridesText)};
  }
};

/// flashoptim's FlashAdamW: AdamW whose averages are kept in 8 bits by groups of 32 elements, and
/// whose 16-bit weights are kept with 8 or 16 bits more. The makers set the defaults of the name
/// that the recipe uses.
struct FlashAdamWConfig {
  double lr = 1e-3;
  std::vector<double> betas = {0.9, 0.999};
  double eps = 1e-8;
  double weight_decay = 1e-2;
  bool decouple_lr = false;
  bool quantize = true;
  std::optional<bool> compress_state_dict;
  std::optional<int64_t> master_weight_bits = 24;
  bool check_numerics = false;
  std::optional<bool> fused;
  std::vector<ParamGroupOverride> param_group_overrides;

  static constexpr auto fields() {
    using C = FlashAdamWConfig;
    return std::tuple{
        field("lr", &C::lr, "learning rate").at_least(0),
        field("betas", &C::betas, "decay of the averages of the gradient and its square"),
        field("eps", &C::eps, "added to the denominator").at_least(0),
        field("weight_decay", &C::weight_decay, "decoupled weight decay").at_least(0),
        field("decouple_lr", &C::decouple_lr,
              "a step takes weight_decay * (its rate / lr) off weights; false: weight_decay * its "
              "rate"),
        field("quantize", &C::quantize,
              "keep the averages in 8 bits; false: in the parameter's dtype"),
        field("compress_state_dict", &C::compress_state_dict, "how flashoptim saves averages")
            .without_effect("checkpoints hold the averages as they are kept, and any number of "
                            "ranks loads them"),
        field("master_weight_bits", &C::master_weight_bits,
              "bits of a weight whose parameter has 16: 24 or 32; null: 16"),
        field("check_numerics", &C::check_numerics,
              "stop where the learning rate is too small to change the largest weights"),
        field("fused", &C::fused, "implementation choice of flashoptim")
            .without_effect("the update is always one fused pass here"),
        field("param_group_overrides", &C::param_group_overrides, kOverridesText)};
  }
};

/// torch.optim.SGD.
struct SgdConfig {
  double lr = 1e-3;
  double momentum = 0;
  double dampening = 0;
  double weight_decay = 0;
  bool nesterov = false;
  bool maximize = false;
  std::optional<bool> foreach;
  std::optional<bool> fused;
  std::vector<ParamGroupOverride> param_group_overrides;

  static constexpr auto fields() {
    using C = SgdConfig;
    return std::tuple{
        field("lr", &C::lr, "learning rate").at_least(0),
        field("momentum", &C::momentum, "decay of the running sum of gradients").at_least(0),
        field("dampening", &C::dampening, "share of the gradient kept out of the running sum"),
        field("weight_decay", &C::weight_decay, "weight decay (L2)").at_least(0),
        field("nesterov", &C::nesterov, "look ahead along the momentum"),
        field("maximize", &C::maximize, "ascend instead of descend"),
        field("foreach", &C::foreach, "implementation choice of torch")
            .without_effect("the update is always one fused pass here"),
        field("fused", &C::fused, "implementation choice of torch")
            .without_effect("the update is always one fused pass here"),
        field("param_group_overrides", &C::param_group_overrides, kOverridesText)};
  }
};

/// The `lr_scheduler` section. Absent members have the defaults that its README states.
struct LrSchedulerConfig {
  std::string lr_decay_style = "cosine";
  std::optional<int64_t> lr_warmup_steps;
  std::optional<int64_t> lr_decay_steps;
  std::optional<double> init_lr;
  std::optional<double> max_lr;
  std::optional<double> min_lr;
  std::optional<double> start_wd;
  std::optional<double> end_wd;
  std::optional<int64_t> wd_incr_steps;
  std::string wd_incr_style = "constant";
  std::optional<int64_t> wsd_decay_steps;
  std::optional<std::string> lr_wsd_decay_style;
  bool use_checkpoint_opt_param_scheduler = true;
  bool override_opt_param_scheduler = false;

  static constexpr auto fields() {
    using C = LrSchedulerConfig;
    return std::tuple{
        field("lr_decay_style", &C::lr_decay_style,
              "constant, linear, cosine, inverse-square-root or WSD"),
        field("lr_warmup_steps", &C::lr_warmup_steps,
              "optimizer steps of linear warm-up; absent: min(1000, total / 10)")
            .at_least(0),
        field("lr_decay_steps", &C::lr_decay_steps,
              "steps after which the minimum is reached; absent: all steps of the run")
            .above(0),
        field("init_lr", &C::init_lr, "rate before warm-up; absent: 0.1 * lr").at_least(0),
        field("max_lr", &C::max_lr, "rate after warm-up; absent: the optimizer's lr").at_least(0),
        field("min_lr", &C::min_lr, "lowest rate; absent: 0.01 * lr").at_least(0),
        field("start_wd", &C::start_wd, "weight decay at the start; absent: the optimizer's"),
        field("end_wd", &C::end_wd, "weight decay at the end; absent: the optimizer's"),
        field("wd_incr_steps", &C::wd_incr_steps, "steps over which weight decay changes")
            .at_least(0),
        field("wd_incr_style", &C::wd_incr_style, "constant, linear or cosine"),
        field("wsd_decay_steps", &C::wsd_decay_steps, "last steps of the WSD style").above(0),
        field("lr_wsd_decay_style", &C::lr_wsd_decay_style,
              "linear, cosine, exponential or minus_sqrt"),
        field("use_checkpoint_opt_param_scheduler", &C::use_checkpoint_opt_param_scheduler,
              "take the schedule from a checkpoint on resume"),
        field("override_opt_param_scheduler", &C::override_opt_param_scheduler,
              "take the schedule from the recipe on resume")};
  }
};

}  // namespace automodel::optim
