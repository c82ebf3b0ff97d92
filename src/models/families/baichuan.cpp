#include "core/text.h"
#include "models/decoder/family.h"

namespace automodel::models::decoder {

namespace {

/// Findings for the 13B models, and for keys that would change what the 7B model computes.
void refuse_absent_options(ConfigReader& reader, DecoderConfig& config) {
  // Their files have model_max_length alone, those of 7B both.
  const bool has_biases_by_distance =
      reader.has("model_max_length") && !reader.has("max_position_embeddings");
  if (has_biases_by_distance || config.hidden_size == 5120) {
    reader.problem(
        "this is a Baichuan 13B, whose attention has biases by distance (ALiBi) and no rotation; "
        "built is the 7B model");
  }
  if (config.num_kv_heads != config.num_heads ||
      config.head_dim * config.num_heads != config.hidden_size) {
    reader.problem(
        "q, k and v of this family's models have hidden_size rows each: num_key_value_heads and "
        "head_dim do not change them");
    config.num_kv_heads = config.num_heads;
  }
  if (reader.number("rope_theta", 1e4) != 1e4 || reader.has("rope_scaling")) {
    reader.problem("this family rotates by theta 10000 alone: no rope_theta or rope_scaling");
  }
  if (reader.number("z_loss_weight", 0) != 0) {
    reader.problem("z_loss_weight is not built in this version; 0 turns it off");
  }
  if (config.is_head_tied) {
    reader.problem(
        "tie_word_embeddings is true; this family's head has rows of length 1, the embedding not");
    config.is_head_tied = false;
  }
}

DecoderConfig read_baichuan(ConfigReader& reader) {
  DecoderConfig config =
      read_common(reader, {.requires_kv_heads = false, .max_positions = 4096, .padding_idx = 0});
  config.is_head_normed = true;
  refuse_absent_options(reader, config);
  add_rope(reader, config, {});
  return config;
}

}  // namespace

/// Baichuan 2 7B: a Llama with one tensor for q, k and v, and a head whose rows are divided by
/// their lengths.
extern const Family kBaichuan{
    .architecture = "BaichuanForCausalLM",
    .model_type = "baichuan",
    .config_class = "BaichuanConfig",
    .layer_class = "DecoderLayer",
    .upstream = {.config_class =
                     "nemo_automodel.components.models.baichuan.configuration.BaichuanConfig"},
    .read_config = read_baichuan,
    .names = {.qkv = "W_pack"},
    .flops = gated_flops,
};

}  // namespace automodel::models::decoder
