
#include "models/decoder/distance_slopes.h"
#include "models/decoder/family.h"
#include "models/families/gpt_kind.h"

namespace automodel::models::decoder {

namespace {

DecoderConfig read_bloom(ConfigReader& reader) {
  const Json renamed = with_renamed_keys(reader, {{"n_embed", "hidden_size"},
                                                  {"num_hidden_layers", "n_layer"},
                                                  {"num_attention_heads", "n_head"}});
  ConfigReader own(renamed);
  DecoderConfig config = read_gpt_kind(own, {.hidden_size = "hidden_size",
                                             .intermediate_size = "",
                                             .positions = "seq_length",
                                             .embedding_dropout = "",
                                             .residual_dropout = "hidden_dropout",
                                             .attention_dropout = "attention_dropout",
                                             .max_positions = 2048,
                                             .activation = "gelu_pytorch_tanh"});
  config.activation = kernels::Activation::kGeluTanh;  // no key
  config.is_qkv_by_group = true;
  config.has_placed_norm = true;
  config.has_qkv_bias = config.has_attention_output_bias = config.has_mlp_bias = true;
  config.distance_slopes = alibi_slopes(config.num_heads);
  if (own.flag("apply_residual_connection_post_layernorm", false)) {
    own.problem("apply_residual_connection_post_layernorm true is not in this version");
  }
  reader.add_problems_of(own);
  return config;
}

}  // namespace

/// BLOOM: a norm behind the embedding, q, k and v of each head behind one another in one tensor,
/// biases, and scores that fall with the distance (ALiBi).
extern const Family kBloom{
    .architecture = "BloomForCausalLM",
    .model_type = "bloom",
    .config_class = "BloomConfig",
    .layer_class = "BloomBlock",
    .classifier = "BloomForSequenceClassification",
    .read_config = read_bloom,
    .names = {.embedding = "transformer.word_embeddings",
              .layers = "transformer.h",
              .final_norm = "transformer.ln_f",
              .placed_norm = "transformer.word_embeddings_layernorm",
              .attention = "self_attention",
              .qkv = "query_key_value",
              .output = "dense",
              .up = "dense_h_to_4h",
              .down = "dense_4h_to_h"},
    .flops = ungated_flops,
};

}  // namespace automodel::models::decoder
