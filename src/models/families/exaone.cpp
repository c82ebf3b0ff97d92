
#include "models/decoder/family.h"

namespace automodel::models::decoder {

namespace {

DecoderConfig read_exaone(ConfigReader& reader) {
  Json renamed = with_renamed_keys(reader, {{"num_layers", "num_hidden_layers"},
                                            {"layer_norm_epsilon", "rms_norm_eps"},
                                            {"activation_function", "hidden_act"}});
  if (!reader.has("intermediate_size")) {
    renamed["intermediate_size"] = Json(4 * reader.size("hidden_size"));
  }
  ConfigReader own(renamed);
  DecoderConfig config =
      read_common(own, {.requires_kv_heads = false, .norm_eps = 1e-5, .is_head_tied = true});
  config.embedding_dropout = own.probability("embed_dropout", 0);
  add_rope(own, config, {});
  reader.add_problems_of(own);
  return config;
}

}  // namespace

/// EXAONE 3 and 3.5: Llama by GPT-Neo's names. Of code that comes with the released files.
extern const Family kExaone{
    .architecture = "ExaoneForCausalLM",
    .model_type = "exaone",
    .config_class = "ExaoneConfig",
    .layer_class = "ExaoneBlock",
    .read_config = read_exaone,
    .names = {.embedding = "transformer.wte",
              .layers = "transformer.h",
              .final_norm = "transformer.ln_f",
              .attention = "attn.attention",
              .output = "out_proj",
              .gate = "c_fc_0",
              .up = "c_fc_1",
              .down = "c_proj",
              .attention_pre_norm = "ln_1",
              .mlp_pre_norm = "ln_2"},
    .flops = gated_flops,
};

}  // namespace automodel::models::decoder
