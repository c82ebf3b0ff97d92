#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "core/text.h"
#include "models/decoder/family.h"
#include "models/decoder/mamba_reader.h"

namespace automodel::models::decoder {

namespace {

/// A list of `count` numbers; ones when it is absent.
std::vector<double> read_multipliers(ConfigReader& reader, std::string_view key, size_t count) {
  std::vector<double> ones(count, 1.0);
  const Json* found = reader.find(key);
  if (found == nullptr) return ones;
  std::vector<double> out;
  if (found->is_array()) {
    for (const Json& value : found->as_array()) {
      if (value.is_number()) out.push_back(value.as_double());
    }
  }
  if (out.size() == count && found->size() == count) return out;
  reader.problem(cat(key, " must be a list of ", count, " numbers"));
  return ones;
}

/// Width of a Mamba-2 layer: mamba_d_ssm, or where that is null a multiple of the hidden size.
int64_t read_inner_size(ConfigReader& reader, const DecoderConfig& config) {
  const Json* stated = reader.json().find("mamba_d_ssm");
  if (stated == nullptr || !stated->is_null()) return reader.size("mamba_d_ssm", 1024);
  return reader.size("mamba_expand", 2) * config.hidden_size;
}

void read_sizes(ConfigReader& reader, const DecoderConfig& config, Mamba2Options& mamba) {
  const int64_t inner = read_inner_size(reader, config);
  mamba.num_heads = reader.size("mamba_n_heads", 128);
  const Json* head_dim = reader.find("mamba_d_head");
  const bool is_stated = head_dim != nullptr && !head_dim->is_string();
  mamba.head_dim =
      is_stated ? reader.size("mamba_d_head") : std::max<int64_t>(1, inner / mamba.num_heads);
  if (mamba.inner() != inner) {
    reader.problem(cat("mamba_n_heads ", mamba.num_heads, " times mamba_d_head ", mamba.head_dim,
                       " must be the width ", inner, " of the layer (mamba_d_ssm)"));
  }
  mamba.num_groups = reader.size("mamba_n_groups", 1);
  mamba.state_dim = reader.size("mamba_d_state", 256);
  mamba.num_taps = reader.size("mamba_d_conv", 4);
  check_groups(reader, mamba, "mamba_n_groups", "mamba_n_heads");
}

Mamba2Options read_falcon_mamba(ConfigReader& reader, const DecoderConfig& config) {
  Mamba2Options mamba;
  read_sizes(reader, config, mamba);
  mamba.has_conv_bias = reader.flag("mamba_conv_bias", true);
  mamba.has_proj_bias = reader.flag("mamba_proj_bias", false);
  if (reader.flag("projectors_bias", false) != mamba.has_proj_bias) {
    reader.problem(
        "projectors_bias and mamba_proj_bias differ: a bias of one of Mamba's projections alone is "
        "not in this version");
  }
  mamba.has_norm = reader.flag("mamba_rms_norm", false);
  mamba.is_gated_first = !reader.flag("mamba_norm_before_gate", true);
  mamba.activation = config.activation;
  read_step_limits(reader, mamba);
  mamba.is_step_bias_one = true;
  mamba.is_residual_init_scaled = false;
  mamba.input_scale = reader.number("ssm_in_multiplier", 1.0);
  mamba.output_scale = reader.number("ssm_out_multiplier", 1.0);
  const std::vector<double> scales =
      read_multipliers(reader, "ssm_multipliers", mamba.row_scales.size());
  std::copy(scales.begin(), scales.end(), mamba.row_scales.begin());
  return mamba;
}

DecoderConfig read_falcon_h1(ConfigReader& reader) {
  DecoderConfig config =
      read_common(reader, {.max_positions = 8192, .norm_eps = 1e-5, .padding_idx = 0});
  config.has_qkv_bias = reader.flag("attention_bias", false);
  config.has_attention_output_bias = config.has_qkv_bias;
  config.has_mlp_bias = reader.flag("mlp_bias", false);
  config.embedding_scale = reader.number("embedding_multiplier", 1.0);
  config.logit_scale = reader.number("lm_head_multiplier", 1.0);
  config.attention_input_scale = reader.number("attention_in_multiplier", 1.0);
  config.attention_output_scale = reader.number("attention_out_multiplier", 1.0);
  const std::vector<double> mlp = read_multipliers(reader, "mlp_multipliers", 2);
  config.mlp_gate_scale = mlp[0];
  config.mlp_output_scale = mlp[1];
  config.mamba2 = read_falcon_mamba(reader, config);
  // Keys are multiplied by it, so scores are.
  const double keys = reader.number("key_multiplier", 1.0);
  if (!(keys > 0)) reader.problem(cat("key_multiplier is ", keys, "; it must be above 0"));
  for (LayerOptions& layer : config.layers) {
    layer.mixer = Mixer::kAttentionAndMamba2;
    layer.attention_scale = keys / std::sqrt(static_cast<double>(config.head_dim));
  }
  add_rope(reader, config, {});
  return config;
}

/// Only MLPs, the embedding and the head are split over tensor-parallel ranks, as upstream does:
/// both mixers of a layer are whole on every rank.
nn::ParallelPlan falcon_h1_plan(const DecoderConfig& config) {
  nn::ParallelPlan plan = make_parallel_plan(config);
  plan.no_tp_reasons.clear();
  plan.no_sp_reasons = {"attention and Mamba-2 beside it are whole on every rank"};
  std::erase_if(plan.tp_rules, [](const nn::TpRule& rule) {
    return rule.pattern.find(".attention.") != std::string::npos;
  });
  return plan;
}

/// Llama's formula with that of the Mamba-2 layers.
double falcon_h1_flops(const DecoderConfig& config, double B, double S) {
  return gated_flops(config, B, S) + mamba_flops(config, B, S);
}

}  // namespace

/// Falcon-H1: in each layer attention and Mamba-2 read the same input, with multipliers at the
/// edges of every part.
extern const Family kFalconH1{
    .architecture = "FalconH1ForCausalLM",
    .model_type = "falcon_h1",
    .config_class = "FalconH1Config",
    .layer_class = "FalconH1DecoderLayer",
    .read_config = read_falcon_h1,
    .names = {.final_norm = "model.final_layernorm",
              .recurrence = "mamba",
              .mlp = "feed_forward",
              .mlp_pre_norm = "pre_ff_layernorm"},
    .parallel_plan = falcon_h1_plan,
    .flops = falcon_h1_flops,
};

}  // namespace automodel::models::decoder
