#pragma once

#include <c10/core/ScalarType.h>

#include <array>
#include <memory>
#include <string_view>

#include "models/decoder/config_reader.h"
#include "models/decoder/decoder_config.h"
#include "models/decoder/decoder_flops.h"
#include "models/decoder/hf_names.h"
#include "nn/parallel_plan.h"

namespace automodel::models {
class CausalLM;
}

namespace automodel::models::decoder {

/// What tensors' names begin with in a family's files, and what the modules of transformers have
/// there instead.
struct ModuleName {
  std::string_view in_files;
  std::string_view in_modules;
};

/// All facts of a family of models, one row a family in families/. The shared decoder builds it, or
/// `build`. Classes are those of transformers, by the names that recipes and upstream use.
struct Family {
  std::string_view architecture;        ///< the model's class
  std::string_view model_type;          ///< its config.json's `model_type`
  std::string_view module = {};         ///< in transformers.models; "" where it is the model type
  std::string_view config_class;        ///< the configuration's class
  std::string_view layer_class;         ///< the layers' class
  std::string_view experts_class = {};  ///< the class of a layer's grouped experts; "" without

  DecoderConfig (*read_config)(ConfigReader& reader);
  HfNames names = {};  ///< of the tensors in its checkpoints
  /// Where transformers' modules have other names than the tensors; PEFT names adapters by modules.
  std::array<ModuleName, 2> module_names = {};
  /// Beginnings of names of tensors that its checkpoints have and the model has not (layers that
  /// predict further tokens, towers): left alone when loaded, taken over when saved.
  std::array<std::string_view, 2> kept_prefixes = {};
  nn::ParallelPlan (*parallel_plan)(const DecoderConfig& config) = make_parallel_plan;
  double (*flops)(const DecoderConfig& config, double num_sequences, double length);
  /// Builds a model of the family's own modules; null where the shared decoder does.
  std::shared_ptr<CausalLM> (*build)(const Json& hf_config, at::ScalarType dtype) = nullptr;
};

}  // namespace automodel::models::decoder
