#include "recipes/read/retrieval_section.h"

#include <algorithm>
#include <utility>

#include "config/bind.h"
#include "config/schema.h"
#include "core/file.h"
#include "core/is_one_of.h"
#include "core/text.h"
#include "models/catalog.h"
#include "models/text_pooling.h"
#include "recipes/read/recipe.h"
#include "recipes/read/sentence_folder.h"
#include "recipes/read/targets_optimizer.h"

namespace automodel::recipes {

namespace {

using config::Diagnostics;
using config::Node;

/// One entry of data_dir_list; nullopt after an error.
std::optional<datasets::QuestionEntry> read_entry(const Node& node, Diagnostics& diagnostics) {
  datasets::QuestionEntry entry;
  if (node.is_string()) {
    entry.path = *node.string_value();
  } else if (!node.is_mapping()) {
    diagnostics.error(node, cat("expected a file, hf://ORGANIZATION/NAME/SUBSET, or path with "
                                "num_samples, found ",
                                node.describe()));
    return std::nullopt;
  } else {
    static const std::vector<std::string> keys = {"path", "num_samples"};
    for (const Node& child : node.children()) {
      if (!is_one_of(keys, child.key())) {
        diagnostics.error_at_key(
            child, cat("unknown key '", child.key(), "'", did_you_mean(child.key(), keys)));
        return std::nullopt;
      }
    }
    const Node* path = node.find("path");
    if (path == nullptr || path->is_null()) {
      diagnostics.missing(node, "path", "missing key 'path': what questions are read from");
      return std::nullopt;
    }
    const auto text = config::read_value<std::string>(*path, diagnostics);
    if (!text) return std::nullopt;
    entry.path = *text;
    const Node* count = node.find("num_samples");
    if (count != nullptr && !count->is_null()) {
      entry.num_samples = config::read_value<int64_t>(*count, diagnostics);
      if (!entry.num_samples) return std::nullopt;
      if (*entry.num_samples < 0) {
        diagnostics.error(*count, cat("must be at least 0, not ", *entry.num_samples));
        return std::nullopt;
      }
    }
  }
  if (entry.is_on_hub()) {
    try {
      datasets::questions_of_hub(entry);
    } catch (const UserError& error) {
      diagnostics.error(node, error.what());
      return std::nullopt;
    }
  }
  return entry;
}

/// Questions with passages.
class RetrievalDatasetRecipe final : public DatasetRecipe {
 public:
  explicit RetrievalDatasetRecipe(datasets::RetrievalSelection selection)
      : selection_(std::move(selection)) {}

  bool needs_tokenizer() const override { return true; }
  bool has_samples_to_pack() const override { return false; }
  bool takes_special_tokens() const override { return true; }
  bool truncates() const override { return true; }
  int64_t num_passages() const override { return selection_.num_passages; }

  std::vector<datasets::SourceOptions> hub_sources() const override {
    std::vector<datasets::SourceOptions> sources;
    for (const datasets::QuestionEntry& entry : selection_.entries) {
      if (!entry.is_on_hub()) continue;
      sources.push_back(datasets::questions_of_hub(entry));
      sources.push_back(datasets::passages_of_hub(entry));
    }
    return sources;
  }

  std::optional<std::string> check() const override {
    std::optional<std::string> note;
    for (const datasets::QuestionEntry& entry : selection_.entries) {
      auto found = datasets::check_questions(entry);
      if (!note) note = std::move(found);
    }
    return note;
  }

  bool has_samples() const override { return true; }

  std::unique_ptr<datasets::Dataset> open(const DataContext& data) const override {
    auto dataset =
        std::make_unique<datasets::RetrievalDataset>(selection_, data.texts, *data.encoder);
    if (data.reads_first_rows && data.context.reporter != nullptr) {
      for (const std::string& finding : dataset->findings()) {
        data.context.reporter->warning(finding);
      }
    }
    return dataset;
  }

  std::unique_ptr<datasets::BatchStream> build(const DataContext& data) const override {
    return load(open(data), data);
  }

