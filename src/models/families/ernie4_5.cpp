#include "models/decoder/family.h"
#include "models/families/ernie_kind.h"

namespace automodel::models::decoder {

namespace {

DecoderConfig read_ernie4_5(ConfigReader& reader) {
  return read_ernie_kind(reader, 128);
}

}  // namespace

/// ERNIE 4.5: Llama with neighbouring dims rotated and optional biases.
extern const Family kErnie4p5{
    .architecture = "Ernie4_5ForCausalLM",
    .model_type = "ernie4_5",
    .config_class = "Ernie4_5Config",
    .layer_class = "Ernie4_5DecoderLayer",
    .read_config = read_ernie4_5,
    .flops = gated_flops,
};

}  // namespace automodel::models::decoder
