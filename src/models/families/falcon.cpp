#include <cstdint>

#include "core/text.h"
#include "models/decoder/family.h"

namespace automodel::models::decoder {

namespace {

/// config.json with the sizes as other families name them.
Json with_usual_sizes(ConfigReader& reader) {
  Json out = with_renamed_keys(reader, {{"n_embed", "hidden_size"},
                                        {"n_layer", "num_hidden_layers"},
                                        {"n_head", "num_attention_heads"},
                                        {"n_head_kv", "num_kv_heads"},
                                        {"ffn_hidden_size", "intermediate_size"},
                                        {"layer_norm_epsilon", "rms_norm_eps"},
                                        {"activation", "hidden_act"}});
  if (!reader.has("ffn_hidden_size")) {
    ConfigReader sizes(out);
    out["intermediate_size"] = Json(4 * sizes.size("hidden_size"));
  }
  // Heads of keys count in the newer models alone.
  const bool is_new = reader.flag("new_decoder_architecture", false);
  const bool is_shared = !is_new && reader.flag("multi_query", true);
  const Json* stated = out.find("num_kv_heads");
  out.erase("num_key_value_heads");
  if (is_shared) {
    out["num_key_value_heads"] = Json(int64_t{1});
  } else if (is_new && stated != nullptr && !stated->is_null()) {
    out["num_key_value_heads"] = Json(*stated);
  }
  return out;
}

NormPlacement read_placement(ConfigReader& reader) {
  const bool is_new = reader.flag("new_decoder_architecture", false);
  if (!is_new && !reader.flag("parallel_attn", true)) return NormPlacement::kPre;
  const int64_t num_norms = is_new ? reader.size("num_ln_in_parallel_attn", 2) : 1;
  if (num_norms > 2) {
    reader.problem(cat("num_ln_in_parallel_attn is ", num_norms, "; 1 or 2 is right"));
  }
  return num_norms == 1 ? NormPlacement::kParallel : NormPlacement::kParallelTwo;
}

DecoderConfig read_falcon(ConfigReader& reader) {
  const Json renamed = with_usual_sizes(reader);
  ConfigReader own(renamed);
  DecoderConfig config = read_common(own, {.requires_kv_heads = false,
                                           .norm_eps = 1e-5,
                                           .is_head_tied = true,
                                           .has_attention_dropout = false,
                                           .activation = "gelu"});
  config.padding_idx = -1;  // the embedding has no padding row
  config.norm = NormKind::kLayer;
  config.norm_placement = read_placement(own);
  config.is_mlp_gated = false;
  const bool has_biases = own.flag("bias", false);
  config.has_qkv_bias = config.has_attention_output_bias = config.has_mlp_bias = has_biases;
  config.is_qkv_by_group =
      own.flag("new_decoder_architecture", false) || !own.flag("multi_query", true);
  for (const char* key : {"hidden_dropout", "attention_dropout"}) {
    if (own.probability(key, 0) != 0)
      own.problem(cat(key, " is not in this version; 0 turns it off"));
  }
  if (own.flag("alibi", false)) {
    own.problem("alibi true is not in this version: attention has no biases by distance");
  }
  add_rope(own, config, {});
  reader.add_problems_of(own);
  return config;
}

}  // namespace

/// Falcon 7B, 40B, 180B and Falcon 2 11B: q, k and v in one tensor, few heads of keys, attention
/// and MLP side by side behind one LayerNorm or one each, an MLP without a gate.
extern const Family kFalcon{
    .architecture = "FalconForCausalLM",
    .model_type = "falcon",
    .config_class = "FalconConfig",
    .layer_class = "FalconDecoderLayer",
    .classifier = "FalconForSequenceClassification",
    .read_config = read_falcon,
    .names = {.embedding = "transformer.word_embeddings",
              .layers = "transformer.h",
              .final_norm = "transformer.ln_f",
              .attention = "self_attention",
              .qkv = "query_key_value",
              .output = "dense",
              .up = "dense_h_to_4h",
              .down = "dense_4h_to_h",
              .attention_own_norm = "ln_attn",
              .mlp_own_norm = "ln_mlp"},
    .flops = ungated_flops,
};

}  // namespace automodel::models::decoder
