#pragma once

#include <memory>
#include <string_view>

#include "models/causal_lm.h"
#include "models/decoder/config_reader.h"
#include "models/decoder/decoder_config.h"
#include "nn/parallel_plan.h"
#include "tensor/key_map.h"

namespace automodel::models::decoder {

/// A family of models: what its folder's files define. The shared decoder builds it, or `build`.
struct Family {
  std::string_view architecture;  ///< Hugging Face's class
  std::string_view model_type;    ///< its config.json's `model_type`
  DecoderConfig (*read_config)(ConfigReader& reader);
  nn::ParallelPlan (*parallel_plan)(const DecoderConfig& config);
  tensor::KeyMap (*key_map)(const DecoderConfig& config) = nullptr;  ///< of the shared decoder's
  /// Of a family with modules of its own.
  std::shared_ptr<CausalLM> (*build)(const Json& hf_config, at::ScalarType dtype) = nullptr;
};

}  // namespace automodel::models::decoder
