#include "core/text.h"
#include "models/decoder/family.h"
#include "models/families/gpt_kind.h"

namespace automodel::models::decoder {

namespace {

DecoderConfig read_opt(ConfigReader& reader) {
  DecoderConfig config = read_gpt_kind(reader, {.hidden_size = "hidden_size",
                                                .intermediate_size = "ffn_dim",
                                                .num_layers = "num_hidden_layers",
                                                .num_heads = "num_attention_heads",
                                                .positions = "max_position_embeddings",
                                                .embedding_dropout = "",
                                                .residual_dropout = "dropout",
                                                .attention_dropout = "attention_dropout",
                                                .max_positions = 2048,
                                                .activation = "relu"});
  config.norm_eps = 1e-5;  // no key
  if (!reader.has("ffn_dim")) config.intermediate_size = 3072;
  if (!reader.has("dropout")) config.residual_dropout = 0.1;
  config.initializer_range = reader.number("init_std", 0.02);
  const bool has_biases = reader.flag("enable_bias", true);
  config.has_qkv_bias = config.has_attention_output_bias = config.has_mlp_bias = has_biases;
  config.has_learned_positions = true;
  config.first_position = 2;
  const bool has_weights = reader.flag("layer_norm_elementwise_affine", true);
  config.has_norm_weight = config.has_norm_bias = has_weights;
  // An explicit null means no padding row; only an absent key takes the default.
  config.padding_idx = reader.json().contains("pad_token_id")
                           ? reader.count("pad_token_id", 0) - (reader.has("pad_token_id") ? 0 : 1)
                           : 1;
  if (config.padding_idx >= config.vocab_size) {
    reader.problem(
        cat("pad_token_id ", config.padding_idx, " is outside vocab_size ", config.vocab_size));
    config.padding_idx = -1;
  }
  if (!reader.flag("do_layer_norm_before", true) ||
      reader.flag("_remove_final_layer_norm", false) ||
      reader.size("word_embed_proj_dim", config.hidden_size) != config.hidden_size) {
    reader.problem(
        "do_layer_norm_before false, _remove_final_layer_norm and a word_embed_proj_dim other than "
        "hidden_size (OPT 350M) are not in this version");
  }
  if (reader.probability("layerdrop", 0) != 0) {
    reader.problem("layerdrop is not in this version; 0 turns it off");
  }
  return config;
}

}  // namespace

/// OPT: LayerNorms, biases, learned positions behind two rows without use, a ReLU MLP.
extern const Family kOpt{
    .architecture = "OPTForCausalLM",
    .model_type = "opt",
    .config_class = "OPTConfig",
    .layer_class = "OPTDecoderLayer",
    .classifier = "OPTForSequenceClassification",
    .read_config = read_opt,
    .names = {.embedding = "model.decoder.embed_tokens",
              .positions = "model.decoder.embed_positions",
              .layers = "model.decoder.layers",
              .final_norm = "model.decoder.final_layer_norm",
              .output = "out_proj",
              .mlp = "",
              .up = "fc1",
              .down = "fc2",
              .attention_pre_norm = "self_attn_layer_norm",
              .mlp_pre_norm = "final_layer_norm"},
    .flops = ungated_flops,
};

}  // namespace automodel::models::decoder
