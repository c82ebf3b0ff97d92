#include "recipes/read/section_targets.h"

#include <algorithm>
#include <string>
#include <vector>

#include "core/error.h"

namespace automodel::recipes {

namespace {

/// The class of a section, with the module that defines it first.
struct SectionClass {
  const char* section;
  const char* kind;
  const char* name;
  std::vector<const char*> modules;
};

const std::vector<SectionClass>& section_classes() {
  static const std::vector<SectionClass> kClasses = {
      {"rng",
       "random number generator",
       "StatefulRNG",
       {"nemo_automodel.components.training.rng.", "nemo_automodel.components.training.", ""}},
      {"backend",
       "backend configuration",
       "BackendConfig",
       {"nemo_automodel.components.models.common.",
        "nemo_automodel.components.models.common.utils.", "nemo_automodel.components.moe.utils.",
        ""}},
      {"te_fp8",
       "fp8 configuration",
       "TEFp8Config",
       {"nemo_automodel.components.models.common.utils.",
        "nemo_automodel.components.models.common.", ""}},
      {"quantization",
       "quantization configuration",
       "BitsAndBytesConfig",
       {"transformers.", "transformers.utils.quantization_config.", ""}},
      {"embedding_row_repair",
       "repair configuration",
       "EmbeddingRowRepairConfig",
       {"nemo_automodel.components.training.embedding_row_repair.", ""}},
      {"mlflow",
       "tracker configuration",
       "MLflowConfig",
       {"nemo_automodel.components.loggers.loggers.", ""}},
      {"comet",
       "tracker configuration",
       "CometConfig",
       {"nemo_automodel.components.loggers.loggers.", ""}},
      {"prewarm",
       "warm-up configuration",
       "PrewarmConfig",
       {"nemo_automodel.components.training.prewarm.", ""}},
      {"qat_config",
       "quantization configuration",
       "QATConfig",
       {"nemo_automodel.components.quantization.qat.", ""}},
      {"fp8",
       "quantization configuration",
       "FP8Config",
       {"nemo_automodel.components.quantization.fp8.", ""}},
      {"tool_call_eval",
       "evaluation",
       "ToolCallAccuracyEvaluator",
       {"nemo_automodel.components.eval.tool_call_evaluator.", "nemo_automodel.components.eval.",
        ""}},
      {"neftune",
       "noise configuration",
       "NEFTune",
       {"nemo_automodel.components.training.neftune.", ""}},
  };
  return kClasses;
}

}  // namespace

std::vector<std::string> sections_of_a_class() {
  std::vector<std::string> sections;
  for (const SectionClass& it : section_classes()) sections.emplace_back(it.section);
  return sections;
}

config::TargetNames section_targets(std::string_view section) {
  const auto found = std::ranges::find_if(
      section_classes(), [&](const SectionClass& it) { return it.section == section; });
  AM_CHECK(found != section_classes().end(), section, " is of no class");
  std::vector<std::string> names;
  for (const char* module : found->modules) names.push_back(cat(module, found->name));
  config::TargetNames targets(found->kind);
  targets.add({.name = names.front(), .aliases = {names.begin() + 1, names.end()}});
  return targets;
}

void check_section_target(const config::Node& section, config::Diagnostics& diagnostics) {
  if (!config::has_target(section)) return;
  const auto target = config::split_target(section, diagnostics);
  if (target) section_targets(section.key()).resolve(*target, diagnostics);
}

}  // namespace automodel::recipes
