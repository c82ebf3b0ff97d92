#include "models/decoder/family.h"
#include "models/t5/t5_config.h"
#include "models/t5/t5_model.h"

namespace automodel::models::decoder {

/// T5, of modules of its own: an encoder and a decoder. T5 1.1 and Flan-T5 are configurations.
extern const Family kT5{
    .architecture = "T5ForConditionalGeneration",
    .model_type = "t5",
    .config_class = "T5Config",
    .layer_class = "T5Block",
    .read_config = t5::read_config,
    .is_encoder_decoder = true,
    .flops = nullptr,
    .build = t5::build_t5,
};

extern const Family kMt5{
    .architecture = "MT5ForConditionalGeneration",
    .model_type = "mt5",
    .config_class = "MT5Config",
    .layer_class = "MT5Block",
    .read_config = t5::read_config,
    .is_encoder_decoder = true,
    .flops = nullptr,
    .build = t5::build_mt5,
};

}  // namespace automodel::models::decoder
