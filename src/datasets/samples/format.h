#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "core/field.h"
#include "datasets/samples/dataset.h"
#include "datasets/samples/text_encoder.h"

namespace automodel::datasets {

/// Only max_length pads a sample; the collater pads to the longest of a batch in any case.
enum class Padding { kNone, kLongest, kMaxLength };
enum class Truncation { kNone, kToLength };

/// How a prompt and its answer become a sample.
struct FormatOptions {
  std::optional<int64_t> seq_length = std::nullopt;
  Padding padding = Padding::kNone;
  Truncation truncation = Truncation::kNone;
  bool answer_only_loss_mask = true;
  bool is_unshifted = false;  ///< labels[i] is the token at input_ids[i] where it counts

  /// Throws UserError when padding or truncation lacks its seq_length.
  void validate() const;
};

/// Tokenizes prompt + answer as one text, with the special tokens of the tokenizer's own
/// post-processor and no others, and shifts: input_ids are all tokens but the last, labels all but
/// the first. With answer_only_loss_mask labels of the prompt's tokens are kIgnoreIndex; the
/// prompt's length is that of its own tokenization, plus one when the tokenizer is configured to
/// add BOS. Truncation keeps seq_length tokens before the shift, the last ones where the encoder
/// truncates left; padding fills to seq_length after it. Unshifted samples keep all tokens.
Sample format_prompt_completion(const TextEncoder& encoder, const std::string& prompt,
                                const std::string& answer, const FormatOptions& options);

}  // namespace automodel::datasets

template <>
struct automodel::EnumNames<automodel::datasets::Padding> {
  using Padding = automodel::datasets::Padding;
  static constexpr std::array<std::pair<std::string_view, Padding>, 5> values = {
      {{"do_not_pad", Padding::kNone},
       {"longest", Padding::kLongest},
       {"max_length", Padding::kMaxLength},
       {"false", Padding::kNone},
       {"true", Padding::kLongest}}};
};

template <>
struct automodel::EnumNames<automodel::datasets::Truncation> {
  using Truncation = automodel::datasets::Truncation;
  static constexpr std::array<std::pair<std::string_view, Truncation>, 5> values = {
      {{"do_not_truncate", Truncation::kNone},
       {"longest_first", Truncation::kToLength},
       {"only_first", Truncation::kToLength},
       {"false", Truncation::kNone},
       {"true", Truncation::kToLength}}};
};
