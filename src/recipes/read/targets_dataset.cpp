#include <algorithm>

#include "config/bind.h"
#include "config/schema.h"
#include "datasets/conversations/agent_chat.h"
#include "datasets/conversations/chat_dataset.h"
#include "datasets/conversations/xlam.h"
#include "datasets/pretraining/mock_classified.h"
#include "datasets/pretraining/mock_iterable.h"
#include "datasets/pretraining/mock_unpacked.h"
#include "datasets/pretraining/nanogpt.h"
#include "datasets/texts/classified_texts.h"
#include "datasets/texts/column_mapped.h"
#include "datasets/texts/hellaswag.h"
#include "datasets/texts/seq2seq.h"
#include "datasets/texts/squad.h"
#include "datasets/texts/text_file.h"
#include "recipes/read/dataset_recipe.h"
#include "recipes/read/megatron_section.h"
#include "recipes/read/mixture_section.h"
#include "recipes/read/retrieval_section.h"

namespace automodel::recipes {

namespace {

using config::Diagnostics;
using config::Target;

/// Throws InputError when a dataset draws tokens that the model does not have.
void check_drawn(int64_t vocab_size, const DataContext& data) {
  if (data.context.vocab_size > 0 && vocab_size > data.context.vocab_size) {
    throw InputError(cat("vocab_size ", vocab_size, " of a dataset is larger than the model's ",
                         data.context.vocab_size));
  }
}

/// A dataset with random access to its rows, read through the loader.
template <typename Config, typename Data>
class MapDatasetRecipe final : public DatasetRecipe {
 public:
  explicit MapDatasetRecipe(Config config) : config_(std::move(config)) {}

  bool gives_classes() const override {
    return std::is_same_v<Data, datasets::ClassifiedTextDataset>;
  }

  bool gives_sources() const override { return std::is_same_v<Data, datasets::Seq2SeqDataset>; }

  void check_classes(const datasets::ClassifierFacts& model) const override {
    if constexpr (requires { config_.columns(); }) {
      datasets::check_first_class(config_.source(), config_.columns(), model);
    }
  }

  bool needs_tokenizer() const override { return true; }

  bool has_samples_to_pack() const override { return !gives_sources(); }

  std::optional<std::string> check() const override { return datasets::check(config_).note; }

  std::optional<datasets::SourceOptions> source() const override { return config_.source(); }

  datasets::TemplateUse template_use() const override {
    if constexpr (requires { config_.template_use(); }) return config_.template_use();
    return datasets::TemplateUse::kNone;
  }

  bool takes_special_tokens() const override {
    if constexpr (requires { config_.chat_template; }) {
      if (config_.chat_template) return false;
    }
    return template_use() != datasets::TemplateUse::kTokenizers;
  }

  std::optional<int64_t> most_tokens() const override {
    if constexpr (requires { config_.max_length; }) return config_.max_length;
    return std::nullopt;
  }

  bool truncates() const override {
    if constexpr (requires { config_.max_length; }) return config_.max_length.has_value();
    if constexpr (requires { config_.truncation; }) {
      return config_.truncation != datasets::Truncation::kNone;
    }
    return false;
  }

  std::string missing_for_length() const override {
    if constexpr (requires { config_.padding; }) {
      if (truncates() || config_.padding == datasets::Padding::kMaxLength) return "";
      std::string missing =
          "truncation: true (which cuts longer ones) or padding: max_length (which fills shorter "
          "ones)";
      if constexpr (requires { config_.truncate_history; }) {
        if (config_.truncate_history || config_.filter_overlong) return "";
        missing += ", truncate_history or filter_overlong";
      }
      return missing;
    }
    return "";
  }

  std::vector<std::string> unread_columns() const override {
    std::vector<std::string> unread;
    if constexpr (requires { config_.columns_read(); }) {
      const std::vector<std::string> read = config_.columns_read();
      for (const std::string& column : datasets::describe_source(config_.source()).columns) {
        if (std::ranges::find(read, column) == read.end()) unread.push_back(column);
      }
    }
    return unread;
  }

  bool is_unshifted() const override {
    if constexpr (requires { config_.unshifted; }) return config_.unshifted;
    return false;
  }

  std::optional<std::string> named_template() const override {
    if constexpr (requires { config_.chat_template; }) {
      if (config_.chat_template) return datasets::named_template(*config_.chat_template).text;
    }
    return std::nullopt;
  }

  bool has_samples() const override { return true; }

