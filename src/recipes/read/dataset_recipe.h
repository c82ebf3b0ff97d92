#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "config/registry.h"
#include "datasets/conversations/chat_format.h"
#include "datasets/loading/loader.h"
#include "datasets/loading/packing.h"
#include "datasets/pretraining/megatron_pretraining.h"
#include "datasets/retrieval/retrieval_dataset.h"
#include "datasets/rows/row_source.h"
#include "datasets/samples/classified.h"
#include "datasets/samples/dataset.h"
#include "datasets/samples/text_encoder.h"
#include "datasets/samples/tokenizer_encoder.h"

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
  std::optional<datasets::PackingConfig> packing;  ///< absent: samples are not packed
  datasets::TrainingSchedule schedule;
  bool reads_first_rows = true;  ///< for warnings; a wrong row among them is an error then
  bool is_validation = false;    ///< each validation reads all of it, once
  datasets::ClassifierFacts classifier = {};  ///< of a model that classifies sequences
  datasets::RetrievalTexts texts = {};        ///< of queries and passages
};

struct DatasetSection;

/// A dataset section whose options have been read but whose files have not.
class DatasetRecipe {
 public:
  virtual ~DatasetRecipe() = default;

  virtual bool needs_tokenizer() const = 0;

  /// Looks at the files and reads at most their first row. Throws UserError for mistakes; returns a
  /// note when something cannot be checked on this machine.
  virtual std::optional<std::string> check() const = 0;

  /// Whether its samples can be packed.
  virtual bool has_samples_to_pack() const = 0;
  /// Where its rows come from; absent for a dataset that reads no files.
  virtual std::optional<datasets::SourceOptions> source() const { return std::nullopt; }

  /// Columns of the first row that nothing reads.
  virtual std::vector<std::string> unread_columns() const { return {}; }
  /// Whether each label is at its own token (block diffusion) instead of one place earlier.
  virtual bool is_unshifted() const { return false; }

  /// Whether its samples have a source each, for models of an encoder and a decoder.
  virtual bool gives_sources() const { return false; }
  /// Passages of a sample that is a query with passages; 0 of other samples.
  virtual int64_t num_passages() const { return 0; }
  /// What it reads of the hub besides source().
  virtual std::vector<datasets::SourceOptions> hub_sources() const { return {}; }

  /// Whether its samples have a class each, instead of tokens to predict.
  virtual bool gives_classes() const { return false; }
  /// Throws UserError where the first row's class, or how many there are, is none of the model's.
  virtual void check_classes(const datasets::ClassifierFacts& model) const {}

  /// Whether `dataloader_type` decides how its samples are distributed.
  virtual bool takes_dataloader_type() const { return false; }

  /// Whether it is a stream with an order of its own, which has no end in training.
  virtual bool is_stream() const { return false; }

  /// How it uses a chat template.
  virtual datasets::TemplateUse template_use() const { return datasets::TemplateUse::kNone; }

  /// Whether its texts get the special tokens that a tokenizer adds; else it, or a chat template,
  /// writes all of them.
  virtual bool takes_special_tokens() const { return false; }

  /// Whether its options cut samples to a length.
  virtual bool truncates() const { return false; }

  /// The most tokens of a sample, where its options say so beside `seq_length` and `seq_len`.
  virtual std::optional<int64_t> most_tokens() const { return std::nullopt; }

  /// Where its options name a length of samples and nothing acts on it: what would, for a text.
  /// "" where something does.
  virtual std::string missing_for_length() const { return ""; }

  /// The text of the chat template that its options name. Throws UserError when it cannot be found.
  virtual std::optional<std::string> named_template() const { return std::nullopt; }

  /// The upper bound (exclusive) of the tokens that a dataset draws at random.
  virtual std::optional<int64_t> drawn_vocabulary() const { return std::nullopt; }

  /// The datasets that a mixture is of, one at least; null for a dataset by itself. A mixture
  /// answers the questions above for all of them together.
  virtual const std::vector<DatasetSection>* parts() const { return nullptr; }

  /// Its samples, with random access; null for a stream. Warnings about its rows are told.
  virtual std::unique_ptr<datasets::Dataset> open(const DataContext& data) const { return nullptr; }
  /// Whether open() gives samples.
  virtual bool has_samples() const { return false; }

  virtual std::unique_ptr<datasets::BatchStream> build(const DataContext& data) const = 0;
};

/// Reads the options of a dataset target; returns nullptr after reporting errors in them.
using DatasetMaker = std::function<std::unique_ptr<DatasetRecipe>(
    const config::Target& target, config::Diagnostics& diagnostics)>;

/// Batches of samples, packed where that is asked.
std::unique_ptr<datasets::BatchStream> load(std::unique_ptr<const datasets::Dataset> samples,
                                            const DataContext& data);

/// Every dataset name that a recipe may use.
config::TargetRegistry<DatasetMaker> dataset_targets();

/// A dataset section of a recipe.
struct DatasetSection {
  std::string key;   ///< "dataset", "validation_dataset_wiki"
  std::string name;  ///< of a validation set: "default" or the key's suffix
  std::unique_ptr<DatasetRecipe> plan;
  std::optional<std::string> tokenizer_folder;  ///< from its `tokenizer` node
  std::optional<HubName> tokenizer_name;        ///< what the `tokenizer` node names
  config::Node tokenizer_node;                  ///< the `tokenizer` node
  datasets::EncoderOptions encoder_options;     ///< by the `tokenizer` node's other keys
  config::Node node;  ///< of a validation set with what it has of the training set's
  std::vector<std::string> inherited = {};  ///< its keys that are the training set's

  /// The sections of the datasets by themselves: those of a mixture, and of mixtures in it, or this
  /// one.
  std::vector<const DatasetSection*> single_sections() const;
};

}  // namespace automodel::recipes
