#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "core/json.h"
#include "tokenizers/normalizer.h"
#include "tokenizers/pre_tokenizer.h"
#include "tokenizers/vocabulary.h"

namespace automodel::tokenizers {

/// A token that is found in the text before the model sees it.
struct AddedToken {
  std::string content;
  bool single_word = false;  ///< only between non-word characters
  bool lstrip = false;       ///< takes the white space before it
  bool rstrip = false;       ///< takes the white space behind it
  bool normalized = true;    ///< looked for in the normalized text
  bool special = false;      ///< left out by decode(..., skip_special_tokens)

  bool operator==(const AddedToken&) const = default;
};

/// Reads an entry of "added_tokens" or "added_tokens_decoder". Throws InputError "WHERE: ...".
AddedToken read_added_token(const Json& json, const std::string& where);

/// Finds the longest of many strings at the leftmost place.
class Matcher final {
 public:
  void insert(std::string_view text, int64_t id);
  bool is_empty() const { return nodes_.size() == 1; }

  struct Hit {
    size_t begin;
    size_t end;
    int64_t id;
  };
  std::optional<Hit> find(std::string_view text, size_t from) const;

 private:
  struct Node {
    int64_t id = -1;
    std::vector<std::pair<unsigned char, uint32_t>> children;
  };
  std::vector<Node> nodes_{1};
  std::array<bool, 256> begins_{};  // whether a text begins with the byte
  std::optional<char> only_begin_;  // the byte, when all of them begin with the same
};

/// The added tokens of a tokenizer: their ids, and cutting texts at them.
class AddedTokens final {
 public:
  /// Both must outlive this; `normalizer` may be nullptr.
  AddedTokens(const Vocabulary& vocabulary, const Normalizer* normalizer)
      : vocabulary_(&vocabulary), normalizer_(normalizer) {}

  /// Adds tokens in order: one that the model or an earlier call knows keeps its id and takes the
  /// new properties, the others get ids behind the largest. Empty ones are left out.
  void add(const std::vector<AddedToken>& tokens);

  int64_t find(std::string_view content) const;  ///< -1 when there is none
  const AddedToken* token(int64_t id) const;     ///< nullptr when there is none
  /// The token's text as decoders see it: normalized when it is looked for in normalized text.
  std::optional<std::string_view> text(int64_t id) const;
  bool is_special(std::string_view text) const {
    return special_texts_.contains(std::string(text));
  }

  /// Every added token by its id.
  const std::map<int64_t, AddedToken>& tokens() const { return tokens_; }
  /// How many of them the model's vocabulary lacks.
  int64_t num_new() const;

  /// Cuts a text at the added tokens and normalizes what is between them.
  Pieces split(std::string_view text) const;

 private:
  void rebuild();
  void cut(const NormalizedText& text, const Matcher& matcher, Pieces& out) const;

  const Vocabulary* vocabulary_;
  const Normalizer* normalizer_;
  std::unordered_map<std::string, int64_t> ids_;
  std::map<int64_t, AddedToken> tokens_;
  std::unordered_map<int64_t, std::string> normalized_texts_;
  std::unordered_set<std::string> special_texts_;
  Matcher plain_;       // tokens looked for in the text as it is
  Matcher normalized_;  // tokens looked for in the normalized text
};

}  // namespace automodel::tokenizers
