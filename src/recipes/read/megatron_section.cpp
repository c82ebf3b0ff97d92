#include "recipes/read/megatron_section.h"

#include <utility>

#include "config/bind.h"
#include "core/error.h"
#include "core/text.h"
#include "datasets/pretraining/megatron_pretraining.h"

namespace automodel::recipes {

namespace {

using config::Diagnostics;
using config::Node;
using datasets::MegatronPretrainingConfig;

/// The entries of a list of texts and numbers, or of a single one. Elements of a list that is
/// written in quotes have values but no text.
std::vector<std::string> entries_of(const Node& node) {
  if (!node.is_sequence()) return {node.text()};
  std::vector<std::string> entries;
  for (const Node& child : node.children()) {
    entries.push_back(child.string_value().value_or(config::to_json(child).dump()));
  }
  return entries;
}

void read_paths(const Node& paths, MegatronPretrainingConfig& config) {
  if (paths.is_mapping()) {
    for (const Node& part : paths.children()) {
      datasets::set_blend_of_part(part.key(), entries_of(part), config);
    }
  } else if (paths.is_string()) {
    datasets::read_blend_path(paths.text(), config);
  } else {
    config.blend = datasets::MegatronBlend::parse(entries_of(paths));
  }
}

/// A positive whole number counts batches; 1.0 and numbers between 0 and 1 are a share of all
/// batches.
void read_limit(const Node& node, MegatronPretrainingConfig& config, Diagnostics& diagnostics) {
  if (const auto batches = node.int_value(); batches && *batches > 0) {
    config.limit_val_batches = *batches;
    return;
  }
  const std::optional<double> part = node.number();
  if (!part || *part <= 0 || *part > 1 || node.int_value()) {
    diagnostics.error(node, cat("expected a number of batches, or a part of all in (0, 1], found ",
                                node.describe()));
    return;
  }
  config.limit_val_batches = std::nullopt;
  if (config.blend) {
    diagnostics.error(node,
                      "a part of all batches needs paths with validation documents of their own; "
                      "give a number of batches, or num_val_samples");
  }
}

MegatronPretrainingConfig config_of(const MegatronSection& section, const Node& node,
                                    Diagnostics& diagnostics) {
  MegatronPretrainingConfig config;
  config.seq_length = section.seq_length;
  config.seed = static_cast<uint32_t>(section.seed);
  if (section.split) config.split = join(entries_of(*section.split), ", ");
  bool is_known = false;
  for (const auto& [name, value] : EnumNames<datasets::MegatronSplit>::values) {
    if (section.splits_to_build != name) continue;
    config.part = value;
    is_known = true;
  }
  if (!is_known) {
    diagnostics.error(*node.find("splits_to_build"),
                      cat("'", section.splits_to_build, "' is none of train, validation and test"));
  }
  config.num_samples = {section.num_train_samples, section.num_val_samples,
                        section.num_test_samples};
  try {
    read_paths(section.paths, config);
  } catch (const InputError&) {
    throw;  // check() reports missing files
  } catch (const UserError& error) {
    diagnostics.error(*node.find("paths"), error.what());
  }
  if (section.trainer_limit_val_batches) {
    read_limit(*section.trainer_limit_val_batches, config, diagnostics);
  }
  return config;
}

/// A dataset of tokenized documents whose samples are ordered as Megatron orders them.
class MegatronDatasetRecipe final : public DatasetRecipe {
 public:
  explicit MegatronDatasetRecipe(MegatronPretrainingConfig config) : config_(std::move(config)) {}

  bool needs_tokenizer() const override { return true; }
  bool has_samples_to_pack() const override { return false; }
  bool takes_dataloader_type() const override { return true; }

  std::optional<std::string> check() const override {
    datasets::check(config_);
    return std::nullopt;
  }

  std::unique_ptr<datasets::BatchStream> build(const DataContext& data) const override {
    datasets::DataloaderConfig loader = data.loader;
    loader.dataloader_type = loader.dataloader_type.value_or(datasets::MegatronOrder::kSingle);
    return std::make_unique<datasets::DataLoader>(
        std::make_unique<datasets::MegatronPretraining>(config_, data.schedule, *data.encoder),
        loader, data.context);
  }

 private:
  MegatronPretrainingConfig config_;
};

/// A dataset whose files are not on this machine: check() reports it, and a run throws.
class AbsentMegatronRecipe final : public DatasetRecipe {
 public:
  explicit AbsentMegatronRecipe(std::string reason) : reason_(std::move(reason)) {}

  bool needs_tokenizer() const override { return true; }
  bool has_samples_to_pack() const override { return false; }
  bool takes_dataloader_type() const override { return true; }
  std::optional<std::string> check() const override { throw InputError(reason_); }
  std::unique_ptr<datasets::BatchStream> build(const DataContext&) const override {
    throw InputError(reason_);
  }

 private:
  std::string reason_;
};

}  // namespace

std::unique_ptr<DatasetRecipe> read_megatron(const config::Target& target,
                                             Diagnostics& diagnostics) {
  const size_t errors = diagnostics.count(config::Severity::kError);
  const auto section = config::bind<MegatronSection>(
      target.arguments, diagnostics, {.legacy_keys = {}, .other_keys = {"tokenizer"}});
  if (diagnostics.count(config::Severity::kError) > errors) return nullptr;
  try {
    MegatronPretrainingConfig config = config_of(section, target.arguments, diagnostics);
    if (diagnostics.count(config::Severity::kError) > errors) return nullptr;
    return std::make_unique<MegatronDatasetRecipe>(std::move(config));
  } catch (const InputError& error) {
    return std::make_unique<AbsentMegatronRecipe>(error.what());
  }
}

}  // namespace automodel::recipes
