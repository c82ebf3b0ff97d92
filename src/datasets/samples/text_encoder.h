#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/json.h"
#include "tokenizers/template_text.h"
#include "tokenizers/tokenizer.h"

namespace automodel::datasets {

/// The tokenizer interface that datasets need. Safe to use from several threads.
class TextEncoder {
 public:
  virtual ~TextEncoder() = default;

  /// Token ids; with special tokens as the tokenizer's post-processor adds them, and those that the
  /// recipe asks for where it does not.
  virtual std::vector<int64_t> encode(std::string_view text, bool add_special_tokens) const = 0;

  /// Token ids and types of a text, or of a pair of texts, with special tokens, and cut to
  /// `most_tokens`, on the side that truncates_left() says (tokenizers::Tokenizer::encode).
  virtual tokenizers::TypedIds encode_texts(const tokenizers::TextAndPair& texts,
                                            std::optional<int64_t> most_tokens) const = 0;

  virtual std::optional<int64_t> bos_token_id() const = 0;
  virtual std::optional<int64_t> eos_token_id() const = 0;
  virtual std::optional<int64_t> pad_token_id() const = 0;

  /// Whether the recipe asks for a BOS. One that only the post-processor adds does not count, as
  /// upstream.
  virtual bool add_bos_token() const = 0;
  /// The tokenizer's own limit of a text's tokens (model_max_length), if it names one.
  virtual std::optional<double> model_max_length() const { return std::nullopt; }
  /// Whether models are to be given the types of tokens that encode_texts() returns.
  virtual bool gives_types() const { return true; }
  /// Whether a text that is too long loses its beginning instead of its end.
  virtual bool truncates_left() const { return false; }
  virtual bool has_chat_template() const = 0;
  virtual bool is_special(int64_t id) const = 0;  ///< one of the named or additional special tokens
  /// The first special token that a text becomes without the tokenizer's own; nullopt for none.
  virtual std::optional<int64_t> find_special(std::string_view text) const;
  virtual std::string token_text(int64_t id) const = 0;  ///< for messages
  virtual std::string name() const = 0;                  ///< the folder, for messages

  /// The tokenizer's own chat template.
  virtual std::optional<tokenizers::TemplateText> chat_template() const { return std::nullopt; }
  /// The variables for a chat template: bos_token, eos_token and the like, as texts.
  virtual Json template_variables() const { return Json::object(); }
  /// The text that the ids of a text stand for: the text itself, but for a tokenizer that
  /// normalizes.
  virtual std::string normalized(std::string_view text) const { return std::string(text); }
  /// The position in the text at which each token ends, in bytes; nullopt when the tokens are not
  /// the text's own bytes in order (normalization).
  virtual std::optional<std::vector<size_t>> token_ends(std::string_view text,
                                                        const std::vector<int64_t>& ids) const;
};

/// The id with which samples are padded: the tokenizer's pad id or, if it has none or 0 (which
/// upstream treats as missing), its eos id. Throws InputError when there is neither.
int64_t sample_pad_id(const TextEncoder& encoder);

/// Tokens before trailing padding. When padding and end of sequence are one id, the first of the
/// trailing run is a real end of sequence.
int64_t content_length(const std::vector<int64_t>& ids, int64_t pad_id,
                       std::optional<int64_t> eos_id);

}  // namespace automodel::datasets
