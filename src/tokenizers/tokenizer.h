#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tokenizers/template_text.h"
#include "tokenizers/typed_ids.h"

namespace automodel::tokenizers {

struct Document;
struct FolderSettings;

/// A named special token of the folder: its text and its id.
struct SpecialToken {
  std::string text;
  int64_t id = 0;

  bool operator==(const SpecialToken&) const = default;
};

/// A text, or two that belong together.
struct TextAndPair {
  std::string_view text;
  std::optional<std::string_view> pair = std::nullopt;
};

/// How many tokens an encoded text or pair may have, special ones included.
struct TokenLimit {
  int64_t most_tokens = 0;
  bool cuts_left = false;  ///< texts lose their beginnings instead of their ends
};

/// A Hugging Face tokenizer: ids and texts equal to those of the `tokenizers` library for the same
/// folder. Immutable after loading: a copy shares the tables, and any number of threads may encode
/// and decode at once.
class Tokenizer final {
 public:
  /// Reads tokenizer.json of a folder, and beside it tokenizer_config.json,
  /// special_tokens_map.json, added_tokens.json, chat_template.jinja and the model_type of
  /// config.json where they exist. Throws InputError naming the file, and the component where one
  /// is not known.
  static Tokenizer load(const std::string& folder);

  /// A tokenizer from the text of a tokenizer.json alone; `name` begins error texts.
  static Tokenizer from_json_text(std::string_view text, const std::string& name);

  /// Token ids of a UTF-8 text. Added tokens written in the text are recognised, as Hugging Face
  /// does by default. With `add_special_tokens` the post-processor adds its tokens (BOS, EOS ...).
  /// Throws InputError when the text is not UTF-8, or when the model meets a text it has no token
  /// for and its file names an unknown token that does not exist.
  std::vector<int64_t> encode(std::string_view text, bool add_special_tokens) const;

  /// Token ids of a text, or of a pair that the post-processor puts together. What is over the
  /// limit is cut off the longer text until both are of one length, and then off both
  /// (transformers' truncation "longest_first"). Throws InputError as encode() of one text does,
  /// and where special tokens alone are over the limit.
  TypedIds encode(const TextAndPair& texts, bool add_special_tokens,
                  const std::optional<TokenLimit>& limit) const;

  /// The text of ids, without cleaning up spaces (clean_up_tokenization_spaces=False). Ids that no
  /// token has are left out. Bytes that are not UTF-8 become U+FFFD, as the decoders define it.
  std::string decode(std::span<const int64_t> ids, bool skip_special_tokens) const;

  /// Number of tokens, those added to the model's vocabulary included
  /// (len(tokenizer) of transformers).
  int64_t vocab_size() const;

  /// The largest id plus one: what an embedding must hold at least.
  int64_t id_bound() const;

  /// The token as the vocabulary writes it (byte-level tokens in their byte alphabet); lives as
  /// long as the tokenizer and its copies.
  std::optional<std::string_view> id_to_token(int64_t id) const;

  const std::optional<SpecialToken>& bos() const;
  const std::optional<SpecialToken>& eos() const;
  const std::optional<SpecialToken>& pad() const;
  const std::optional<SpecialToken>& unk() const;

  /// The texts of the special tokens that have a name: bos_token, image_token.
  const std::map<std::string, std::string>& named_tokens() const;

  /// An added token marked special, or a named one: decode(..., skip_special_tokens=true) leaves it
  /// out.
  bool is_special(int64_t id) const;

  /// The first special token among the ids of a text, as encode() without special tokens gives
  /// them; nullopt when there is none. Far cheaper than encode() where the model cannot give a
  /// special token, so that only added tokens written in the text can.
  std::optional<int64_t> find_special(std::string_view text) const;

  /// The text that the ids of a text stand for: normalized between the added tokens.
  std::string normalized(std::string_view text) const;

  /// Whether truncation_side in tokenizer_config.json, or else the direction of tokenizer.json's
  /// truncation, is left: long texts lose their beginning.
  bool truncates_left() const;

  /// Whether models are to be given the types of tokens, as far as tokenizer_config.json says
  /// (model_input_names).
  bool gives_types() const;

  /// model_max_length of tokenizer_config.json, a number of tokens; 1e30 and the like mean no
  /// limit.
  std::optional<double> model_max_length() const;

  /// find_chat_template() of the folder.
  const std::optional<TemplateText>& chat_template() const;

  /// The folder it was loaded from, for messages ("" from a text).
  const std::string& folder() const;

 private:
  std::vector<int64_t> encode_text(std::string_view text) const;

  struct State;
  explicit Tokenizer(std::shared_ptr<const State> state);
  static std::shared_ptr<State> build(Document document, FolderSettings settings);
  std::shared_ptr<const State> state_;
};

}  // namespace automodel::tokenizers
