#include "recipes/read/check_sources.h"

#include <c10/core/ScalarType.h>

#include <vector>

#include "core/is_one_of.h"
#include "core/text.h"
#include "recipes/read/dataset_recipe.h"

namespace automodel::recipes {

namespace {

using config::Diagnostics;
using config::Node;

constexpr const char* kNoHalf =
    "an encoder and a decoder in float16 are not in this version: use bfloat16 or float32";

const Node& target_of(const Node& section) {
  const Node* const name = section.find("_target_");
  return name != nullptr ? *name : section;
}

}  // namespace

void check_sources(const Node& root, const Recipe& recipe, Diagnostics& diagnostics) {
  constexpr const char* kTrainer = "TrainFinetuneRecipeForNextTokenPrediction";
  const ModelRecipe& model = recipe.model;
  if (model.reads_sources && !recipe.class_name.empty() && recipe.class_name != kTrainer) {
    const Node* const name = root.find("recipe");
    diagnostics.error(name != nullptr ? *name : target_of(model.node),
                      cat("a model of an encoder and a decoder is trained by recipe: ", kTrainer));
    return;
  }
  if (recipe.distillation && recipe.distillation->teacher.reads_sources) {
    diagnostics.error(target_of(recipe.distillation->teacher.node),
                      "a teacher reads the student's tokens, and this one reads sources: "
                      "nemo_automodel.NeMoAutoModelForCausalLM makes a teacher");
  }
  if (model.reads_sources && model.dtype == at::kHalf) {
    const Node* const dtype = model.node.find("torch_dtype");
    diagnostics.unsupported(dtype != nullptr ? *dtype : target_of(model.node), kNoHalf);
  }
  const Node* const strategy = root.find("distributed");
  const Node* const policy = strategy != nullptr ? strategy->find("mp_policy") : nullptr;
  const Node* const computed = policy != nullptr ? policy->find("param_dtype") : nullptr;
  if (model.reads_sources && computed != nullptr && computed->is_string() &&
      is_one_of({"float16", "torch.float16", "half", "torch.half"}, computed->text())) {
    diagnostics.unsupported(*computed, kNoHalf);
  }
  if (!model.has_known_class) return;
  std::vector<const DatasetSection*> sections = {&recipe.dataset};
  for (const DatasetSection& section : recipe.validation_datasets) sections.push_back(&section);
  for (const DatasetSection* section : sections) {
    const DatasetRecipe* const plan = section->plan.get();
    if (plan == nullptr || plan->gives_sources() == model.reads_sources) continue;
    diagnostics.error(target_of(section->node),
                      model.reads_sources
                          ? "this dataset has no sources for the model's encoder; "
                            "nemo_automodel.components.datasets.llm.seq2seq.make_seq2seq_dataset "
                            "has"
                          : "this dataset has sources for an encoder, which the model lacks: "
                            "nemo_automodel.NeMoAutoModelForSeq2SeqLM trains on those");
  }
}

}  // namespace automodel::recipes
