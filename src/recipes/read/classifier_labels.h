#pragma once

#include <string>

#include "config/diagnostic.h"
#include "config/node.h"
#include "datasets/samples/classified.h"
#include "recipes/read/recipe.h"

namespace automodel::recipes {

/// The recipe class that trains models which classify sequences.
inline constexpr const char* kClassificationRecipe = "TrainFinetuneRecipeForSequenceClassification";

/// Keys of `model` that are about classes: num_labels (of ModelSection), id2label, label2id and
/// problem_type.
bool is_label_key(const std::string& key);

/// Makes plan.hf_config, where it is here, that of its family's class which classifies sequences,
/// with the classes that keys of the model section `arguments` or of its `config` name: id2label,
/// num_labels (LABEL_0, LABEL_1, ...), else the configuration's own, else two.
void make_classifier(const config::Node& target_name, const config::Node& arguments,
                     ModelRecipe& plan, config::Diagnostics& diagnostics);

/// Warns of label keys of a language model, and refuses the configuration of a classifier.
void check_language_model(const config::Node& target_name, const config::Node& arguments,
                          const ModelRecipe& plan, config::Diagnostics& diagnostics);

/// Refuses models, datasets and recipe classes that do not go with each other, and warns of what a
/// recipe that classifies does not read.
void check_classification(const config::Node& root, Recipe& recipe,
                          config::Diagnostics& diagnostics);

/// What datasets must know of the recipe's model; nothing of a language model.
datasets::ClassifierFacts classifier_facts(const Recipe& recipe);

/// Sets pad_token_id of a classifier's configuration, as it is saved, to the token by which its
/// data found the last token of each text: transformers goes by it when it classifies. Loads the
/// tokenizer. Nothing of a language model.
void name_pad_token(const Recipe& recipe, Json& hf_config);

}  // namespace automodel::recipes
