#include "datasets/texts/hellaswag.h"

#include <algorithm>
#include <utility>

#include "core/error.h"

namespace automodel::datasets {

namespace {

const std::string& right_ending(const Json& row, const RowSource& source, int64_t index) {
  const Json& endings = required_column(row, "endings", source, index);
  const Json& label = required_column(row, "label", source, index);
  std::optional<int64_t> number;
  if (label.is_int()) number = label.as_int();
  if (label.is_string()) number = parse_int(label.as_string());
  if (!endings.is_array() || !number || *number < 0 ||
      *number >= static_cast<int64_t>(endings.size()) ||
      !endings.as_array()[static_cast<size_t>(*number)].is_string()) {
    throw InputError(
        cat(source.origin(index),
            ": 'endings' must be a list of texts and 'label' the number of one of them; "
            "label is ",
            label.dump(), ", endings has ", endings.size(), " entries"));
  }
  return endings.as_array()[static_cast<size_t>(*number)].as_string();
}

}  // namespace

SourceDescription check(const HellaSwagConfig& config) {
  SourceDescription description = describe_source(config.source());
  require_columns(description, {"ctx", "endings", "label"});
  return description;
}

HellaSwagDataset::HellaSwagDataset(const HellaSwagConfig& config, const TextEncoder& encoder)
    : encoder_(encoder), source_(config.source()), pad_id_(encoder.pad_token_id().value_or(0)) {
  const Tokens first = tokenize(0);
  drops_context_end_ = !first.context.empty() && encoder.is_special(first.context.back());
  drops_ending_begin_ = !first.ending.empty() && encoder.is_special(first.ending.front());
  if (!config.pad_to_max_length) return;
  int64_t longest = 0;
  for (int64_t i = 0; i < size(); ++i) {
    samples_.push_back(make_sample(i));
    longest = std::max(longest, static_cast<int64_t>(samples_.back().input_ids.size()));
  }
  padded_length_ = (longest + 7) / 8 * 8;
}

HellaSwagDataset::Tokens HellaSwagDataset::tokenize(int64_t index) const {
  const Json row = source_.row(index);
  required_column(row, "ctx", source_, index);
  const std::string* context = text_column(row, "ctx", source_, index);
  if (context == nullptr) throw InputError(cat(source_.origin(index), ": column 'ctx' is null"));
  Tokens tokens{encoder_.encode(*context, true),
                encoder_.encode(right_ending(row, source_, index), true)};
  if (drops_context_end_ && !tokens.context.empty()) tokens.context.pop_back();
  if (drops_ending_begin_ && !tokens.ending.empty()) tokens.ending.erase(tokens.ending.begin());
  return tokens;
}

Sample HellaSwagDataset::make_sample(int64_t index) const {
  Tokens tokens = tokenize(index);
  Sample sample;
  sample.row = index;
  sample.input_ids = std::move(tokens.context);
  sample.labels.assign(sample.input_ids.size(), kIgnoreIndex);
  sample.input_ids.insert(sample.input_ids.end(), tokens.ending.begin(), tokens.ending.end());
  sample.labels.insert(sample.labels.end(), tokens.ending.begin(), tokens.ending.end());
  if (!sample.labels.empty()) {
    sample.labels.erase(sample.labels.begin());
    sample.labels.push_back(kIgnoreIndex);
  }
  sample.num_attended = static_cast<int64_t>(sample.input_ids.size());
  return sample;
}

Sample HellaSwagDataset::at(int64_t index) const {
  if (padded_length_ == 0) return make_sample(index);
  AM_CHECK(index >= 0 && index < size(), "row ", index, " of ", size());
  Sample sample = samples_[static_cast<size_t>(index)];
  sample.pad_id = pad_id_;
  sample.input_ids.resize(static_cast<size_t>(padded_length_), pad_id_);
  sample.labels.resize(static_cast<size_t>(padded_length_), kIgnoreIndex);
  return sample;
}

}  // namespace automodel::datasets