  std::unique_ptr<datasets::Dataset> open(const DataContext& data) const override {
    auto dataset = make(data);
    if constexpr (requires { dataset->findings(); }) {
      if (data.reads_first_rows) {
        for (const std::string& finding : dataset->findings()) {
          if (data.context.reporter != nullptr) data.context.reporter->warning(finding);
        }
      }
    }
    return dataset;
  }

  std::unique_ptr<datasets::BatchStream> build(const DataContext& data) const override {
    return load(open(data), data);
  }

 private:
  std::unique_ptr<Data> make(const DataContext& data) const {
    if constexpr (std::is_same_v<Data, datasets::ClassifiedTextDataset>) {
      return std::make_unique<Data>(config_, *data.encoder, data.classifier);
    } else {
      return std::make_unique<Data>(config_, *data.encoder);
    }
  }

  Config config_;
};

/// A dataset of random tokens that are already in batches.
class MockDatasetRecipe final : public DatasetRecipe {
 public:
  explicit MockDatasetRecipe(datasets::MockIterableDatasetConfig config)
      : config_(std::move(config)) {}

  bool needs_tokenizer() const override { return false; }

  bool has_samples_to_pack() const override { return false; }

  std::optional<std::string> check() const override {
    config_.validate();
    return std::nullopt;
  }

  std::optional<int64_t> drawn_vocabulary() const override { return config_.vocab_size; }

  std::unique_ptr<datasets::BatchStream> build(const DataContext& data) const override {
    check_drawn(config_.vocab_size, data);
    const datasets::MockIterableDataset::Place place{data.context.num_replicas, data.context.rank,
                                                     data.context.seed};
    return std::make_unique<datasets::MockIterableDataset>(config_, place);
  }

 private:
  datasets::MockIterableDatasetConfig config_;
};

/// Sentences of random tokens.
class MockUnpackedDatasetRecipe final : public DatasetRecipe {
 public:
  explicit MockUnpackedDatasetRecipe(const datasets::MockUnpackedDatasetConfig& config)
      : config_(config) {}

  bool needs_tokenizer() const override { return false; }
  bool has_samples_to_pack() const override { return true; }
  std::optional<std::string> check() const override { return std::nullopt; }
  std::optional<int64_t> drawn_vocabulary() const override { return config_.vocab_size; }

  bool has_samples() const override { return true; }

  std::unique_ptr<datasets::Dataset> open(const DataContext& data) const override {
    check_drawn(config_.vocab_size, data);
    return std::make_unique<datasets::MockUnpackedDataset>(config_);
  }

  std::unique_ptr<datasets::BatchStream> build(const DataContext& data) const override {
    return load(open(data), data);
  }

 private:
  datasets::MockUnpackedDatasetConfig config_;
};

/// Random tokens with random classes.
class MockClassifiedRecipe final : public DatasetRecipe {
 public:
  explicit MockClassifiedRecipe(const datasets::MockSequenceClassificationDatasetConfig& config)
      : config_(config) {}

  bool needs_tokenizer() const override { return false; }
  bool has_samples_to_pack() const override { return true; }
  std::optional<std::string> check() const override { return std::nullopt; }
  std::optional<int64_t> drawn_vocabulary() const override { return config_.vocab_size; }
  std::optional<int64_t> most_tokens() const override { return config_.max_seq_len; }
  bool gives_classes() const override { return true; }
  void check_classes(const datasets::ClassifierFacts& model) const override {
    datasets::check_drawn_classes(config_, model);
  }

  bool has_samples() const override { return true; }

  std::unique_ptr<datasets::Dataset> open(const DataContext& data) const override {
    check_drawn(config_.vocab_size, data);
    return std::make_unique<datasets::MockSequenceClassificationDataset>(config_, data.classifier);
  }

  std::unique_ptr<datasets::BatchStream> build(const DataContext& data) const override {
    return load(open(data), data);
  }

 private:
  datasets::MockSequenceClassificationDatasetConfig config_;
};

/// A stream of tokens that nanoGPT's scripts wrote.
class NanogptDatasetRecipe final : public DatasetRecipe {
 public:
  explicit NanogptDatasetRecipe(datasets::NanogptDatasetConfig config)
      : config_(std::move(config)) {}

  bool needs_tokenizer() const override { return false; }
  bool has_samples_to_pack() const override { return false; }
  bool is_stream() const override { return true; }

  std::optional<std::string> check() const override {
    datasets::check(config_);
    return std::nullopt;
  }

  std::unique_ptr<datasets::BatchStream> build(const DataContext& data) const override {
    using Passes = datasets::NanogptDataset::Passes;
    return std::make_unique<datasets::NanogptDataset>(
        config_, data.loader, data.context, data.is_validation ? Passes::kOne : Passes::kEndless);
  }

