#include "core/text.h"
#include "models/decoder/family.h"
#include "models/families/gpt_kind.h"

namespace automodel::models::decoder {

namespace {

DecoderConfig read_gptj(ConfigReader& reader) {
  DecoderConfig config = read_gpt_kind(reader, {.max_positions = 2048, .is_head_tied = false});
  config.norm_placement = NormPlacement::kParallel;
  config.has_mlp_bias = true;
  config.has_head_bias = true;
  if (config.is_head_tied) {
    reader.problem("tie_word_embeddings true is not in this version: the head has a bias");
  }
  nn::RopeOptions rope;
  rope.rotary_dim = config.head_dim;  // of a null
  if (reader.has("rotary_dim") || !reader.json().contains("rotary_dim")) {
    rope.rotary_dim = reader.size("rotary_dim", 64);
  }
  if (rope.rotary_dim > config.head_dim || rope.rotary_dim % 2 != 0) {
    reader.problem(cat("rotary_dim ", rope.rotary_dim, " must be even and at most the ",
                       config.head_dim, " dims of a head (n_embd / n_head)"));
    rope.rotary_dim = 2;
  }
  rope.max_positions = rope.original_max_positions = config.max_positions;
  config.ropes = {rope};
  config.is_rope_interleaved = true;
  for (LayerOptions& layer : config.layers) layer.rope = 0;
  return config;
}

}  // namespace

/// GPT-J: one LayerNorm before attention and MLP, which are side by side, neighbouring dims of a
/// part of each head rotated, biases in the MLP and the head.
extern const Family kGptJ{
    .architecture = "GPTJForCausalLM",
    .model_type = "gptj",
    .config_class = "GPTJConfig",
    .layer_class = "GPTJBlock",
    .classifier = "GPTJForSequenceClassification",
    .read_config = read_gptj,
    .names = {.embedding = "transformer.wte",
              .layers = "transformer.h",
              .final_norm = "transformer.ln_f",
              .attention = "attn",
              .output = "out_proj",
              .up = "fc_in",
              .down = "fc_out",
              .attention_pre_norm = "ln_1",
              .mlp_pre_norm = ""},
    .flops = gpt_flops,
};

}  // namespace automodel::models::decoder
