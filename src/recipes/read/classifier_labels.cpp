#include "recipes/read/classifier_labels.h"

#include <algorithm>
#include <optional>
#include <set>

#include "config/bind.h"
#include "core/file.h"
#include "core/is_one_of.h"
#include "core/text.h"
#include "datasets/samples/tokenizer_encoder.h"
#include "models/catalog.h"
#include "models/class_names.h"
#include "peft/adapter_file.h"
#include "recipes/read/read_data.h"

namespace automodel::recipes {

namespace {

using config::Diagnostics;
using config::Node;

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
  std::set<std::string> known;
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
    if (name.empty()) {
      diagnostics.error(child, "a class needs a name, and this one is empty");
      return std::nullopt;
    }
    if (!known.insert(name).second) {
      diagnostics.error(child, cat("two classes are called '", name, "'"));
      return std::nullopt;
    }
    names[static_cast<size_t>(*id)] = name;
    is_named[static_cast<size_t>(*id)] = true;
  }
  return names;
}

/// What a recipe says of classes: keys of `model`, or of its `config`.
struct LabelKeys {
  const Node* num_labels = nullptr;
  const Node* id2label = nullptr;
  const Node* label2id = nullptr;
  const Node* problem_type = nullptr;
};

LabelKeys label_keys(const Node& arguments, Diagnostics& diagnostics) {
  const Node* config = arguments.find("config");
  const auto find = [&](const char* key) -> const Node* {
    const Node* own = arguments.find(key);
    const Node* inner = config != nullptr && config->is_mapping() ? config->find(key) : nullptr;
    if (own != nullptr && own->is_null()) own = nullptr;
    if (inner != nullptr && inner->is_null()) inner = nullptr;
    if (own != nullptr && inner != nullptr && !config::same_value(*own, *inner)) {
      diagnostics.error(*inner, cat("model.", key, " says otherwise: one of them is enough"));
    }
    return own != nullptr ? own : inner;
  };
  return {find("num_labels"), find("id2label"), find("label2id"), find("problem_type")};
}

/// Compares `label2id`, which id2label says already, with the names.
void check_ids(const Node& node, const std::vector<std::string>& names, Diagnostics& diagnostics) {
  bool is_same = node.is_mapping() && node.size() == names.size();
  for (const Node& child : node.children()) {
    const auto id = child.int_value();
    is_same = is_same && id && *id >= 0 && *id < std::ssize(names) &&
              names[static_cast<size_t>(*id)] == child.key();
  }
  if (is_same) return;
  diagnostics.error(node,
                    "label2id does not say the numbers that classes have in id2label, or in the "
                    "order of num_labels; id2label is enough");
}

/// The classes that the section names; nullopt after an error, and where it names none.
std::optional<std::vector<std::string>> asked_names(const LabelKeys& keys, const Json& hf_config,
                                                    Diagnostics& diagnostics) {
  std::optional<int64_t> count;
  if (keys.num_labels != nullptr) {
    count = config::read_value<int64_t>(*keys.num_labels, diagnostics);
    if (!count) return std::nullopt;
    if (*count == 1) {
      diagnostics.unsupported(*keys.num_labels,
                              "one label is a number to predict (regression), which is not in this "
                              "version; classes are two or more");
      return std::nullopt;
    }
    if (*count < 1 || *count > models::kMostClasses) {
      diagnostics.error(*keys.num_labels,
                        cat("classes are 2 to ", models::kMostClasses, ", found ", *count));
      return std::nullopt;
    }
  }
  if (keys.id2label == nullptr) {
    if (!count) return std::nullopt;
    std::vector<std::string> known = models::class_names(hf_config).names;
    return std::ssize(known) == *count ? std::move(known) : models::usual_class_names(*count);
  }
  auto found = read_names(*keys.id2label, diagnostics);
  if (!found) return std::nullopt;
  if (found->size() < 2) {
    diagnostics.error(*keys.id2label, "a classifier has two classes or more");
    return std::nullopt;
  }
  if (count && *count != std::ssize(*found)) {
    diagnostics.error(*keys.num_labels, cat("num_labels is ", *count, ", id2label names ",
                                            found->size(), " classes"));
    return std::nullopt;
  }
  return found;
}

