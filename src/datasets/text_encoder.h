#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

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
};

/// The id that samples are padded with: the tokenizer's pad id or, when it has none or it is 0
/// (which counts as missing, as upstream), its eos id. Throws InputError when there is neither.
int64_t sample_pad_id(const TextEncoder& encoder);

}  // namespace automodel::datasets
