#include "datasets/samples/format.h"

#include <algorithm>

#include "core/error.h"

namespace automodel::datasets {

namespace {

/// The tokens of the text cut to max_length, special tokens included: as Hugging Face tokenizers
/// do, text gives way and the special tokens around it stay. Returns how many tokens stay in front
/// of those that are left out.
int64_t truncate(const TextEncoder& encoder, std::string_view text, std::vector<int64_t>& ids,
                 int64_t max_length) {
  const int64_t num_cut = std::ssize(ids) - max_length;
  const std::vector<int64_t> body = encoder.encode(text, /*add_special_tokens=*/false);
  const auto found = std::search(ids.begin(), ids.end(), body.begin(), body.end());
  const bool keeps_special = found != ids.end() && num_cut <= std::ssize(body);
  const int64_t begin = keeps_special ? found - ids.begin() : 0;
  const int64_t end = keeps_special ? begin + std::ssize(body) : std::ssize(ids);
  const int64_t first = encoder.truncates_left() ? begin : end - num_cut;
  ids.erase(ids.begin() + first, ids.begin() + first + num_cut);
  return first;
}

}  // namespace

int64_t content_length(const std::vector<int64_t>& ids, int64_t pad_id,
                       std::optional<int64_t> eos_id) {
  auto end = static_cast<int64_t>(ids.size());
  while (end > 0 && ids[static_cast<size_t>(end - 1)] == pad_id) --end;
  if (eos_id == pad_id) return std::min(end + 1, static_cast<int64_t>(ids.size()));
  return end;
}

int64_t sample_pad_id(const TextEncoder& encoder) {
  const std::optional<int64_t> pad = encoder.pad_token_id();
  if (pad && *pad != 0) return *pad;
  if (encoder.eos_token_id()) return *encoder.eos_token_id();
  if (pad) return *pad;
  throw InputError(
      cat("tokenizer ", encoder.name(),
          " has neither a pad token nor an eos token to fill short samples with; set one of "
          "them in its tokenizer_config.json"));
}

void FormatOptions::validate() const {
  if (seq_length) return;
  if (padding == Padding::kMaxLength) {
    throw UserError("padding: max_length needs seq_length: the length to pad to");
  }
  if (truncation == Truncation::kToLength) {
    throw UserError("truncation needs seq_length: the length to cut to");
  }
}

bool Sample::has_label() const {
  return std::any_of(labels.begin(), labels.end(),
                     [](int64_t label) { return label != kIgnoreIndex; });
}

Sample format_prompt_completion(const TextEncoder& encoder, const std::string& prompt,
                                const std::string& answer, const FormatOptions& options) {
  size_t num_prompt_ids = 0;
  std::vector<int64_t> prompt_ids;
  if (options.answer_only_loss_mask) {
    prompt_ids = encoder.encode(prompt, /*add_special_tokens=*/false);
    num_prompt_ids = prompt_ids.size() + (encoder.add_bos_token() ? 1 : 0);
  }
  const std::string text = prompt + answer;
  std::vector<int64_t> ids = encoder.encode(text, /*add_special_tokens=*/true);
  Sample sample;
  sample.has_merged_border = !prompt_ids.empty() && num_prompt_ids <= ids.size() &&
                             ids[num_prompt_ids - 1] != prompt_ids.back();
  if (options.truncation == Truncation::kToLength &&
      static_cast<int64_t>(ids.size()) > options.seq_length.value()) {
    sample.num_cut = std::ssize(ids) - *options.seq_length;
    const auto first = static_cast<size_t>(truncate(encoder, text, ids, *options.seq_length));
    if (encoder.truncates_left() && num_prompt_ids > first) {
      num_prompt_ids -= std::min(static_cast<size_t>(sample.num_cut), num_prompt_ids - first);
    }
  }

  const auto num_ids = static_cast<int64_t>(ids.size());
  sample.pad_id = sample_pad_id(encoder);
  sample.labels = ids;
  std::fill_n(sample.labels.begin(), std::min(num_prompt_ids, ids.size()), kIgnoreIndex);
  if (options.padding == Padding::kMaxLength && num_ids < *options.seq_length) {
    ids.resize(static_cast<size_t>(*options.seq_length), sample.pad_id);
  }
  sample.num_attended = content_length(ids, sample.pad_id, encoder.eos_token_id());
  sample.labels.resize(ids.size(), kIgnoreIndex);
  if (options.is_unshifted) {
    sample.input_ids = std::move(ids);
    return sample;
  }
  sample.num_attended = std::max<int64_t>(sample.num_attended - 1, 0);
  if (!ids.empty()) {
    ids.pop_back();
    sample.labels.erase(sample.labels.begin());
  }
  if (options.padding == Padding::kMaxLength &&
      static_cast<int64_t>(ids.size()) < *options.seq_length) {
    ids.resize(static_cast<size_t>(*options.seq_length), sample.pad_id);
    sample.labels.resize(ids.size(), kIgnoreIndex);
  }
  sample.input_ids = std::move(ids);
  return sample;
}

}  // namespace automodel::datasets
