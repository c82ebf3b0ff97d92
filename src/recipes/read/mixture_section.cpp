#include "recipes/read/mixture_section.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <string>
#include <utility>

#include "config/bind.h"
#include "core/text.h"

namespace automodel::recipes {

namespace {

using config::Diagnostics;
using config::Node;
using config::Target;

/// Several datasets as one.
class MixtureRecipe final : public DatasetRecipe {
 public:
  /// `key` is the section's.
  MixtureRecipe(std::string key, std::vector<DatasetSection> parts,
                std::optional<InterleaveDatasetsSection> options)
      : key_(std::move(key)), parts_(std::move(parts)), options_(std::move(options)) {}

  const std::vector<DatasetSection>* parts() const override { return &parts_; }

  bool needs_tokenizer() const override { return any(&DatasetRecipe::needs_tokenizer); }

  std::optional<std::string> check() const override { return std::nullopt; }

  bool has_samples_to_pack() const override { return all(&DatasetRecipe::has_samples_to_pack); }
  bool is_unshifted() const override { return any(&DatasetRecipe::is_unshifted); }
  bool gives_sources() const override { return any(&DatasetRecipe::gives_sources); }
  bool gives_classes() const override { return any(&DatasetRecipe::gives_classes); }
  int64_t num_passages() const override { return parts_[0].plan->num_passages(); }
  bool takes_special_tokens() const override { return any(&DatasetRecipe::takes_special_tokens); }
  bool truncates() const override { return any(&DatasetRecipe::truncates); }
  bool has_samples() const override { return true; }

  std::vector<std::string> unread_columns() const override {
    std::vector<std::string> unread;
    for (const DatasetSection& part : parts_) {
      for (const std::string& column : part.plan->unread_columns()) {
        unread.push_back(cat(part.key, ": ", column));
      }
    }
    return unread;
  }

  datasets::TemplateUse template_use() const override {
    datasets::TemplateUse most = datasets::TemplateUse::kNone;
    for (const DatasetSection& part : parts_) most = std::max(most, part.plan->template_use());
    return most;
  }

  /// The first template that a dataset names; absent where none does.
  std::optional<std::string> named_template() const override {
    for (const DatasetSection& part : parts_) {
      if (auto named = part.plan->named_template()) return named;
    }
    return std::nullopt;
  }

  std::unique_ptr<datasets::Dataset> open(const DataContext& data) const override {
    std::vector<datasets::MixedDataset::Part> opened;
    for (const DatasetSection& part : parts_) opened.push_back({part.key, part.plan->open(data)});
    std::optional<datasets::Interleaving> interleaving;
    if (options_) {
      interleaving = datasets::Interleaving{
          .probabilities = options_->probabilities.value_or(std::vector<double>{}),
          .seed = static_cast<uint64_t>(options_->seed.value_or(data.context.seed)),
          .stopping = options_->stopping_strategy};
    }
    auto dataset = mixed(std::move(opened), interleaving);
    if (data.context.reporter != nullptr) tell(dataset->facts(), *data.context.reporter);
    return dataset;
  }

  std::unique_ptr<datasets::BatchStream> build(const DataContext& data) const override {
    return load(open(data), data);
  }

 private:
  using Question = bool (DatasetRecipe::*)() const;

  bool any(Question question) const {
    return std::ranges::any_of(
        parts_, [&](const DatasetSection& part) { return (*part.plan.*question)(); });
  }

  bool all(Question question) const {
    return std::ranges::all_of(
        parts_, [&](const DatasetSection& part) { return (*part.plan.*question)(); });
  }

  /// The parts as one; what is wrong with them together is said with the section's name.
  std::unique_ptr<datasets::MixedDataset> mixed(
      std::vector<datasets::MixedDataset::Part> opened,
      const std::optional<datasets::Interleaving>& interleaving) const {
    try {
      return std::make_unique<datasets::MixedDataset>(std::move(opened), interleaving);
    } catch (const InputError& error) {
      throw InputError(cat(key_, ": ", error.what()));
    }
  }

  /// Says how many samples each dataset has in an epoch.
  void tell(const Json& facts, Reporter& reporter) const {
    std::vector<std::string> texts;
    for (const Json& part : facts.at("datasets").as_array()) {
      const int64_t num_samples = part.at("num_samples").as_int();
      const int64_t num_rows = part.at("num_rows").as_int();
      texts.push_back(cat(num_samples, " of ", part.at("name").as_string(),
                          num_samples == num_rows ? "" : cat(" (which has ", num_rows, ")")));
    }
    reporter.info(cat(key_, ": ", facts.at("num_samples").as_int(),
                      " samples an epoch: ", join(texts, ", ")));
  }

