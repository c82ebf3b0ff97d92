#include "datasets/texts/squad.h"

#include "core/error.h"
#include "datasets/conversations/conversation.h"

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

}  // namespace

SourceOptions SquadConfig::source() const {
  return limited_source(dataset_name, split, limit_dataset_samples);
}

SourceDescription check(const SquadConfig& config) {
  config.format().validate();
  check_template(config.chat_template);
  SourceDescription description = describe_source(config.source());
  require_columns(description, {"context", "question", "answers"});
  return description;
}

SquadDataset::SquadDataset(const SquadConfig& config, const TextEncoder& encoder)
    : format_(config.format()), encoder_(encoder), source_((format_.validate(), config.source())) {
  if (config.chat_template || encoder.has_chat_template()) {
    // Contexts come from anywhere, and upstream lets them spell out special tokens; here they may
    // not.
    chat_.emplace(encoder, config.chat_template, ChatFormatOptions{.format = format_});
  }
  at(0);  // wrong columns are an error now, not in the first batch
}

Sample SquadDataset::at(int64_t index) const {
  const Json row = source_.row(index);
  const std::string prompt =
      cat("Context: ", required_text(row, "context", source_, index),
          " Question: ", required_text(row, "question", source_, index), " Answer: ");
  const std::string answer = first_answer(row, source_, index);
  Sample sample =
      chat_ ? chat_->format(question_and_answer(prompt, answer), Json(), source_.origin(index))
            : format_prompt_completion(encoder_, prompt, answer, format_);
  sample.row = index;
  return sample;
}

}  // namespace automodel::datasets
