#include "datasets/texts/classified_texts.h"

#include <utility>

#include "core/error.h"
#include "core/file.h"

namespace automodel::datasets {

namespace {

SourceDescription check_columns(const SourceOptions& source, const ClassifiedColumns& columns) {
  SourceDescription description = describe_source(source);
  if (columns.pair) require_columns(description, {columns.pair->c_str()});
  require_columns(description, {columns.text.c_str(), columns.label.c_str()});
  return description;
}

}  // namespace

SourceOptions SequenceClassificationDatasetConfig::source() const {
  SourceOptions options{path_or_dataset_id, split, name, limit_dataset_samples};
  options.shuffle_seed = shuffle_seed;
  return options;
}

std::vector<std::string> SequenceClassificationDatasetConfig::columns_read() const {
  std::vector<std::string> read = {text_column, label_column};
  if (text_pair_column) read.push_back(*text_pair_column);
  return read;
}

SourceOptions GlueMrpcConfig::source() const {
  SourceOptions options{{path_or_dataset_id}, split, std::nullopt, num_samples_limit};
  if (is_hub_id(path_or_dataset_id) && !path_exists(path_or_dataset_id)) options.name = "mrpc";
  return options;
}

std::optional<int64_t> GlueMrpcConfig::most_tokens(const TextEncoder& encoder) const {
  constexpr double kMostOfTokenizer = 8192;
  constexpr int64_t kOtherwise = 1024;
  if (max_length) return max_length;
  const double own = encoder.model_max_length().value_or(kMostOfTokenizer + 1);
  return own > kMostOfTokenizer ? kOtherwise : static_cast<int64_t>(own);
}

void check_first_class(const SourceOptions& source, const ClassifiedColumns& columns,
                       const ClassifierFacts& model) {
  const SourceDescription description = describe_source(source);
  const Json* value =
      description.first_row.is_object() ? description.first_row.find(columns.label) : nullptr;
  if (value == nullptr) return;
  ClassTable(model.labels)
      .class_of(*value,
                cat(first_origin_of(description.first_path), ": column '", columns.label, "'"));
}

SourceDescription check(const SequenceClassificationDatasetConfig& config) {
  return check_columns(config.source(), config.columns());
}

SourceDescription check(const GlueMrpcConfig& config) {
  return check_columns(config.source(), config.columns());
}

ClassifiedTextDataset::ClassifiedTextDataset(const SourceOptions& source, ClassifiedColumns columns,
                                             std::optional<int64_t> most_tokens,
                                             const TextEncoder& encoder, ClassifierFacts model)
    : columns_(std::move(columns)),
      most_tokens_(most_tokens),
      encoder_(encoder),
      pad_id_(classifier_pad_id(encoder, model.pad_token_id)),
      model_(std::move(model)),
      classes_(model_.labels),
      source_(source) {
  at(0);  // wrong columns are an error now, not in the first batch
}

std::string ClassifiedTextDataset::text(const Json& row, const std::string& column,
                                        int64_t index) const {
  required_column(row, column, source_, index);
  if (const std::string* text = text_column(row, column, source_, index)) return *text;
  throw InputError(cat(source_.origin(index), ": column '", column, "' is null"));
}

Sample ClassifiedTextDataset::at(int64_t index) const {
  const Json row = source_.row(index);
  const std::string first = text(row, columns_.text, index);
  std::optional<std::string> second;
  if (columns_.pair) second = text(row, *columns_.pair, index);
  const tokenizers::TextAndPair texts{first, second};
  Sample sample;
  try {
    tokenizers::TypedIds found = encoder_.encode_texts(texts, most_tokens_);
    sample.input_ids = std::move(found.ids);
    if (model_.num_token_types > 1 && second && encoder_.gives_types()) {
      sample.token_types = std::move(found.types);
    }
  } catch (const InputError& error) {
    throw InputError(cat(source_.origin(index), ": ", error.what(),
                         most_tokens_ ? " [dataset.max_length]" : ""));
  }
  for (const int64_t type : sample.token_types) {
    if (type < model_.num_token_types) continue;
    throw InputError(cat(source_.origin(index), ": the tokenizer gives a token the type ", type,
                         ", and the model has ", model_.num_token_types,
                         " (type_vocab_size of config.json): is this the model's tokenizer?"));
  }
  if (sample.input_ids.empty()) {
    throw InputError(cat(source_.origin(index), ": column '", columns_.text,
                         "' is a text without any token, and nothing can be classified"));
  }
  const int64_t num_tokens = std::ssize(sample.input_ids);
  if (num_tokens > model_.num_positions.value_or(num_tokens)) {
    throw InputError(cat(source_.origin(index), ": a text of ", num_tokens,
                         " tokens, and the model has positions for ", *model_.num_positions,
                         ": max_length: ", *model_.num_positions, " cuts texts"));
  }
  if (num_tokens == most_tokens_) {
    sample.num_cut = std::ssize(encoder_.encode_texts(texts, std::nullopt).ids) - num_tokens;
  }
  sample.labels.assign(sample.input_ids.size(), kIgnoreIndex);
  sample.labels[classified_place(sample.input_ids, model_, pad_id_)] =
      classes_.class_of(required_column(row, columns_.label, source_, index),
                        cat(source_.origin(index), ": column '", columns_.label, "'"));
  sample.num_attended = num_tokens;
  sample.pad_id = pad_id_.value_or(0);
  sample.row = index;
  return sample;
}

}  // namespace automodel::datasets
