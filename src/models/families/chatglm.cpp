#include <utility>

#include "core/text.h"
#include "models/decoder/family.h"

namespace automodel::models::decoder {

namespace {

/// config.json as GLM's, of which it differs in names.
Json as_glm(const ConfigReader& reader) {
  Json out = with_renamed_keys(reader, {{"padded_vocab_size", "vocab_size"},
                                        {"num_layers", "num_hidden_layers"},
                                        {"ffn_hidden_size", "intermediate_size"},
                                        {"kv_channels", "head_dim"},
                                        {"seq_length", "max_position_embeddings"},
                                        {"layernorm_epsilon", "rms_norm_eps"}});
  const Json* shared = reader.find("multi_query_attention");
  const bool is_shared = shared != nullptr && shared->is_bool() && shared->as_bool();
  const Json* heads = reader.find(is_shared ? "multi_query_group_num" : "num_attention_heads");
  if (heads != nullptr || is_shared) {
    out["num_key_value_heads"] = heads == nullptr ? Json(int64_t{1}) : *heads;
  }
  return out;
}

DecoderConfig read_chatglm(ConfigReader& reader) {
  const Json renamed = as_glm(reader);
  ConfigReader own(renamed);
  DecoderConfig config = read_common(
      own, {.requires_kv_heads = false, .head_dim = 128, .max_positions = 2048, .norm_eps = 1e-5});
  config.padding_idx = -1;  // the embedding has no padding row
  const bool has_biases = own.flag("add_bias_linear", false);
  config.has_qkv_bias = has_biases || own.flag("add_qkv_bias", false);
  config.has_attention_output_bias = config.has_mlp_bias = has_biases;
  config.residual_dropout = own.probability("hidden_dropout", 0);
  config.is_rope_interleaved = true;
  const double ratio = own.number("rope_ratio", 1.0);
  add_rope(own, config,
           {.theta = 10000.0 * ratio, .has_partial_default = true, .partial_default = 0.5});
  for (const auto& [key, usual] : {std::pair("rmsnorm", true),
                                   {"post_layer_norm", true},
                                   {"original_rope", true},
                                   {"apply_residual_connection_post_layernorm", false}}) {
    if (own.flag(key, usual) != usual) {
      own.problem(cat(key, usual ? " false" : " true", " is not in this version"));
    }
  }
  reader.add_problems_of(own);
  return config;
}

}  // namespace

/// ChatGLM 2 and 3 and GLM 4 9B as first released: GLM by other names, q, k and v in one tensor. Of
/// code that comes with the released files.
extern const Family kChatGlm{
    .architecture = "ChatGLMModel",
    .model_type = "chatglm",
    .config_class = "ChatGLMConfig",
    .layer_class = "GLMBlock",
    .upstream = {.architecture = "ChatGLMForConditionalGeneration"},  // of some folders
    .read_config = read_chatglm,
    .names = {.embedding = "transformer.embedding.word_embeddings",
              .layers = "transformer.encoder.layers",
              .final_norm = "transformer.encoder.final_layernorm",
              .head = "transformer.output_layer",
              .attention = "self_attention",
              .qkv = "query_key_value",
              .output = "dense",
              .gate_up = "dense_h_to_4h",
              .down = "dense_4h_to_h"},
    .kept_prefixes = {"transformer.rotary_pos_emb."},
    .flops = gated_flops,
};

}  // namespace automodel::models::decoder
