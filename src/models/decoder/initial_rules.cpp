#include "models/decoder/initial_rules.h"

#include <cmath>
#include <optional>

#include "core/text.h"

namespace automodel::models::decoder {

using tensor::InitRule;

namespace {

/// Initial values of parameters that only layers with a state have; nullopt for others.
std::optional<InitRule> state_rule(const DecoderConfig& config, std::string_view name) {
  const auto is = [&](std::string_view end) { return name.ends_with(end); };
  const auto is_own = [&](std::string_view end) {
    return is(cat(".attention", end)) || is(cat(".mamba", end));
  };
  if (is_own(".norm.weight") || is_own(".D")) return InitRule::constant(1.0);
  if (config.gated_delta && config.gated_delta->has_row_decays) {
    if (is(".attention.A_log")) return InitRule{InitRule::Kind::kLogUniform, 1.0, 16.0};
    if (is(".attention.dt_bias")) return InitRule{InitRule::Kind::kSoftplusOf, 1e-3, 1e-1, 1e-4};
    return std::nullopt;
  }
  if (!config.mamba2) {
    if (is(".attention.A_log")) return InitRule{InitRule::Kind::kLogUniform, 0.01, 16.0};
    if (is(".attention.dt_bias")) return InitRule::constant(1.0);
    return std::nullopt;
  }
  const Mamba2Options& mamba = *config.mamba2;
  if (is_own(".A_log")) return InitRule{InitRule::Kind::kLogCount};
  if (is_own(".dt_bias") && mamba.is_step_bias_one) return InitRule::constant(1.0);
  if (is_own(".dt_bias")) {
    return InitRule{InitRule::Kind::kSoftplusOf, mamba.init_min_step, mamba.init_max_step,
                    mamba.init_step_floor};
  }
  if (is_own(".out_proj.weight") && mamba.is_residual_init_scaled) {
    const auto fan_in = static_cast<double>(mamba.inner());
    const double bound = 1.0 / std::sqrt(fan_in * static_cast<double>(config.num_layers()));
    return InitRule{InitRule::Kind::kUniform, -bound, bound};
  }
  return std::nullopt;
}

/// Initial values of parameters that only DeepSeek V4's layers have; nullopt for others.
std::optional<InitRule> stream_rule(const DecoderConfig& config, std::string_view name) {
  if (name.ends_with(".router.tid2eid")) {
    // Any expert is as likely; whole numbers cut the fractions off.
    return InitRule{InitRule::Kind::kUniform, 0, static_cast<double>(config.moe->n_routed_experts)};
  }
  if (!config.hyper_connections) return std::nullopt;
  const bool is_hc = name.find("_hc.") != std::string_view::npos ||
                     name.find(".hc_head.") != std::string_view::npos;
  if (is_hc && name.ends_with(".base")) return InitRule::constant(0.0);
  if (is_hc && name.ends_with(".scale")) return InitRule::constant(1.0);
  if (name.ends_with(".attention.sinks")) return InitRule::constant(0.0);
  return std::nullopt;
}

}  // namespace

InitRule initial_rule(const DecoderConfig& config, std::string_view parameter) {
  if (const auto own = state_rule(config, parameter)) return *own;
  if (const auto own = stream_rule(config, parameter)) return *own;
  if (config.are_first_sinks_zero && parameter.ends_with(".attention.sinks")) {
    return InitRule::constant(0.0);
  }
  if (config.has_xielu) {
    if (parameter.ends_with(".mlp.alpha_p")) return InitRule::constant(std::log(std::expm1(0.8)));
    if (parameter.ends_with(".mlp.alpha_n")) return InitRule::constant(std::log(std::expm1(0.3)));
    if (parameter.ends_with(".mlp.beta")) return InitRule::constant(0.5);
    if (parameter.ends_with(".mlp.eps")) return InitRule::constant(-1e-6);
  }
  const double deviation = config.initializer_range == 0 ? 0.02 : config.initializer_range;
  const auto is = [&](std::string_view end) { return parameter.ends_with(end); };
  if (is("bias")) return InitRule::constant(0.0);
  if (is(".layer_scalar") || is(".moe.router.scale") || is(".per_expert_scale")) {
    return InitRule::constant(1.0);
  }
  if (parameter == "model.norm.weight" && config.is_final_norm_rms) return InitRule::constant(1.0);
  if (is(".router.weight") && config.are_routers_zero_first) return InitRule::constant(0.0);
  if (is("norm.weight")) {
    return InitRule::constant(config.norm == NormKind::kRmsPlusOne ? 0.0 : 1.0);
  }
  InitRule rule = InitRule::normal(0.0, deviation);
  const bool is_scaled = config.is_residual_init_scaled
                             ? is("o_proj.weight") || is("down_proj.weight") || is("pooler.weight")
                             : config.is_attention_init_scaled && is("o_proj.weight");
  if (is("embed_tokens.weight")) {
    rule.zero_row = config.padding_idx;
    if (config.embedding_initializer_range > 0) rule.b = config.embedding_initializer_range;
  } else if (is("embed_positions.weight")) {
    rule.zero_row = config.padding_position();
  } else if (is_scaled) {
    rule.b = deviation / std::sqrt(2.0 * static_cast<double>(config.num_layers()));
  } else if (is("lm_head.weight") && config.class_initializer_range > 0) {
    rule.b = config.class_initializer_range;
  }
  if (config.initializer_cut > 0) {
    rule.kind = InitRule::Kind::kTruncatedNormal;
    rule.cut = config.initializer_cut * rule.b;
  }
  return rule;
}

}  // namespace automodel::models::decoder
