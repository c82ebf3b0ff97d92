#include "core/text.h"
#include "models/decoder/family.h"

namespace automodel::models::decoder {

namespace {

DecoderConfig read_gpt_neox(ConfigReader& reader) {
  DecoderConfig config = read_common(reader, {.requires_kv_heads = false, .activation = "gelu"});
  config.padding_idx = -1;  // the embedding has no padding row
  if (config.num_kv_heads != config.num_heads ||
      config.num_heads * config.head_dim != config.hidden_size) {
    reader.problem("a GPT-NeoX has as many heads of keys as of queries, of hidden_size together");
    config.num_kv_heads = config.num_heads;
  }
  config.is_qkv_by_group = true;
  config.norm = NormKind::kLayer;
  config.norm_eps = reader.not_negative("layer_norm_eps", 1e-5);
  if (reader.flag("use_parallel_residual", true)) {
    config.norm_placement = NormPlacement::kParallelTwo;
  }
  config.is_mlp_gated = false;
  config.has_qkv_bias = reader.flag("attention_bias", true);
  config.has_attention_output_bias = config.has_qkv_bias;
  config.has_mlp_bias = true;
  config.residual_dropout = config.embedding_dropout = reader.probability("hidden_dropout", 0);
  add_rope(reader, config,
           {.theta_key = "rotary_emb_base",
            .partial_key = "rotary_pct",
            .has_partial_default = true,
            .partial_default = 0.25});
  return config;
}

}  // namespace

/// GPT-NeoX and Pythia: attention and MLP side by side with a LayerNorm each, q, k and v of each
/// head behind one another in one tensor, an MLP without a gate, a quarter of a head's dims
/// rotated.
extern const Family kGptNeoX{
    .architecture = "GPTNeoXForCausalLM",
    .model_type = "gpt_neox",
    .config_class = "GPTNeoXConfig",
    .layer_class = "GPTNeoXLayer",
    .classifier = "GPTNeoXForSequenceClassification",
    .read_config = read_gpt_neox,
    .names = {.embedding = "gpt_neox.embed_in",
              .layers = "gpt_neox.layers",
              .final_norm = "gpt_neox.final_layer_norm",
              .head = "embed_out",
              .attention = "attention",
              .qkv = "query_key_value",
              .output = "dense",
              .up = "dense_h_to_4h",
              .down = "dense_4h_to_h"},
    .module_names = {{{"embed_out", "lm_head"}}},
    .stand_ins = {{{"embed_out.weight", "lm_head.weight"}}},
    .flops = ungated_flops,
};

}  // namespace automodel::models::decoder
