#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "models/decoder/config_reader.h"

namespace automodel::models::decoder {

/// A family's config.json keys for the sizes of experts, and the defaults of its config class.
struct MoEKeys {
  std::string_view num_experts = "num_experts";
  std::string_view num_experts_alias;  ///< read when the first is absent; or ""
  int64_t default_num_experts = 0;     ///< 0: the key is required
  std::string_view inner_dim = "moe_intermediate_size";
  int64_t default_inner_dim = 0;  ///< 0: the key is required
  std::string_view num_chosen = "num_experts_per_tok";
  int64_t default_num_chosen = 0;  ///< 0: the key is required
};

/// Sizes of the experts, checked. Experts take `config.activation`, gated unless the MLPs have no
/// gate (`config.is_mlp_gated`), which is read for relu2 only.
moe::MoEConfig read_experts(ConfigReader& reader, const DecoderConfig& config, const MoEKeys& keys);

/// Defaults of a family's config class.
struct GroupDefaults {
  int64_t num_groups = 1;
  int64_t num_limited = 1;
};

/// A family's keys for what DeepSeek V3 names so.
struct CorrectedKeys {
  std::string_view num_shared = "n_shared_experts";
  std::string_view num_groups = "n_group";
  std::string_view norm_topk_prob = "norm_topk_prob";
};

/// Defaults for DeepSeek V3's layers of experts: sigmoid scores with a correction for the choice,
/// groups, shared experts, dense layers before first_k_dense_replace. A recipe's moe_overrides may
/// set gate_bias_update_factor.
struct CorrectedDefaults {
  MoEKeys keys;
  CorrectedKeys own_keys = {};
  bool norm_topk_prob = true;
  GroupDefaults groups;
  double route_scale = 1.0;
  int64_t num_dense = 1;
  double bias_update_factor = 0;  ///< amount by which each step moves the correction
};
void add_corrected_experts(ConfigReader& reader, DecoderConfig& config,
                           const CorrectedDefaults& defaults);

/// Reads and checks the experts' groups and topk_group, of which a token chooses.
void read_expert_groups(ConfigReader& reader, moe::MoEConfig& moe,
                        const CorrectedDefaults& defaults);

/// The defaults of DeepSeek V3's config class, which later families took over.
CorrectedDefaults deepseek_experts();

/// The amount by which a recipe has each step move the correction: moe_overrides'
/// gate_bias_update_factor.
double read_bias_update_factor(ConfigReader& reader, double fallback);

/// Adds a finding for `router_jitter_noise`, which no router here has.
void refuse_router_jitter(ConfigReader& reader);

/// Makes the layers from `first` on layers of experts.
void use_experts_from(DecoderConfig& config, int64_t first);

/// Makes every `decoder_sparse_step`-th layer one of experts, except those in `mlp_only_layers`
/// (Qwen).
void use_experts_by_step(ConfigReader& reader, DecoderConfig& config);

/// Reads from `mlp_layer_types` ("dense", "sparse"), if present, which layers have experts.
void read_mlp_layer_types(ConfigReader& reader, DecoderConfig& config);

/// `num_nextn_predict_layers`: layers that checkpoints have behind the last one.
void read_next_token_layers(ConfigReader& reader, DecoderConfig& config);

}  // namespace automodel::models::decoder
