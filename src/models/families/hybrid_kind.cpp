#include "models/families/hybrid_kind.h"

#include <algorithm>
#include <cstdint>

#include "core/text.h"
#include "models/decoder/mamba_reader.h"

namespace automodel::models::decoder {

Mamba2Options read_bamba_mamba(ConfigReader& reader, const DecoderConfig& config) {
  Mamba2Options mamba;
  const int64_t inner = reader.size("mamba_expand", 2) * config.hidden_size;
  mamba.num_heads = reader.size("mamba_n_heads", 128);
  const Json* head_dim = reader.find("mamba_d_head");
  const bool is_stated = head_dim != nullptr && !head_dim->is_string();  // else "auto"
  mamba.head_dim =
      is_stated ? reader.size("mamba_d_head") : std::max<int64_t>(1, inner / mamba.num_heads);
  if (mamba.inner() != inner) {
    reader.problem(cat("mamba_n_heads ", mamba.num_heads, " times mamba_d_head ", mamba.head_dim,
                       " must be mamba_expand times hidden_size, ", inner));
  }
  mamba.num_groups = reader.size("mamba_n_groups", 1);
  mamba.is_norm_grouped = false;
  mamba.state_dim = reader.size("mamba_d_state", 256);
  mamba.num_taps = reader.size("mamba_d_conv", 4);
  check_groups(reader, mamba, "mamba_n_groups", "mamba_n_heads");
  mamba.has_conv_bias = reader.flag("mamba_conv_bias", true);
  mamba.has_proj_bias = reader.flag("mamba_proj_bias", false);
  mamba.activation = config.activation;
  read_step_limits(reader, mamba);
  mamba.is_step_bias_one = true;
  mamba.is_residual_init_scaled = false;
  return mamba;
}

void use_mamba_beside(DecoderConfig& config, const std::vector<bool>& has_attention) {
  for (size_t i = 0; i < config.layers.size(); ++i) {
    if (has_attention[i]) continue;
    config.layers[i].mixer = Mixer::kMamba2;
    config.layers[i].rope = -1;
  }
}

}  // namespace automodel::models::decoder
