#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/json.h"

namespace automodel::tokenizers {

/// Many strings in one block of memory.
class StringList final {
 public:
  void push_back(std::string_view text);
  size_t size() const { return ends_.size(); }
  std::string_view operator[](size_t i) const {
    const size_t begin = i == 0 ? 0 : ends_[i - 1];
    return std::string_view(bytes_).substr(begin, ends_[i] - begin);
  }

 private:
  std::string bytes_;
  std::vector<size_t> ends_;
};

/// A tokenizer.json as read: its two big parts, model.vocab and model.merges, in compact form and
/// the rest as Json.
struct Document {
  std::string name;  ///< the file, for messages
  Json rest;         ///< without model.vocab and model.merges
  bool has_vocab = false;
  bool vocab_is_list = false;  ///< [[token, score], ...] of Unigram; else {token: id}
  StringList tokens;
  std::vector<int64_t> ids;  ///< of `tokens`; unless the vocabulary is a list
  /// The scores of `tokens`, when the vocabulary is a list, as the reference implementation reads
  /// them, whose rounding decides between ways to divide a text that are equally good.
  std::vector<double> scores;
  std::vector<double> nearest_scores;  ///< the doubles nearest to what is written
  bool has_merges = false;
  StringList merges;  ///< left and right parts in turn
};

/// Reads the text of a tokenizer.json. Throws InputError "NAME: ...".
Document read_document(std::string_view text, const std::string& name);

}  // namespace automodel::tokenizers
