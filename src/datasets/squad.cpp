#include "datasets/squad.h"

#include "core/error.h"

namespace automodel::datasets {

namespace {

const std::string& required_text(const Json& row, const std::string& column,
                                 const RowSource& source, int64_t index) {
  required_column(row, column, source, index);
  if (const std::string* text = text_column(row, column, source, index)) return *text;
  throw InputError(cat(source.origin(index), ": column '", column, "' is null"));
}

std::string first_answer(const Json& row, const RowSource& source, int64_t index) {
  const Json& answers = required_column(row, "answers", source, index);
  const Json* texts = answers.is_object() ? answers.find("text") : nullptr;
  if (texts == nullptr || !texts->is_array()) {
    throw InputError(
        cat(source.origin(index), ": column 'answers' must be an object with a list 'text'"));
  }
  if (texts->size() == 0) return "";
  const Json& first = texts->as_array().front();
  if (!first.is_string()) {
    throw InputError(cat(source.origin(index),
                         ": column 'answers': the answer must be text, it is ", first.kind()));
  }
  return std::string(trim(first.as_string()));
}

void validate(const SquadConfig& config) {
  config.format().validate();
  if (config.chat_template) {
    throw UnsupportedError("chat_template: chat templates are not rendered in this version");
  }
}

}  // namespace

SourceOptions SquadConfig::source() const {
  const bool has_slice = split.find('[') != std::string::npos;
  return {{dataset_name}, split, std::nullopt, has_slice ? std::nullopt : limit_dataset_samples};
}

SourceDescription check(const SquadConfig& config) {
  validate(config);
  SourceDescription description = describe_source(config.source());
  if (description.note) return description;
  for (const char* column : {"context", "question", "answers"}) {
    if (const auto missing = missing_column(column, description.columns)) {
      throw InputError(cat(description.files.front(), ": ", *missing));
    }
  }
  return description;
}

SquadDataset::SquadDataset(const SquadConfig& config, const TextEncoder& encoder)
    : format_((validate(config), config.format())), encoder_(encoder), source_(config.source()) {
  if (encoder.has_chat_template()) {
    throw UnsupportedError(cat("make_squad_dataset: tokenizer ", encoder.name(),
                               " has a chat template, which SQuAD rows would be written with; chat "
                               "templates are not rendered in this version"));
  }
  at(0);  // wrong columns are an error now, not in the first batch
}

Sample SquadDataset::at(int64_t index) const {
  const Json row = source_.row(index);
  const std::string prompt =
      cat("Context: ", required_text(row, "context", source_, index),
          " Question: ", required_text(row, "question", source_, index), " Answer: ");
  Sample sample =
      format_prompt_completion(encoder_, prompt, first_answer(row, source_, index), format_);
  sample.row = index;
  return sample;
}

}  // namespace automodel::datasets
