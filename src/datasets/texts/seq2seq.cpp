#include "datasets/texts/seq2seq.h"

#include <algorithm>

#include "core/error.h"
#include "core/text.h"

namespace automodel::datasets {

namespace {

[[noreturn]] void refuse_template(const std::string& text, const std::string& why) {
  throw UserError(cat("source_template '", text, "': ", why,
                      "; columns are named in braces, {question}, and {{ and }} are braces"));
}

std::optional<RowTemplate> template_of(const Seq2SeqConfig& config) {
  if (!config.source_template) return std::nullopt;
  return RowTemplate(*config.source_template);
}

/// The id with which sources and decoders' inputs are padded: the tokenizer's pad id, 0 too, else
/// its eos id.
int64_t pad_id_of(const TextEncoder& encoder) {
  if (const auto pad = encoder.pad_token_id()) return *pad;
  if (const auto eos = encoder.eos_token_id()) return *eos;
  throw InputError(cat("the tokenizer of ", encoder.name(),
                       " has neither a pad token nor an eos token to pad sources with"));
}

/// A column's value as Python's str() writes it, of those for which there is one form.
std::string plain_text(const Json& row, const std::string& column, const RowSource& source,
                       int64_t index) {
  const Json& value = required_column(row, column, source, index);
  if (value.is_string()) return value.as_string();
  if (value.is_int()) return cat(value.as_int());
  throw InputError(cat(source.origin(index), ": column '", column,
                       "' must be text or a whole number, it is ", value.kind()));
}

}  // namespace

RowTemplate::RowTemplate(const std::string& text) : texts_(1) {
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    const bool is_doubled = i + 1 < text.size() && text[i + 1] == c;
    if (c != '{' && c != '}') {
      texts_.back() += c;
    } else if (is_doubled) {
      texts_.back() += c;
      ++i;
    } else if (c == '}') {
      refuse_template(text, "a '}' without its '{'");
    } else {
      const size_t end = text.find('}', i);
      if (end == std::string::npos) refuse_template(text, "a '{' without its '}'");
      const std::string name = text.substr(i + 1, end - i - 1);
      if (name.empty() || name.find_first_of("{!:.[") != std::string::npos) {
        refuse_template(text, cat("'{", name, "}' is not a column's name alone"));
      }
      columns_.push_back(name);
      texts_.emplace_back();
      i = end;
    }
  }
  if (columns_.empty()) refuse_template(text, "it names no column, and all sources would be alike");
}

SourceOptions Seq2SeqConfig::source() const {
  SourceOptions options = limited_source(dataset_name, split, limit_dataset_samples);
  options.text_columns = columns_read();
  return options;
}

std::vector<std::string> Seq2SeqConfig::columns_read() const {
  std::vector<std::string> read = {target_key};
  if (!source_template) {
    read.push_back(source_key);
  } else {
    const std::vector<std::string> named = RowTemplate(*source_template).columns();
    read.insert(read.end(), named.begin(), named.end());
  }
  return read;
}

SourceDescription check(const Seq2SeqConfig& config) {
  const std::vector<std::string> read = config.columns_read();
  SourceDescription description = describe_source(config.source());
  for (const std::string& column : read) require_columns(description, {column.c_str()});
  return description;
}

Seq2SeqDataset::Seq2SeqDataset(const Seq2SeqConfig& config, const TextEncoder& encoder)
    : template_(template_of(config)),
      source_key_(config.source_key),
      target_key_(config.target_key),
      encoder_(encoder),
      pad_id_(pad_id_of(encoder)),
      start_id_(config.decoder_start_token_id.value_or(pad_id_)),
      source_(config.source()) {
  if (config.truncation != Truncation::kNone) most_tokens_ = config.seq_length;
  at(0);  // wrong columns are an error now, not in the first batch
}

std::string Seq2SeqDataset::source_text(const Json& row, int64_t index) const {
  const auto text = [&](const std::string& column) {
    return plain_text(row, column, source_, index);
  };
  return template_ ? template_->filled(text) : text(source_key_);
}

std::string Seq2SeqDataset::target_text(const Json& row, int64_t index) const {
  const Json& value = required_column(row, target_key_, source_, index);
  const Json* const texts = value.is_object() ? value.find("text") : nullptr;
  if (texts == nullptr) {
    return std::string(trim(plain_text(row, target_key_, source_, index)));
  }
  const bool is_list = texts->is_array();
  if (is_list && texts->size() == 0) return "";
  if (!is_list || !texts->as_array().front().is_string()) {
    throw InputError(
        cat(source_.origin(index), ": column '", target_key_, "': 'text' must be a list of texts"));
  }
  return std::string(trim(texts->as_array().front().as_string()));
}

std::vector<int64_t> Seq2SeqDataset::tokens_of(const std::string& text, int64_t index,
                                               int64_t& num_cut) const {
  const tokenizers::TextAndPair alone{text, std::nullopt};
  try {
    std::vector<int64_t> ids = encoder_.encode_texts(alone, most_tokens_).ids;
    if (std::ssize(ids) == most_tokens_) {
      num_cut += std::ssize(encoder_.encode_texts(alone, std::nullopt).ids) - std::ssize(ids);
    }
    return ids;
  } catch (const InputError& error) {
    throw InputError(cat(source_.origin(index), ": ", error.what(),
                         most_tokens_ ? " [dataset.seq_length]" : ""));
  }
}

Sample Seq2SeqDataset::at(int64_t index) const {
  const Json row = source_.row(index);
  Sample sample;
  sample.source_ids = tokens_of(source_text(row, index), index, sample.num_cut);
  if (sample.source_ids.empty()) {
    throw InputError(cat(source_.origin(index), ": the source is a text without any token"));
  }
  sample.labels = tokens_of(target_text(row, index), index, sample.num_cut);
  if (sample.labels.empty()) sample.labels = {kIgnoreIndex};
  sample.input_ids = {start_id_};
  sample.input_ids.insert(sample.input_ids.end(), sample.labels.begin(), sample.labels.end() - 1);
  sample.num_attended = std::ssize(sample.input_ids);
  sample.pad_id = pad_id_;
  sample.row = index;
  return sample;
}

}  // namespace automodel::datasets
