#include "models/decoder/family.h"

namespace automodel::models::decoder {

namespace {

DecoderConfig read_internlm2(ConfigReader& reader) {
  DecoderConfig config = read_common(reader, {.requires_kv_heads = false, .padding_idx = 2});
  config.is_qkv_by_group = true;
  config.has_qkv_bias = reader.flag("bias", true);
  config.has_attention_output_bias = config.has_qkv_bias;
  add_rope(reader, config, {});
  return config;
}

}  // namespace

/// InternLM 2 and 2.5: Llama whose queries, keys and values lie in one tensor, those of a head of
/// keys behind one another. Of code that comes with the released files.
extern const Family kInternLm2{
    .architecture = "InternLM2ForCausalLM",
    .model_type = "internlm2",
    .config_class = "InternLM2Config",
    .layer_class = "InternLM2DecoderLayer",
    .read_config = read_internlm2,
    .names = {.embedding = "model.tok_embeddings",
              .head = "output",
              .attention = "attention",
              .qkv = "wqkv",
              .output = "wo",
              .mlp = "feed_forward",
              .gate = "w1",
              .up = "w3",
              .down = "w2",
              .attention_pre_norm = "attention_norm",
              .mlp_pre_norm = "ffn_norm"},
    .flops = gated_flops,
};

}  // namespace automodel::models::decoder
