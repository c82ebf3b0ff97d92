#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "models/decoder/config_reader.h"

namespace automodel::models::decoder {

/// Where a family's config.json has the sizes of its experts, and the values of its config class.
struct MoEKeys {
  std::string_view num_experts = "num_experts";
  std::string_view num_experts_alias;  ///< read when the first is absent; or ""
  int64_t default_num_experts = 0;     ///< 0: must be there
  std::string_view inner_dim = "moe_intermediate_size";
  int64_t default_inner_dim = 0;  ///< 0: must be there
  std::string_view num_chosen = "num_experts_per_tok";
  int64_t default_num_chosen = 0;  ///< 0: must be there
};

/// Sizes of the experts, checked. Experts take `config.activation`, gated unless the MLPs have no
/// gate (`config.is_mlp_gated`), which is read for relu2 only.
moe::MoEConfig read_experts(ConfigReader& reader, const DecoderConfig& config, const MoEKeys& keys);

/// Values of a family's config class.
struct GroupDefaults {
  int64_t num_groups = 1;
  int64_t num_limited = 1;
};

/// DeepSeek V3's layers of experts: sigmoid scores with a correction for the choice, groups, shared
/// experts, the layers before first_k_dense_replace dense. A recipe's moe_overrides may set
/// gate_bias_update_factor.
struct CorrectedDefaults {
  MoEKeys keys;
  GroupDefaults groups;
  double route_scale = 1.0;
  int64_t num_dense = 1;
  double bias_update_factor = 0;  ///< by which each step moves the correction
};
void add_corrected_experts(ConfigReader& reader, DecoderConfig& config,
                           const CorrectedDefaults& defaults);

/// Finds fault with `router_jitter_noise`, which no router here has.
void refuse_router_jitter(ConfigReader& reader);

/// Layers from `first` on are layers of experts.
void use_experts_from(DecoderConfig& config, int64_t first);

/// Every `decoder_sparse_step`-th layer is one of experts, but for those in `mlp_only_layers`
/// (Qwen).
void use_experts_by_step(ConfigReader& reader, DecoderConfig& config);

/// `mlp_layer_types` ("dense", "sparse"), where it is there, says which layers are of experts.
void read_mlp_layer_types(ConfigReader& reader, DecoderConfig& config);

}  // namespace automodel::models::decoder
