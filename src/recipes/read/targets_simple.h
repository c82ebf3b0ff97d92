#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "config/diagnostic.h"
#include "config/node.h"
#include "config/registry.h"
#include "models/facts.h"
#include "recipes/read/loss_settings.h"

namespace automodel::recipes {

using LossMaker =
    std::function<LossSettings(const config::Target& target, config::Diagnostics& diagnostics)>;

/// A way to write `model._target_`.
struct ModelTarget {
  enum class Form { kFromPretrained, kFromConfig, kGpt2Builder };
  Form form = Form::kFromPretrained;
  bool classifies = false;        ///< sequences; else it is a language model
  bool reads_sources = false;     ///< a language model of an encoder and a decoder
  bool makes_embeddings = false;  ///< of texts
};

/// A way to write `model.config._target_`: config.json of a folder, or the keys themselves.
enum class ModelConfigTarget { kFolder, kInline };

/// What a `collate_fn` does with the samples of a batch.
enum class CollateTarget { kPad, kStack, kQueriesAndPassages };

/// The maker of names that are accepted and choose nothing.
struct AcceptedTarget {};

/// One registry for each kind of name that a recipe may use. A name maps to data: no name can load
/// code.
config::TargetRegistry<LossMaker> loss_targets();
/// Names of `kd_loss_fn._target_`; its options are KDLossConfig.
config::TargetRegistry<AcceptedTarget> kd_loss_targets();
config::TargetRegistry<ModelTarget> model_targets();
config::TargetRegistry<CollateTarget> collate_targets();
/// Names of `dataloader._target_`; all mean the same loader.
config::TargetRegistry<AcceptedTarget> dataloader_targets();
/// Names of `tokenizer._target_`; all read tokenizer.json.
config::TargetRegistry<AcceptedTarget> tokenizer_targets();
config::TargetRegistry<ModelConfigTarget> model_config_targets();
/// The paths of a family's class in transformers.
struct ClassPaths {
  std::string in_file;    ///< "transformers.models.llama.modeling_llama.LlamaDecoderLayer"
  std::string in_module;  ///< "transformers.models.llama.LlamaDecoderLayer"
};
ClassPaths class_paths(const models::FamilyFacts& family, const char* file, std::string_view name);
/// The names of the `recipe` key.
config::TargetRegistry<AcceptedTarget> recipe_targets();

/// Reads the `loss_fn` section; null gives the default (part of read_recipe).
LossSettings read_loss(const config::Node* node, config::Diagnostics& diagnostics);

}  // namespace automodel::recipes
