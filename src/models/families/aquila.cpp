#include "models/decoder/family.h"

namespace automodel::models::decoder {

namespace {

DecoderConfig read_aquila(ConfigReader& reader) {
  DecoderConfig config = read_common(reader, {.requires_kv_heads = false});
  add_rope(reader, config, {});
  return config;
}

}  // namespace

/// Aquila and Aquila 2: Llama by another name. Of code that comes with the released files.
extern const Family kAquila{
    .architecture = "AquilaForCausalLM",
    .model_type = "aquila",
    .config_class = "AquilaConfig",
    .layer_class = "AquilaDecoderLayer",
    .read_config = read_aquila,
    .flops = gated_flops,
};

}  // namespace automodel::models::decoder
