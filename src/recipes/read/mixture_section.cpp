#include "recipes/read/mixture_section.h"

#include <algorithm>
#include <cmath>
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
    auto mixed = std::make_unique<datasets::MixedDataset>(std::move(opened), interleaving);
    if (data.context.reporter != nullptr) tell(mixed->facts(), *data.context.reporter);
    return mixed;
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
    if (options.seed) {
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
  constexpr double kTolerance = 1.5e-8;  // numpy's
  if (std::abs(sum - 1) <= kTolerance) return;
  std::vector<std::string> right;
  for (const double chance : chances) right.push_back(cat(chance / sum));
  diagnostics.error(place, cat("probabilities have the sum ", cat(sum),
                               ", not 1; in the same proportion: [", join(right, ", "), "]"));
}

constexpr const char* kTokenizerKey = "tokenizer";

/// Whether two nodes say the same.
bool are_same(const Node& one, const Node& other) {
  if (one.kind() != other.kind() || one.size() != other.size()) return false;
  if (one.is_scalar()) return one.text() == other.text();
  if (!one.is_mapping()) {
    return std::ranges::equal(one.children(), other.children(), are_same);
  }
  return std::ranges::all_of(one.children(), [&](const Node& child) {
    const Node* const found = other.find(child.key());
    return found != nullptr && are_same(child, *found);
  });
}

/// The datasets of a mixture, and of the mixtures among them, with those of these that name a
/// tokenizer.
void add_single_nodes(const Node& section, std::vector<const Node*>& nodes) {
  const Node* const list = section.find("datasets");
  if (list == nullptr || !list->is_sequence()) return;
  for (const Node& part : list->children()) {
    if (!part.is_mapping()) continue;
    const bool is_mixture = part.find("datasets") != nullptr;
    if (!is_mixture || part.has(kTokenizerKey)) nodes.push_back(&part);
    if (is_mixture) add_single_nodes(part, nodes);
  }
}

const Node* tokenizer_of(const Node& section) {
  const Node* const found = section.find(kTokenizerKey);
  return found == nullptr || found->is_null() ? nullptr : found;
}

}  // namespace

Node with_tokenizer_of_parts(const Node& section, Diagnostics& diagnostics) {
  std::vector<const Node*> parts;
  add_single_nodes(section, parts);
  if (parts.empty()) return section;
  const Node* const own = tokenizer_of(section);
  const Node* const common = own != nullptr ? own : tokenizer_of(*parts.front());
  for (const Node* part : parts) {
    const Node* const named = tokenizer_of(*part);
    if (named == nullptr || (common != nullptr && are_same(*named, *common))) continue;
    diagnostics.error(
        *named, cat("all datasets of a mixture are written with one tokenizer, and this is "
                    "not ",
                    common == nullptr ? cat("the model's, which ", parts.front()->path(), " has")
                                      : common->path(),
                    "; ", section.path(), ".tokenizer names one for all of them"));
  }
  if (own != nullptr || common == nullptr) return section;
  Node whole = section;
  whole.put(kTokenizerKey, *common);
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
