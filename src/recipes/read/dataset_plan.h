#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "config/registry.h"
#include "datasets/chat_format.h"
#include "datasets/dataset.h"
#include "datasets/loader.h"
#include "datasets/megatron_pretraining.h"
#include "datasets/packing.h"
#include "datasets/row_source.h"
#include "datasets/text_encoder.h"

namespace automodel::recipes {

/// A model or tokenizer as a recipe names it.
struct HubName {
  std::string name;  ///< a folder, or a name on the hub
  std::optional<std::string> cache_dir;
  std::optional<std::string> revision;
};

/// What a dataset is built with.
struct DataContext {
  const datasets::TextEncoder* encoder = nullptr;  ///< null when the plan needs none
  datasets::DataloaderConfig loader;
  datasets::LoaderContext context;
  std::optional<datasets::PackingConfig> packing;  ///< join samples to packs
  datasets::TrainingSchedule schedule;
};

/// A dataset section whose options are read but whose files are not.
class DatasetPlan {
 public:
  virtual ~DatasetPlan() = default;

  virtual bool needs_tokenizer() const = 0;

  /// Looks at the files without reading more than their first row. Throws UserError for what is
  /// wrong; returns a note when something cannot be looked at here.
  virtual std::optional<std::string> check() const = 0;

  /// Whether its samples can be joined to packs.
  virtual bool has_samples_to_pack() const = 0;
  /// Where its rows come from, for a dataset that reads files.
  virtual std::optional<datasets::SourceOptions> source() const { return std::nullopt; }

  /// Columns of the first row that nothing reads.
  virtual std::vector<std::string> unread_columns() const { return {}; }
  /// Whether labels stand at their own tokens (block diffusion) instead of one before.
  virtual bool is_unshifted() const { return false; }

  /// Whether `dataloader_type` deals its samples.
  virtual bool takes_dataloader_type() const { return false; }

  /// Which chat template it writes with.
  virtual datasets::TemplateUse template_use() const { return datasets::TemplateUse::kNone; }

  /// The text of the chat template that its options name. Throws UserError when it is nowhere.
  virtual std::optional<std::string> named_template() const { return std::nullopt; }

  /// For a dataset that draws tokens: they are below this.
  virtual std::optional<int64_t> drawn_vocabulary() const { return std::nullopt; }

  virtual std::unique_ptr<datasets::BatchStream> build(const DataContext& data) const = 0;
};

/// Reads the options of a dataset target; nullptr when they have errors, which are reported.
using DatasetMaker = std::function<std::unique_ptr<DatasetPlan>(const config::Target& target,
                                                                config::Diagnostics& diagnostics)>;

/// Every dataset name that recipes may use.
config::TargetRegistry<DatasetMaker> dataset_targets();

/// A dataset section of a recipe.
struct DatasetSection {
  std::string key;   ///< "dataset", "validation_dataset_wiki"
  std::string name;  ///< of a validation set: "default" or the key's suffix
  std::unique_ptr<DatasetPlan> plan;
  std::optional<std::string> tokenizer_folder;  ///< from its `tokenizer` node
  std::optional<HubName> tokenizer_name;        ///< what the `tokenizer` node names
  config::Node tokenizer_node;                  ///< where
  config::Node node;
};

}  // namespace automodel::recipes
