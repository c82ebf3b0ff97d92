#pragma once

#include <c10/core/ScalarType.h>

#include <array>
#include <memory>
#include <string_view>

#include "models/decoder/config_reader.h"
#include "models/decoder/decoder_config.h"
#include "models/decoder/decoder_flops.h"
#include "models/decoder/decoder_plan.h"
#include "models/decoder/hf_names.h"
#include "nn/parallel_plan.h"

namespace automodel::models {
class CausalLM;
}

namespace automodel::models::decoder {

/// What tensors' names begin with in a family's files, or have anywhere if it begins with a dot,
/// and what the modules of transformers have there instead.
struct ModuleName {
  std::string_view in_files;
  std::string_view in_modules;
};

struct ModuleTwin {
  std::string_view module;
  std::string_view twin;
};

/// What recipes may call a module besides its name in a family's files: upstream's model has other
/// modules there.
struct ModuleAlias {
  std::string_view in_files;  ///< how names end in the files
  std::string_view in_recipes;
};

/// Names of a family's that upstream has of its own, where transformers has others.
struct UpstreamNames {
  std::string_view architecture = {};  ///< in the config.json that it saves
  std::string_view config_class = {};  ///< dotted, as recipes name it
};

/// How a tensor's name may end in some files, instead of as the model names it.
struct StandIn {
  std::string_view name;
  std::string_view instead;
};

/// All facts about a family of models; families/ has one row per family. The shared decoder builds
/// its models unless `build` is set. Classes are named as in transformers, as recipes and upstream
/// do.
struct Family {
  std::string_view architecture;        ///< the model's class; an encoder's that classifies
  std::string_view model_type;          ///< its config.json's `model_type`
  std::string_view module = {};         ///< in transformers.models; "": same as model_type
  std::string_view config_class;        ///< the configuration's class
  std::string_view layer_class;         ///< the layers' class
  std::string_view experts_class = {};  ///< class of a layer's grouped experts; "": none
  /// PEFT takes that class's weights, which are [E, in, out], for [E, out, in]: its adapters have
  /// the two factors exchanged.
  bool exchanges_expert_factors = false;
  std::string_view classifier = {};  ///< the class that classifies sequences; "": there is none
  /// Classes of an encoder's folders, whose weights its classifier begins with.
  std::array<std::string_view, 4> bases = {};
  UpstreamNames upstream = {};

  DecoderConfig (*read_config)(ConfigReader& reader);
  HfNames names = {};  ///< tensor names in its checkpoints
  /// Where names in transformers' modules differ from the tensors'; PEFT uses the modules' names.
  std::array<ModuleName, 14> module_names = {};
  /// Modules of transformers' that have the same weights as others: what the others' names begin
  /// with there, and theirs. One module does both here.
  std::array<ModuleTwin, 2> module_twins = {};
  std::array<ModuleAlias, 4> aliases = {};
  /// Name prefixes of tensors that its checkpoints have and the model lacks (layers that predict
  /// further tokens, towers): skipped when loading, copied when saving.
  std::array<std::string_view, 4> kept_prefixes = {};
  /// Name prefixes of tensors that its files may have besides the head of a language model, and
  /// that a classifier has no use for.
  std::array<std::string_view, 3> unused_prefixes = {};
  std::array<StandIn, 5> stand_ins = {};
  bool is_encoder_decoder = false;  ///< an encoder reads a source, its decoder writes the batch
  bool trains_next_tokens = false;  ///< whether it reads num_nextn_predict_layers and builds them
  nn::ParallelPlan (*parallel_plan)(const DecoderConfig& config) = make_parallel_plan;
  /// Null for models whose work is more than a function of a sequence's length.
  double (*flops)(const DecoderConfig& config, double num_sequences, double length);
  /// Builds a model of the family's own modules; null: the shared decoder does.
  std::shared_ptr<CausalLM> (*build)(const Json& hf_config, at::ScalarType dtype) = nullptr;
};

}  // namespace automodel::models::decoder
