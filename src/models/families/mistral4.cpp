#include "models/decoder/family.h"
#include "models/decoder/latent_reader.h"
#include "models/decoder/moe_reader.h"
#include "models/families/mistral_kind.h"
#include "models/families/text_config.h"

namespace automodel::models::decoder {

DecoderConfig read_mistral4(ConfigReader& reader) {
  DecoderConfig config =
      read_common(reader, {.requires_kv_heads = false,
                           .head_dim = 64,  // the key is not read: latent attention has its own
                           .intermediate_size = 12288,
                           .max_positions = 1048576,
                           .padding_idx = 11});
  const Json absent_rope = mistral_yarn(1e4, 128.0, 8192);
  add_latent_attention(reader, config,
                       {.q_rank = 1024,
                        .kv_rank = 256,
                        .plain_dim = 64,
                        .scales_queries = true,
                        .is_partial_of_heads = true,
                        .absent_rope = &absent_rope});
  add_corrected_experts(reader, config,
                        {.keys = {.num_experts = "n_routed_experts",
                                  .num_experts_alias = "num_local_experts",
                                  .default_num_experts = 128,
                                  .default_inner_dim = 2048,
                                  .default_num_chosen = 4},
                         .num_dense = 0});
  // Scores are a softmax over all experts; upstream's correction stays zero, and transformers has
  // none.
  config.moe->score_func = moe::ScoreFunction::kSoftmax;
  config.moe->softmax_before_topk = true;
  config.moe->has_correction_bias = false;
  config.moe->is_router_float32 = false;
  return config;
}

/// Mistral Small 4's text model: DeepSeek's latent attention with queries scaled by their position,
/// experts chosen by a softmax, shared experts.
extern const Family kMistral4{
    .architecture = "Mistral4ForCausalLM",
    .model_type = "mistral4",
    .config_class = "Mistral4Config",
    .layer_class = "Mistral4DecoderLayer",
    .experts_class = "Mistral4Experts",
    .classifier = "Mistral4ForSequenceClassification",
    .upstream = {.config_class =
                     "nemo_automodel.components.models.mistral4.configuration.Mistral4Config"},
    .read_config = read_mistral4,
    .names = {.are_experts_stacked = true},
    .flops = gated_flops,
};

}  // namespace automodel::models::decoder