 private:
  datasets::RetrievalSelection selection_;
};

/// Findings of options that do not go together, or that are not built.
void check_options(const RetrievalDatasetSection& section, const Node& arguments,
                   Diagnostics& diagnostics) {
  const auto check_choice = [&](const char* key, const std::string& value,
                                const std::vector<std::string>& choices) {
    if (is_one_of(choices, value)) return;
    diagnostics.error(*arguments.find(key), cat(key, " takes ", join(choices, " or "), ", found '",
                                                value, "'", did_you_mean(value, choices)));
  };
  if (section.model_type == "cross_encoder") {
    diagnostics.unsupported(*arguments.find("model_type"),
                            "models that score pairs of texts are not in this version");
  } else {
    check_choice("model_type", section.model_type, {"bi_encoder"});
  }
  check_choice("data_type", section.data_type, {"train", "eval"});
  if (section.cycle_positive_docs) {
    diagnostics.unsupported(*arguments.find("cycle_positive_docs"),
                            "another answer each epoch is not in this version: the first one is "
                            "taken");
  }
  const auto warn_idle = [&](const char* key, const char* without) {
    const Node* node = arguments.find(key);
    if (node == nullptr || node->is_null()) return;
    diagnostics.warning_at_key(*node, cat("'", key, "' has no effect without ", without));
  };
  const bool is_training = section.data_type == "train";
  if (is_training) warn_idle("eval_negative_size", "data_type: eval");
  if (!is_training || !section.max_train_samples) {
    for (const char* key : {"do_shuffle", "train_data_select_offset"}) {
      warn_idle(key, is_training ? "max_train_samples" : "data_type: train");
    }
  }
  if (!is_training) warn_idle("max_train_samples", "data_type: train");
}

}  // namespace

std::unique_ptr<DatasetRecipe> read_retrieval_dataset(const config::Target& target,
                                                      Diagnostics& diagnostics) {
  const size_t errors = diagnostics.count(config::Severity::kError);
  const Node& arguments = target.arguments;
  const auto section = config::bind<RetrievalDatasetSection>(
      arguments, diagnostics, {.legacy_keys = {}, .other_keys = {"tokenizer"}});
  if (diagnostics.count(config::Severity::kError) > errors) return nullptr;
  check_options(section, arguments, diagnostics);
  datasets::RetrievalSelection selection;
  for (const Node& node : section.data_dir_list) {
    if (auto entry = read_entry(node, diagnostics)) selection.entries.push_back(std::move(*entry));
  }
  if (diagnostics.count(config::Severity::kError) > errors) return nullptr;
  if (selection.entries.empty()) {
    diagnostics.error(*arguments.find("data_dir_list"), "an empty list: nothing to read");
    return nullptr;
  }
  const auto is_on_hub = [](const datasets::QuestionEntry& entry) { return entry.is_on_hub(); };
  if (section.use_dataset_instruction && std::ranges::any_of(selection.entries, is_on_hub)) {
    diagnostics.unsupported(*arguments.find("use_dataset_instruction"),
                            "instructions of data sets of the hub are not in this version; those "
                            "of folders (merlin_metadata.json) are");
  }
  const bool is_training = section.data_type == "train";
  selection.num_passages = is_training
                               ? section.n_passages
                               : section.eval_negative_size.value_or(section.n_passages - 1) + 1;
  selection.seed = static_cast<uint32_t>(section.seed);
  selection.gives_instructions = section.use_dataset_instruction;
  if (is_training && section.max_train_samples) {
    selection.most = section.max_train_samples;
    selection.shuffles = section.do_shuffle;
    selection.first = section.train_data_select_offset;
  }
  return std::make_unique<RetrievalDatasetRecipe>(std::move(selection));
}

Json retrieval_dataset_schema() {
  Json schema = config::schema_of<RetrievalDatasetSection>();
  Json& entry = schema["properties"]["data_dir_list"];
  const std::string doc = entry.get("description", "");
  entry = Json::object();
  if (!doc.empty()) entry["description"] = doc;
  return schema;
}

OptimizerRecipe read_retrieval_optimizer(const Node& node, Diagnostics& diagnostics) {
  constexpr const char* kOverrides = "param_group_overrides";
  if (!node.is_mapping()) return read_optimizer(node, diagnostics);
  Node with_group = node;
  Node group = Node::mapping();
  group.put("pattern", Node::string("[Nn][Oo][Rr][Mm]|\\.bias$"));
  group.put("wd_mult", Node::real(0));
  const Node* own = node.find(kOverrides);
  if (own != nullptr && !own->is_null() && !own->is_sequence()) {
    return read_optimizer(node, diagnostics);
  }
  std::vector<Node> groups;
  if (own != nullptr && own->is_sequence()) groups = own->children();
  groups.push_back(std::move(group));
  with_group.put(kOverrides, Node::sequence(std::move(groups)));
  OptimizerRecipe plan = read_optimizer(with_group, diagnostics);
  // That no parameter of it is trained is no mistake of the recipe's.
  if (!plan.param_group_overrides.empty()) plan.param_group_overrides.pop_back();
  return plan;
}

void make_embedder(const Node& target_name, const Node& arguments, ModelRecipe& plan,
                   Diagnostics& diagnostics) {
  const BiEncoderSection& keys = plan.encoder;
  const auto place = [&](const char* key) -> const Node& {
    const Node* node = arguments.find(key);
    return node != nullptr && !node->is_null() ? *node : target_name;
  };
  if (keys.extract_submodel) {
    diagnostics.unsupported(place("extract_submodel"),
                            "taking a model out of another is not in this version: name the folder "
                            "of the text model");
  }
  Json& config = plan.hf_config;
  SentenceFolder saved;
  if (!plan.folder.empty()) {
    try {
      saved = read_sentence_folder(plan.folder);
    } catch (const UserError& error) {
      diagnostics.error(target_name, error.what());
    }
  }
  const std::string own = config.is_object() ? config.get(models::kPoolingKey, "") : std::string();
  std::string pooling = keys.pooling.value_or(saved.pooling.value_or(own.empty() ? "avg" : own));
  if (is_one_of({"colbert", "multi_vector"}, pooling)) {
    diagnostics.unsupported(place("pooling"), cat("pooling '", pooling,
                                                  "', an embedding of each token, is not in this "
                                                  "version"));
    pooling = "avg";
  }
  const auto kind = models::parse_text_pooling(pooling);
  if (!kind) {
    diagnostics.error(place("pooling"), cat("pooling ", models::text_pooling_problem(pooling)));
  }
  plan.pooling = kind.value_or(models::TextPooling::kMean);
  plan.normalizes_embeddings = keys.l2_normalize.value_or(saved.normalizes.value_or(true));
  if (!keys.detach_distributed_inbatch_negatives && !keys.do_distributed_inbatch_negative) {
    diagnostics.warning_at_key(place("detach_distributed_inbatch_negatives"),
                               "'detach_distributed_inbatch_negatives' has no effect without "
                               "do_distributed_inbatch_negative: true");
  }
  if (!config.is_object() || !models::find_family(config).is_known) return;
  const std::string embedder = models::embedder_of(config);
  if (embedder.empty()) {
    diagnostics.unsupported(target_name,
                            cat("embeddings of ", models::find_family(config).architecture,
                                " models are not in this version"));
    return;
  }
  const bool was_embedder = models::makes_embeddings(config);
  config["architectures"] = Json(Json::Array{Json(embedder)});
  config[models::kPoolingKey] = Json(std::string(models::text_pooling_name(plan.pooling)));
  config["is_causal"] = keys.is_causal.value_or(was_embedder && config.get("is_causal", false));
}

Node with_retrieval_defaults(Node root) {
  const Node* recipe = root.find("recipe");
  if (recipe == nullptr) return root;
  const std::string name = recipe->is_mapping() && recipe->find("_target_") != nullptr
                               ? recipe->find("_target_")->text()
                               : recipe->text();
  if (name.substr(name.rfind('.') + 1) != kBiEncoderRecipe) return root;
  const Node* tokenizer = root.find("tokenizer");
  if (tokenizer != nullptr && !tokenizer->is_null()) {
    const Node copy = *tokenizer;
    for (const char* key : {"dataset", "validation_dataset"}) {
      Node* section = root.find(key);
      if (section == nullptr || !section->is_mapping()) continue;
      if (section->find("tokenizer") == nullptr) section->put_as_found("tokenizer", copy);
    }
  }
  return root;
}

std::string sentence_obstacle(const Recipe& recipe) {
  if (recipe.model.pooling == models::TextPooling::kSum) return "sum of states";
  if (recipe.texts && recipe.texts->use_dataset_instruction)
    return "beginnings of texts that differ";
  const auto& tokens = recipe.dataset.encoder_options;
  // Those that the tokenizer adds of itself it adds there too.
  return tokens.adds_bos || tokens.adds_eos ? "tokens that the recipe adds to texts" : "";
}

datasets::RetrievalTexts retrieval_texts(const Recipe& recipe, bool is_validation) {
  const auto& format =
      is_validation && recipe.validation_texts ? recipe.validation_texts : recipe.texts;
  datasets::RetrievalTexts texts{.format = format.value_or(datasets::BiEncoderCollatorConfig{})};
  texts.reads_last_token = recipe.model.pooling == models::TextPooling::kLast;
  if (recipe.model.hf_config.is_object()) {
    texts.num_positions = models::encoder_positions(recipe.model.hf_config);
  }
  return texts;
}

namespace {

const Node& name_of_target(const Node& section) {
  const Node* const name = section.find("_target_");
  return name != nullptr ? *name : section;
}

/// Findings of sections that a retrieval recipe does not read, or does not have here.
void check_other_sections(const Node& root, const Recipe& recipe, Diagnostics& diagnostics) {
  const Node* loss = root.find("loss_fn");
  if (loss != nullptr && !loss->is_null()) {
    diagnostics.warning_at_key(*loss,
                               "'loss_fn' has no effect here: the loss is that of finding the "
                               "passage that answers a query");
  }
  for (const char* key : {"tool_call_eval", "embedding_row_repair"}) {
    const Node* node = root.find(key);
    if (node == nullptr || node->is_null()) continue;
    diagnostics.error(*node, cat("'", key, "' is for language models, and this one has no head"));
  }
}

/// Refuses datasets and collaters that do not go with the recipe's class.
void check_samples(const Node& root, const Recipe& recipe, Diagnostics& diagnostics) {
  const bool is_recipe = recipe.class_name == kBiEncoderRecipe;
  std::vector<const DatasetSection*> sections = {&recipe.dataset};
  for (const DatasetSection& section : recipe.validation_datasets) sections.push_back(&section);
  for (const DatasetSection* section : sections) {
    if (section->plan == nullptr || (section->plan->num_passages() > 0) == is_recipe) continue;
    diagnostics.error(
        name_of_target(section->node),
        is_recipe ? std::string("this dataset has no queries with passages; nemo_automodel."
                                "components.datasets.llm.retrieval_dataset.RetrievalDatasetConfig "
                                "has")
                  : cat("this dataset has queries with passages: recipe ", kBiEncoderRecipe,
                        " trains on those"));
  }
  for (const auto& [key, has_texts] :
       {std::pair<const char*, bool>("dataloader", recipe.texts.has_value()),
        {"validation_dataloader", recipe.validation_texts.has_value()}}) {
    const Node* collate = root.find_path(cat(key, ".collate_fn"));
    if (collate == nullptr || collate->is_null() || has_texts == is_recipe) continue;
    diagnostics.error(*collate,
                      is_recipe ? cat("recipe ", kBiEncoderRecipe, " takes BiEncoderCollator here")
                                : "this collate_fn is for queries with passages, which "
                                  "this recipe does not train on");
  }
}

void read_temperature(const Node& root, Recipe& recipe, Diagnostics& diagnostics) {
  Node own = Node::mapping();
  const Node* node = root.find("temperature");
  if (node != nullptr) own.put("temperature", *node);
  recipe.temperature = config::bind<EmbeddingKeys>(own, diagnostics).temperature;
  if (node == nullptr || node->is_null() || recipe.model.normalizes_embeddings) return;
  diagnostics.warning_at_key(*node, "'temperature' has no effect without l2_normalize: true");
}

/// Refuses samples in which a query is compared with nothing.
void check_passages(const DatasetSection& section, bool has_others, Diagnostics& diagnostics) {
  if (section.plan == nullptr || section.plan->num_passages() != 1 || has_others) return;
  const Node* place = section.node.find("eval_negative_size");
  if (place == nullptr || place->is_null()) place = section.node.find("n_passages");
  diagnostics.error(
      place != nullptr ? *place : section.node,
      "with one passage a query is compared with nothing: the answer and another one "
      "are 2 (n_passages, or 1 + eval_negative_size of data_type: eval), unless those "
      "of other queries are compared in training "
      "(model.do_distributed_inbatch_negative)");
}

/// Warns of texts that may be longer than the model's table of positions.
void check_lengths(const Node& root, const Recipe& recipe, Diagnostics& diagnostics) {
  const datasets::RetrievalTexts texts = retrieval_texts(recipe, false);
  if (!texts.num_positions) return;
  for (const auto& [key, length] :
       {std::pair<const char*, int64_t>("q_max_len", texts.format.q_max_len),
        {"p_max_len", texts.format.p_max_len}}) {
    if (length <= *texts.num_positions) continue;
    const Node* place = root.find_path(cat("dataloader.collate_fn.", key));
    diagnostics.warning(place != nullptr ? *place : name_of_target(recipe.model.node),
                        cat(key, " is ", length, ", and the model has positions for ",
                            *texts.num_positions, " tokens: a longer text ends the run"));
  }
}

/// Warns of instructions that one of the two keys alone asks for.
void check_instructions(const Node& root, const Recipe& recipe, Diagnostics& diagnostics) {
  const auto is_set = [](const Node* node) {
    return node != nullptr && node->bool_value() == true;
  };
  for (const DatasetSection* section : recipe.dataset.single_sections()) {
    const Node* of_data = section->node.find("use_dataset_instruction");
    const Node* of_texts = root.find_path("dataloader.collate_fn.use_dataset_instruction");
    if (is_set(of_data) == is_set(of_texts)) continue;
    if (is_set(of_data)) {
      diagnostics.warning_at_key(*of_data,
                                 "'use_dataset_instruction' has no effect without that of "
                                 "dataloader.collate_fn");
    } else {
      diagnostics.warning_at_key(*of_texts,
                                 "'use_dataset_instruction' leaves texts without prefixes, and "
                                 "without that of the dataset there are no instructions");
    }
  }
}

}  // namespace

void check_retrieval(const Node& root, Recipe& recipe, Diagnostics& diagnostics) {
  if (recipe.class_name.empty()) return;
  const bool is_recipe = recipe.class_name == kBiEncoderRecipe;
  const auto warn_idle = [&](const char* path) {
    const Node* node = root.find_path(path);
    if (is_recipe || node == nullptr || node->is_null()) return;
    diagnostics.warning_at_key(*node, cat("'", node->key(), "' has no effect here: recipe ",
                                          kBiEncoderRecipe, " reads it"));
  };
  warn_idle("step_scheduler.loss_average_window_steps");
  warn_idle("temperature");
  const ModelRecipe& model = recipe.model;
  if (model.has_known_class && model.makes_embeddings != is_recipe) {
    diagnostics.error(name_of_target(model.node),
                      is_recipe
                          ? cat("recipe ", kBiEncoderRecipe,
                                " trains models of nemo_automodel.NeMoAutoModelBiEncoder")
                          : cat("a model that makes embeddings of texts is trained by recipe: ",
                                kBiEncoderRecipe));
    return;
  }
  check_samples(root, recipe, diagnostics);
  if (!is_recipe) return;
  read_temperature(root, recipe, diagnostics);
  check_other_sections(root, recipe, diagnostics);
  const std::string obstacle = sentence_obstacle(recipe);
  if (model.makes_embeddings && !obstacle.empty()) {
    diagnostics.warning(
        name_of_target(model.node),
        cat("exported folders are without the files of Sentence Transformers, which "
            "know no ",
            obstacle));
  }
  check_lengths(root, recipe, diagnostics);
  check_instructions(root, recipe, diagnostics);
  check_passages(recipe.dataset, model.encoder.do_distributed_inbatch_negative, diagnostics);
  for (const DatasetSection& section : recipe.validation_datasets) {
    check_passages(section, /*has_others=*/false, diagnostics);
  }
}

}  // namespace automodel::recipes