  std::string key_;
  std::vector<DatasetSection> parts_;
  std::optional<InterleaveDatasetsSection> options_;  ///< absent: one after another
};

/// Refuses datasets that give other things than the first one.
void check_alike(const DatasetSection& first, const DatasetSection& part,
                 Diagnostics& diagnostics) {
  const Node* const name = part.node.find("_target_");
  const Node& place = name != nullptr ? *name : part.node;
  if (part.plan->gives_classes() != first.plan->gives_classes()) {
    diagnostics.error(
        place, cat("a mixture is of datasets with classes or of datasets without: ", first.key,
                   " has ", first.plan->gives_classes() ? "some" : "none"));
  }
  if (part.plan->gives_sources() != first.plan->gives_sources()) {
    diagnostics.error(place,
                      cat("a mixture is of datasets with sources for an encoder or of datasets "
                          "without: ",
                          first.key, " has ", first.plan->gives_sources() ? "some" : "none"));
  }
  if (part.plan->num_passages() != first.plan->num_passages()) {
    diagnostics.error(place, cat("a mixture is of datasets whose samples are alike, and those of ",
                                 first.key, " have ", first.plan->num_passages(), " passages, of ",
                                 part.key, " ", part.plan->num_passages()));
  }
  if (part.plan->is_unshifted() != first.plan->is_unshifted()) {
    const Node* const key = part.node.find("unshifted");
    diagnostics.error(key != nullptr ? *key : place,
                      cat("unshifted is the same for all datasets of a mixture, and of ", first.key,
                          " it is ", first.plan->is_unshifted() ? "true" : "false"));
  }
}

/// One dataset of a mixture; without a plan after an error.
DatasetSection read_part(const Node& node, Diagnostics& diagnostics) {
  DatasetSection part;
  part.key = node.path();
  part.node = node;
  if (!config::has_target(node)) {
    diagnostics.error(
        node, cat("a dataset of a mixture is a section with _target_, found ", node.describe()));
    return part;
  }
  const auto target = config::split_target(node, diagnostics);
  if (!target) return part;
  const auto registry = dataset_targets();
  if (const DatasetMaker* maker = registry.resolve_maker(*target, diagnostics)) {
    part.plan = (*maker)(*target, diagnostics);
  }
  if (part.plan == nullptr || part.plan->has_samples()) return part;
  diagnostics.unsupported(target->name_node,
                          "this dataset is a stream with an order of its own; mixtures are of "
                          "datasets that read rows");
  part.plan = nullptr;
  return part;
}

/// Reads a mixture's datasets; none after an error.
std::vector<DatasetSection> read_parts(const std::vector<Node>& nodes, const Node& arguments,
                                       Diagnostics& diagnostics) {
  const Node* const list = arguments.find("datasets");
  if (nodes.empty() && list != nullptr && list->is_sequence()) {
    diagnostics.error(*list, "datasets is empty: a mixture has one dataset at least");
  }
  std::vector<DatasetSection> parts;
  for (const Node& node : nodes) parts.push_back(read_part(node, diagnostics));
  for (const DatasetSection& part : parts) {
    if (part.plan == nullptr) return {};
  }
  const size_t errors = diagnostics.count(config::Severity::kError);
  for (const DatasetSection& part : parts) check_alike(parts.front(), part, diagnostics);
  if (diagnostics.count(config::Severity::kError) > errors) return {};
  return parts;
}

void check_interleaving(const InterleaveDatasetsSection& options, const Node& arguments,
                        Diagnostics& diagnostics) {
  const Node* const seed = arguments.find("seed");
  if (!options.probabilities) {
    if (options.seed && !arguments.has("probabilities")) {
      diagnostics.warning_at_key(
          *seed, "'seed' has no effect without probabilities: the datasets take turns");
    }
    return;
  }
  if (options.datasets.empty()) return;  // an error already
  const Node& place = *arguments.find("probabilities");
  const std::vector<double>& chances = *options.probabilities;
  if (chances.size() != options.datasets.size()) {
    diagnostics.error(place, cat("probabilities has ", chances.size(), " numbers, datasets has ",
                                 options.datasets.size(), ": a number each"));
    return;
  }
  double sum = 0;
  for (const double chance : chances) sum += chance;
  if (sum == 0) {
    diagnostics.error(place, "probabilities are all 0: one at least is above 0, with the sum 1");
    return;
  }
  const bool has_zero = std::ranges::find(chances, 0.0) != chances.end();
  if (has_zero && options.stopping_strategy != datasets::StoppingStrategy::kFirstExhausted) {
    diagnostics.error(place,
                      "a dataset with probability 0 never ends, so that stopping_strategy can only "
                      "be first_exhausted");
    return;
  }
  const double tolerance = std::sqrt(std::numeric_limits<double>::epsilon());  // numpy's
  if (std::abs(sum - 1) <= tolerance) return;
  std::vector<std::string> right;
  for (const double chance : chances) right.push_back(cat(chance / sum));
  diagnostics.error(place, cat("probabilities have the sum ", sum,
                               ", not 1; in the same proportion: [", join(right, ", "), "]"));
}

constexpr const char* kTokenizerKey = "tokenizer";

/// Whether two values of a tokenizer's key are the same.
bool are_same(const Node& one, const Node& other) {
  return one.bool_value() == other.bool_value() && one.string_value() == other.string_value() &&
         one.number() == other.number();
}

/// A tokenizer's section, also of one that is named alone.
Node as_section(const Node& tokenizer) {
  if (tokenizer.is_mapping()) return tokenizer;
  Node section = Node::mapping();
  section.set_position(tokenizer.position());
  section.put_as_found("pretrained_model_name_or_path", tokenizer);
  return section;
}

/// Adds a section, and if it is a mixture's the sections of its datasets.
void add_sections(const Node& section, std::vector<const Node*>& sections) {
  sections.push_back(&section);
  const Node* const list = section.find("datasets");
  if (list == nullptr || !list->is_sequence()) return;
  for (const Node& part : list->children()) {
    if (part.is_mapping()) add_sections(part, sections);
  }
}

}  // namespace

Node with_tokenizer_of_parts(const Node& section, Diagnostics& diagnostics) {
  std::vector<const Node*> sections;
  add_sections(section, sections);
  if (sections.size() == 1) return section;
  std::optional<Node> common;
  std::map<std::string, std::string> places;  // of the first that has a key, by the key
  for (const Node* each : sections) {
    if (!each->has(kTokenizerKey)) continue;
    const Node& named = *each->find(kTokenizerKey);
    const Node own = as_section(named);
    if (!common) common = own;
    for (const Node& key : own.children()) {
      if (key.is_null()) continue;
      const bool is_new = places.emplace(key.key(), named.path()).second;
      if (is_new) {
        common->put_as_found(key.key(), key);
      } else if (key.key() != "_target_" && !are_same(key, *common->find(key.key()))) {
        diagnostics.error(named.is_mapping() ? key : named,
                          cat("all datasets of a mixture are written with one tokenizer, and ",
                              places.at(key.key()), " has another ", key.key()));
      }
    }
  }
  if (!common) return section;
  Node whole = section;
  whole.put_as_found(kTokenizerKey, *common);
  return whole;
}

std::unique_ptr<DatasetRecipe> read_concatenated(const Target& target, Diagnostics& diagnostics) {
  const size_t errors = diagnostics.count(config::Severity::kError);
  const auto options = config::bind<ConcatDatasetSection>(
      target.arguments, diagnostics, {.legacy_keys = {}, .other_keys = {kTokenizerKey}});
  std::vector<DatasetSection> parts = read_parts(options.datasets, target.arguments, diagnostics);
  if (parts.empty() || diagnostics.count(config::Severity::kError) > errors) return nullptr;
  return std::make_unique<MixtureRecipe>(target.arguments.path(), std::move(parts), std::nullopt);
}

std::unique_ptr<DatasetRecipe> read_interleaved(const Target& target, Diagnostics& diagnostics) {
  const size_t errors = diagnostics.count(config::Severity::kError);
  auto options = config::bind<InterleaveDatasetsSection>(
      target.arguments, diagnostics, {.legacy_keys = {}, .other_keys = {kTokenizerKey}});
  check_interleaving(options, target.arguments, diagnostics);
  std::vector<DatasetSection> parts = read_parts(options.datasets, target.arguments, diagnostics);
  if (parts.empty() || diagnostics.count(config::Severity::kError) > errors) return nullptr;
  return std::make_unique<MixtureRecipe>(target.arguments.path(), std::move(parts),
                                         std::move(options));
}

}  // namespace automodel::recipes