 private:
  datasets::NanogptDatasetConfig config_;
};

std::unique_ptr<DatasetRecipe> read_nanogpt(const Target& target, Diagnostics& diagnostics) {
  const size_t errors = diagnostics.count(config::Severity::kError);
  auto config = config::bind<datasets::NanogptDatasetConfig>(
      target.arguments, diagnostics, {.legacy_keys = {}, .other_keys = {"tokenizer"}});
  if (diagnostics.count(config::Severity::kError) > errors) return nullptr;
  if (config.align_to_bos && !config.bos_token) {
    diagnostics.error(*target.arguments.find("align_to_bos"),
                      "align_to_bos: true needs bos_token, the token that begins a document");
    return nullptr;
  }
  if (config.bos_token && !config.align_to_bos) {
    diagnostics.warning_at_key(*target.arguments.find("bos_token"),
                               "'bos_token' has no effect without align_to_bos: true");
  }
  return std::make_unique<NanogptDatasetRecipe>(std::move(config));
}

void check_template(const std::optional<std::string>& text, const config::Node& arguments,
                    Diagnostics& diagnostics) {
  if (!text) return;
  try {
    const datasets::RowTemplate made(*text);
  } catch (const UserError& error) {
    diagnostics.error(*arguments.find("source_template"), error.what());
  }
}

template <typename Config, typename Plan>
DatasetMaker plan_maker() {
  return [](const Target& target, Diagnostics& diagnostics) -> std::unique_ptr<DatasetRecipe> {
    const size_t errors = diagnostics.count(config::Severity::kError);
    Config config = config::bind<Config>(target.arguments, diagnostics,
                                         {.legacy_keys = {}, .other_keys = {"tokenizer"}});
    if constexpr (requires { config.source_template; }) {
      check_template(config.source_template, target.arguments, diagnostics);
    }
    if (diagnostics.count(config::Severity::kError) > errors) return nullptr;
    return std::make_unique<Plan>(std::move(config));
  };
}

template <typename Config, typename Plan>
void add(config::TargetRegistry<DatasetMaker>& registry, const char* module, const char* name,
         const char* doc) {
  const std::string base = "nemo_automodel.components.datasets.llm.";
  registry.add({.name = cat(base, module, ".", name),
                .aliases = {base + name, name},
                .doc = doc,
                .options = config::schema_of<Config>()},
               plan_maker<Config, Plan>());
}

void add_unsupported(config::TargetRegistry<DatasetMaker>& registry) {
  const std::string base = "nemo_automodel.components.datasets.llm.";
  const struct {
    const char* module;
    const char* name;
    const char* reason;
  } names[] = {
      {"column_mapped_text_instruction_iterable_dataset",
       "ColumnMappedTextInstructionIterableDataset",
       "streamed instruction data are not in this version; "
       "ColumnMappedTextInstructionDataset reads files of any size without loading them"},
      {"delta_lake_dataset", "DeltaLakeDataset", "Delta Lake tables are not in this version"},
  };
  for (const auto& entry : names) {
    registry.add_unsupported(cat(base, entry.module, ".", entry.name), entry.reason,
                             {base + entry.name, entry.name});
  }
}

}  // namespace

std::unique_ptr<datasets::BatchStream> load(std::unique_ptr<const datasets::Dataset> samples,
                                            const DataContext& data) {
  if (data.packing) {
    samples = std::make_unique<datasets::PackedDataset>(std::move(samples), *data.packing,
                                                        data.context.reporter);
  }
  return std::make_unique<datasets::DataLoader>(std::move(samples), data.loader, data.context);
}

std::vector<const DatasetSection*> DatasetSection::single_sections() const {
  const std::vector<DatasetSection>* const parts = plan == nullptr ? nullptr : plan->parts();
  if (parts == nullptr) return {this};
  std::vector<const DatasetSection*> all;
  for (const DatasetSection& part : *parts) {
    for (const DatasetSection* section : part.single_sections()) all.push_back(section);
  }
  return all;
}

config::TargetRegistry<DatasetMaker> dataset_targets() {
  config::TargetRegistry<DatasetMaker> registry("dataset");
  using namespace datasets;
  add<ColumnMappedTextInstructionDatasetConfig,
      MapDatasetRecipe<ColumnMappedTextInstructionDatasetConfig,
                       ColumnMappedTextInstructionDataset>>(
      registry, "column_mapped_text_instruction_dataset", "ColumnMappedTextInstructionDataset",
      "question and answer columns of JSON or JSONL files");
  add<ChatDatasetConfig, MapDatasetRecipe<ChatDatasetConfig, ChatDataset>>(
      registry, "chat_dataset", "ChatDataset",
      "conversations (OpenAI messages, ShareGPT) in JSON or JSONL files");
  add<AgentChatConfig, MapDatasetRecipe<AgentChatConfig, AgentChatDataset>>(
      registry, "agent_chat", "make_agent_chat_dataset", "traces of agents that call tools");
  add<XlamConfig, MapDatasetRecipe<XlamConfig, XlamDataset>>(
      registry, "xlam", "make_xlam_dataset", "function calling: query, tools, answers");
  add<SquadConfig, MapDatasetRecipe<SquadConfig, SquadDataset>>(
      registry, "squad", "make_squad_dataset", "reading comprehension");
  add<HellaSwagConfig, MapDatasetRecipe<HellaSwagConfig, HellaSwagDataset>>(
      registry, "hellaswag", "HellaSwag", "continuations");
  add<Seq2SeqConfig, MapDatasetRecipe<Seq2SeqConfig, Seq2SeqDataset>>(
      registry, "seq2seq", "make_seq2seq_dataset",
      "sources and targets, for models of an encoder and a decoder");
  add<MockIterableDatasetConfig, MockDatasetRecipe>(registry, "mock_iterable_dataset",
                                                    "MockIterableDataset", "random tokens");
  add<MockUnpackedDatasetConfig, MockUnpackedDatasetRecipe>(
      registry, "mock", "build_unpacked_dataset", "random sentences");
  add<GlueMrpcConfig, MapDatasetRecipe<GlueMrpcConfig, ClassifiedTextDataset>>(
      registry, "seq_cls", "GLUE_MRPC", "pairs of sentences that mean the same or not");
  add<MockSequenceClassificationDatasetConfig, MockClassifiedRecipe>(
      registry, "mock_seq_cls", "MockSequenceClassificationDataset",
      "random tokens with random classes");
  registry.add(
      {.name = "automodel.SequenceClassificationDataset",
       .aliases = {"SequenceClassificationDataset"},
       .doc = "texts, or pairs of texts, with their classes",
       .options = config::schema_of<SequenceClassificationDatasetConfig>()},
      plan_maker<SequenceClassificationDatasetConfig,
                 MapDatasetRecipe<SequenceClassificationDatasetConfig, ClassifiedTextDataset>>());
  registry.add({.name = "automodel.TextFileDataset",
                .aliases = {"TextFileDataset"},
                .doc = "plain text for pretraining",
                .options = config::schema_of<TextFileDatasetConfig>()},
               plan_maker<TextFileDatasetConfig,
                          MapDatasetRecipe<TextFileDatasetConfig, TextFileDataset>>());
  const std::string base = "nemo_automodel.components.datasets.llm.";
  registry.add({.name = cat(base, "nanogpt_dataset.NanogptDataset"),
                .aliases = {cat(base, "NanogptDataset"), "NanogptDataset"},
                .doc = "tokens that nanoGPT's scripts wrote (.bin) for pretraining",
                .options = config::schema_of<NanogptDatasetConfig>()},
               read_nanogpt);
  registry.add({.name = cat(base, "megatron_dataset.MegatronPretraining"),
                .aliases = {cat(base, "MegatronPretraining"), "MegatronPretraining"},
                .doc = "tokenized documents (.bin, .idx) for pretraining",
                .options = config::schema_of<MegatronSection>()},
               read_megatron);
  registry.add(
      {.name = cat(base, "retrieval_dataset.RetrievalDatasetConfig"),
       .aliases = {cat(base, "retrieval_dataset.make_retrieval_dataset"),
                   cat(base, "retrieval_dataset_inline.make_retrieval_dataset"),
                   cat(base, "RetrievalDatasetConfig"), cat(base, "make_retrieval_dataset"),
                   "RetrievalDatasetConfig", "make_retrieval_dataset"},
       .doc = "queries with passages that answer them and others",
       .options = retrieval_dataset_schema()},
      read_retrieval_dataset);
  registry.add({.name = "torch.utils.data.ConcatDataset",
                .aliases = {"torch.utils.data.dataset.ConcatDataset", "ConcatDataset",
                            "datasets.concatenate_datasets"},
                .doc = "several datasets, one after another",
                .options = config::schema_of<ConcatDatasetSection>()},
               read_concatenated);
  registry.add({.name = "datasets.interleave_datasets",
                .aliases = {"datasets.combine.interleave_datasets", "interleave_datasets"},
                .doc = "several datasets in turn, or drawn by their chances",
                .options = config::schema_of<InterleaveDatasetsSection>()},
               read_interleaved);
  add_unsupported(registry);
  return registry;
}

}  // namespace automodel::recipes
