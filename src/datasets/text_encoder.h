#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/json.h"

namespace automodel::datasets {

/// What the datasets need of a tokenizer. Safe to use from several threads.
class TextEncoder {
 public:
  virtual ~TextEncoder() = default;

  /// Token ids; with special tokens as the tokenizer's post-processor adds them.
  virtual std::vector<int64_t> encode(std::string_view text, bool add_special_tokens) const = 0;

  virtual std::optional<int64_t> bos_token_id() const = 0;
  virtual std::optional<int64_t> eos_token_id() const = 0;
  virtual std::optional<int64_t> pad_token_id() const = 0;

  /// The tokenizer configuration's add_bos_token (false when it does not say). A BOS that only the
  /// post-processor adds does not count, as upstream.
  virtual bool add_bos_token() const = 0;
  virtual bool has_chat_template() const = 0;
  virtual bool is_special(int64_t id) const = 0;  ///< one of the named or additional special tokens
  virtual std::string token_text(int64_t id) const = 0;  ///< for messages
  virtual std::string name() const = 0;                  ///< the folder, for messages

  /// The tokenizer's own chat template.
  virtual std::optional<std::string> chat_template() const { return std::nullopt; }
  /// The variables that a chat template finds: bos_token, eos_token and the like, as texts.
  virtual Json template_variables() const { return Json::object(); }
  /// The byte of the text behind each of its tokens; nullopt when the tokens are not the text's own
  /// bytes one behind the other (normalization).
  virtual std::optional<std::vector<size_t>> token_ends(std::string_view text,
                                                        const std::vector<int64_t>& ids) const;
};

/// The id that samples are padded with: the tokenizer's pad id or, when it has none or it is 0
/// (which counts as missing, as upstream), its eos id. Throws InputError when there is neither.
int64_t sample_pad_id(const TextEncoder& encoder);

}  // namespace automodel::datasets
