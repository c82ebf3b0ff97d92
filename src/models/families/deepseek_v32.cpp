#include "models/decoder/family.h"
#include "models/decoder/latent_reader.h"
#include "models/decoder/moe_reader.h"

namespace automodel::models::decoder {

namespace {

DecoderConfig read_deepseek_v32(ConfigReader& reader) {
  DecoderConfig config = read_common(reader, {.requires_kv_heads = false,
                                              .head_dim = 64,
                                              .intermediate_size = 18432,
                                              .max_positions = 163840});
  add_latent_attention(reader, config, {.reads_interleaving = false});
  add_indexer(reader, config, {.num_heads = 64});
  add_corrected_experts(reader, config, deepseek_experts());
  read_mlp_layer_types(reader, config);
  read_next_token_layers(reader, config);
  return config;
}

}  // namespace

/// DeepSeek V3.2: DeepSeek V3 with an indexer in every layer, which chooses the keys that a query
/// sees.
extern const Family kDeepseekV32{
    .architecture = "DeepseekV32ForCausalLM",
    .model_type = "deepseek_v32",
    .config_class = "DeepseekV32Config",
    .layer_class = "DeepseekV32DecoderLayer",
    .experts_class = "DeepseekV32Experts",
    .upstream = {.config_class =
                     "nemo_automodel.components.models.deepseek_v32.config.DeepseekV32Config"},
    .read_config = read_deepseek_v32,
    .flops = sparse_latent_flops,
};

}  // namespace automodel::models::decoder