/// Warns where classes are called otherwise than those that a trained head has.
void warn_of_new_names(const LabelKeys& keys, const std::vector<std::string>& names,
                       const Json& trained, std::string_view of_whom, Diagnostics& diagnostics) {
  if (keys.id2label == nullptr || !trained.contains("id2label")) return;
  const std::vector<std::string> known = models::class_names(trained).names;
  const bool is_new = known.size() == names.size() && known != names &&
                      known != models::usual_class_names(std::ssize(known));
  if (!is_new) return;
  constexpr size_t kMostNamed = 10;
  diagnostics.warning_at_key(
      *keys.id2label,
      cat("the head of ", of_whom, " was trained for other names or another order: ",
          join(std::vector<std::string>(
                   known.begin(),
                   known.begin() + static_cast<std::ptrdiff_t>(std::min(known.size(), kMostNamed))),
               ", "),
          known.size() > kMostNamed ? ", ..." : ""));
}

/// Refuses a problem_type, the recipe's or the model's own, other than one of several classes.
void check_problem(const Node& target_name, const Node* asked, Json& hf_config,
                   Diagnostics& diagnostics) {
  constexpr const char* kKey = "problem_type";
  constexpr const char* kOneClass = "single_label_classification";
  constexpr const char* kRest = " is not in this version: every text has one of several classes (";
  if (asked != nullptr) {
    const std::string kind = name_of(*asked);
    hf_config[kKey] = kind;
    if (kind == kOneClass) return;
    diagnostics.unsupported(*asked, cat("'", kind, "'", kRest, kOneClass, ")"));
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

void make_classifier(const Node& target_name, const Node& arguments, ModelRecipe& plan,
                     Diagnostics& diagnostics) {
  Json& config = plan.hf_config;
  const LabelKeys keys = label_keys(arguments, diagnostics);
  const auto names = asked_names(keys, config, diagnostics);
  if (!config.is_object()) return;
  if (models::find_family(config).is_known) {
    const std::string classifier = models::classifier_of(config);
    if (classifier.empty()) {
      diagnostics.unsupported(
          target_name, cat("sequence classification of ", models::find_family(config).architecture,
                           " models is not in this version"));
      return;
    }
    if (names && models::is_classifier(config)) {
      warn_of_new_names(keys, *names, config, "the model", diagnostics);
    }
    config["architectures"] = Json(Json::Array{Json(classifier)});
  }
  check_problem(target_name, keys.problem_type, config, diagnostics);
  const models::ClassNames own = models::class_names(config);
  if (!names && !own.problem.empty()) return;  // the model's check reports it
  const std::vector<std::string> classes = names.value_or(own.names);
  models::set_class_names(classes, config);
  if (keys.label2id != nullptr) check_ids(*keys.label2id, classes, diagnostics);
}

void check_language_model(const Node& target_name, const Node& arguments, const ModelRecipe& plan,
                          Diagnostics& diagnostics) {
  for (const Node& child : arguments.children()) {
    if (!is_label_key(child.key()) || child.is_null()) continue;
    diagnostics.warning_at_key(
        child,
        cat("'", child.key(), "' has no effect here: training a language model does not read it"));
  }
  if (models::makes_embeddings(plan.hf_config)) {
    diagnostics.error(target_name,
                      "the model's config.json is that of one which makes embeddings of texts, and "
                      "its files have no head: nemo_automodel.NeMoAutoModelBiEncoder trains it");
    return;
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
  if (recipe.class_name.empty() || !recipe.model.has_known_class) return;
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
  if (is_recipe && recipe.peft && recipe.peft->adapter_name_or_path) {
    const std::string own = path_join(*recipe.peft->adapter_name_or_path, peft::kOwnConfigName);
    Diagnostics told = diagnostics;  // of contradictions already
    const LabelKeys keys = label_keys(recipe.model.node, told);
    if (path_exists(own) && recipe.model.hf_config.is_object()) {
      warn_of_new_names(keys, models::class_names(recipe.model.hf_config).names,
                        Json::parse_file(own), "the adapter", diagnostics);
    }
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
  facts.labels = models::class_names(config).names;
  const Json* pad = config.find("pad_token_id");
  if (pad != nullptr && pad->is_int() && pad->as_int() >= 0) facts.pad_token_id = pad->as_int();
  facts.is_encoder = models::is_encoder(config);
  facts.num_token_types = models::num_token_types(config);
  facts.num_positions = models::encoder_positions(config);
  return facts;
}

void name_pad_token(const Recipe& recipe, Json& hf_config) {
  if (!recipe.model.classifies || !recipe.dataset.plan->needs_tokenizer()) return;
  if (models::is_encoder(recipe.model.hf_config)) return;  // it is classified by the first token
  const std::string folder = tokenizer_folder(recipe, recipe.dataset);
  if (folder.empty()) return;
  const auto encoder = datasets::load_text_encoder(folder, recipe.dataset.encoder_options);
  const auto pad = datasets::classifier_pad_id(*encoder, classifier_facts(recipe).pad_token_id);
  if (pad) hf_config["pad_token_id"] = *pad;
}

}  // namespace automodel::recipes
