#pragma once

#include <string_view>

#include "models/decoder/config_reader.h"
#include "models/decoder/decoder_config.h"
#include "nn/parallel_plan.h"
#include "tensor/key_map.h"

namespace automodel::models::decoder {

/// A family of models that the shared decoder builds: what its folder's three files define.
struct Family {
  std::string_view architecture;  ///< Hugging Face's class
  std::string_view model_type;    ///< its config.json's `model_type`
  DecoderConfig (*read_config)(ConfigReader& reader);
  nn::ParallelPlan (*parallel_plan)(const DecoderConfig& config);
  tensor::KeyMap (*key_map)(const DecoderConfig& config);
};

}  // namespace automodel::models::decoder
