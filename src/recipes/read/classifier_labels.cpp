#include "recipes/read/classifier_labels.h"

#include <algorithm>
#include <optional>

#include "core/is_one_of.h"
#include "core/text.h"
#include "datasets/samples/tokenizer_encoder.h"
#include "models/catalog.h"
#include "recipes/read/read_data.h"

namespace automodel::recipes {

namespace {

using config::Diagnostics;
using config::Node;

constexpr int64_t kUsualNumLabels = 2;  // transformers'

std::string usual_name(size_t id) {
  return cat("LABEL_", id);
}

/// The name that a value is: as it was written, where it was.
std::string name_of(const Node& value) {
  if (!value.text().empty()) return value.text();
  return value.string_value() ? *value.string_value() : config::to_json(value).dump();
}

/// The names of `id2label`: {0: negative, 1: positive}, or the names alone in order.
std::optional<std::vector<std::string>> read_names(const Node& node, Diagnostics& diagnostics) {
  if (!node.is_mapping() && !node.is_sequence()) {
    diagnostics.error(node, cat("expected names by number, such as {0: negative, 1: positive}, "
                                "found ",
                                node.describe()));
    return std::nullopt;
  }
  std::vector<std::string> names(node.size());
  std::vector<bool> is_named(node.size());
  for (size_t i = 0; i < node.size(); ++i) {
    const Node& child = node.children()[i];
    const auto id = node.is_mapping() ? parse_int(child.key()) : static_cast<int64_t>(i);
    if (!id || *id < 0 || *id >= std::ssize(names) || is_named[static_cast<size_t>(*id)]) {
      diagnostics.error_at_key(child,
                               cat("'", child.key(), "' is no number of one of ", node.size(),
                                   " classes: they are 0 to ", node.size() - 1));
      return std::nullopt;
    }
    if (!child.is_scalar() || child.is_null()) {
      diagnostics.error(child, cat("expected the name of a class, found ", child.describe()));
      return std::nullopt;
    }
    const std::string name = name_of(child);
    if (is_one_of(names, name)) {
      diagnostics.error(child, cat("two classes are called '", name, "'"));
      return std::nullopt;
    }
    names[static_cast<size_t>(*id)] = name;
    is_named[static_cast<size_t>(*id)] = true;
  }
  return names;
}

void set_classes(const std::vector<std::string>& names, Json& hf_config) {
  Json names_by_id = Json::object();
  Json ids_by_name = Json::object();
  for (size_t id = 0; id < names.size(); ++id) {
    names_by_id[std::to_string(id)] = names[id];
    ids_by_name[names[id]] = static_cast<int64_t>(id);
  }
  hf_config.erase("num_labels");
  hf_config["id2label"] = std::move(names_by_id);
  hf_config["label2id"] = std::move(ids_by_name);
}

/// Compares `label2id`, which id2label says already, with the names.
void check_ids(const Node& node, const std::vector<std::string>& names, Diagnostics& diagnostics) {
  bool is_same = node.is_mapping() && node.size() == names.size();
  for (size_t id = 0; id < names.size() && is_same; ++id) {
    const Node* found = node.find(names[id]);
    is_same = found != nullptr && found->int_value() == static_cast<int64_t>(id);
  }
  if (is_same) return;
  diagnostics.error(node, cat("label2id does not say what id2label says: ", join(names, ", "),
                              " are 0 to ", names.size() - 1, "; id2label is enough"));
}

/// The classes that the section names; nullopt after an error, and where it names none.
std::optional<std::vector<std::string>> asked_names(const Node& arguments, const ModelRecipe& plan,
                                                    Diagnostics& diagnostics) {
  const Node* names = arguments.find("id2label");
  const Node* count = arguments.find("num_labels");
  const std::optional<int64_t> num_labels = plan.section.num_labels;
  if (num_labels == 1) {
    diagnostics.unsupported(*count,
                            "one label is a number to predict (regression), which is not "
                            "in this version; classes are two or more");
    return std::nullopt;
  }
  if (names == nullptr || names->is_null()) {
    if (!num_labels) return std::nullopt;
    const std::vector<std::string> known =
        plan.hf_config.is_object() ? class_names(plan.hf_config) : std::vector<std::string>();
    if (std::ssize(known) == *num_labels) return known;
    std::vector<std::string> usual;
    for (size_t id = 0; id < static_cast<size_t>(*num_labels); ++id) {
      usual.push_back(usual_name(id));
    }
    return usual;
  }
  auto found = read_names(*names, diagnostics);
  if (!found) return std::nullopt;
  if (found->size() < 2) {
    diagnostics.error(*names, "a classifier has two classes or more");
    return std::nullopt;
  }
  if (num_labels && *num_labels != std::ssize(*found)) {
    diagnostics.error(
        *count, cat("num_labels is ", *num_labels, ", id2label names ", found->size(), " classes"));
    return std::nullopt;
  }
  return found;
}

/// Refuses a problem_type, the recipe's or the model's own, other than one of several classes.
void check_problem(const Node& target_name, const Node& arguments, Json& hf_config,
                   Diagnostics& diagnostics) {
  constexpr const char* kKey = "problem_type";
  constexpr const char* kOneClass = "single_label_classification";
  constexpr const char* kRest = " is not in this version: every text has one of several classes (";
  const Node* asked = arguments.find(kKey);
  if (asked != nullptr && !asked->is_null()) {
    hf_config[kKey] = asked->text();
    if (asked->text() == kOneClass) return;
    diagnostics.unsupported(*asked, cat("'", asked->text(), "'", kRest, kOneClass, ")"));
    return;
  }
  const Json* own = hf_config.find(kKey);
  if (own == nullptr || !own->is_string() || own->as_string() == kOneClass) return;
  diagnostics.unsupported(target_name, cat(kKey, " '", own->as_string(),
                                           "' of the model's config.json", kRest, kOneClass, ")"));
}

}  // namespace

bool is_label_key(const std::string& key) {
  return is_one_of({"num_labels", "id2label", "label2id", "problem_type"}, key);
}

std::vector<std::string> class_names(const Json& hf_config) {
  std::vector<std::string> names;
  const Json* found = hf_config.find("id2label");
  if (found == nullptr || !found->is_object()) {
    const auto count =
        static_cast<size_t>(std::max<int64_t>(0, hf_config.get("num_labels", kUsualNumLabels)));
    for (size_t id = 0; id < count; ++id) names.push_back(usual_name(id));
    return names;
  }
  for (size_t id = 0; id < found->size(); ++id) {
    const Json* name = found->find(std::to_string(id));
    names.push_back(name != nullptr && name->is_string() ? name->as_string() : usual_name(id));
  }
  return names;
}

void make_classifier(const Node& target_name, const Node& arguments, ModelRecipe& plan,
                     Diagnostics& diagnostics) {
  const auto names = asked_names(arguments, plan, diagnostics);
  if (!plan.hf_config.is_object()) return;
  Json& config = plan.hf_config;
  if (models::find_family(config).is_known) {
    const std::string classifier = models::classifier_of(config);
    if (classifier.empty()) {
      diagnostics.unsupported(target_name,
                              cat("transformers has no class for sequence classification of ",
                                  models::find_family(config).architecture, " models"));
      return;
    }
    config["architectures"] = Json(Json::Array{Json(classifier)});
  }
  check_problem(target_name, arguments, config, diagnostics);
  const std::vector<std::string> classes = names.value_or(class_names(config));
  set_classes(classes, config);
  const Node* ids = arguments.find("label2id");
  if (ids != nullptr && !ids->is_null()) check_ids(*ids, classes, diagnostics);
}

void check_language_model(const Node& target_name, const Node& arguments, const ModelRecipe& plan,
                          Diagnostics& diagnostics) {
  for (const Node& child : arguments.children()) {
    if (!is_label_key(child.key()) || child.is_null()) continue;
    diagnostics.warning_at_key(
        child,
        cat("'", child.key(), "' has no effect here: training a language model does not read it"));
  }
  if (!plan.hf_config.is_object() || !models::is_classifier(plan.hf_config)) return;
  diagnostics.error(
      target_name,
      cat("the model's config.json is that of a ", models::classifier_of(plan.hf_config),
          ", which classifies sequences: "
          "nemo_automodel.NeMoAutoModelForSequenceClassification.from_pretrained and "
          "recipe: ",
          kClassificationRecipe, " train it"));
}

void check_classification(const Node& root, Recipe& recipe, Diagnostics& diagnostics) {
  const bool is_recipe = recipe.class_name == kClassificationRecipe;
  if (recipe.class_name.empty() || recipe.model.node.is_null()) return;
  const Node* target = recipe.model.node.find("_target_");
  const Node& model_place = target != nullptr ? *target : recipe.model.node;
  if (is_recipe != recipe.model.classifies) {
    diagnostics.error(
        model_place,
        is_recipe ? cat("recipe ", kClassificationRecipe,
                        " trains models of nemo_automodel.NeMoAutoModelForSequenceClassification")
                  : cat("a model that classifies sequences is trained by recipe: ",
                        kClassificationRecipe));
    return;
  }
  std::vector<const DatasetSection*> sections = {&recipe.dataset};
  for (const DatasetSection& section : recipe.validation_datasets) sections.push_back(&section);
  for (const DatasetSection* section : sections) {
    if (section->plan == nullptr || section->plan->gives_classes() == is_recipe) continue;
    const Node* name = section->node.find("_target_");
    diagnostics.error(name != nullptr ? *name : section->node,
                      is_recipe ? "this dataset has tokens to predict and no classes; "
                                  "automodel.SequenceClassificationDataset reads texts with classes"
                                : cat("this dataset has a class for each sequence: recipe ",
                                      kClassificationRecipe, " trains on those"));
  }
  const Node* loss = root.find("loss_fn");
  if (!is_recipe || loss == nullptr || loss->is_null()) return;
  diagnostics.warning_at_key(*loss,
                             "'loss_fn' has no effect here: the loss of classes is the "
                             "plain cross-entropy");
}

datasets::ClassifierFacts classifier_facts(const Recipe& recipe) {
  const Json& config = recipe.model.hf_config;
  if (!recipe.model.classifies || !config.is_object()) return {};
  datasets::ClassifierFacts facts;
  facts.labels = class_names(config);
  const Json* pad = config.find("pad_token_id");
  if (pad != nullptr && pad->is_int() && pad->as_int() >= 0) facts.pad_token_id = pad->as_int();
  return facts;
}

void name_pad_token(const Recipe& recipe, Json& hf_config) {
  if (!recipe.model.classifies || !recipe.dataset.plan->needs_tokenizer()) return;
  const std::string folder = tokenizer_folder(recipe, recipe.dataset);
  if (folder.empty()) return;
  const auto encoder = datasets::load_text_encoder(folder, recipe.dataset.encoder_options);
  const auto pad = datasets::classifier_pad_id(*encoder, classifier_facts(recipe).pad_token_id);
  if (pad) hf_config["pad_token_id"] = *pad;
}

}  // namespace automodel::recipes
