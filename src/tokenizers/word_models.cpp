#include <string>
#include <utility>
#include <vector>

#include "core/error.h"
#include "core/text.h"
#include "tokenizers/component.h"
#include "tokenizers/token_model.h"
#include "tokenizers/unicode.h"

namespace automodel::tokenizers {

namespace {

/// Whole words only; the rest is the unknown token.
class WordLevel final : public Model {
 public:
  WordLevel(Vocabulary vocabulary, std::string unk_token)
      : vocabulary_(std::move(vocabulary)), unk_token_(std::move(unk_token)) {
    unk_id_ = vocabulary_.find(unk_token_);
  }

  const Vocabulary& vocabulary() const override { return vocabulary_; }

  void encode_piece(std::string_view piece, std::vector<int64_t>& ids) const override {
    const int64_t id = vocabulary_.find(piece);
    if (id < 0 && unk_id_ < 0) {
      throw InputError(
          cat("the tokenizer's unk_token '", unk_token_, "' is not in its vocabulary"));
    }
    ids.push_back(id >= 0 ? id : unk_id_);
  }

 private:
  Vocabulary vocabulary_;
  std::string unk_token_;
  int64_t unk_id_;
};

/// The longest token first, then the longest continuation, and so on; a word without such a
/// division is the unknown token.
class WordPiece final : public Model {
 public:
  WordPiece(Vocabulary vocabulary, std::string unk_token, std::string prefix,
            int64_t max_characters)
      : vocabulary_(std::move(vocabulary)),
        unk_token_(std::move(unk_token)),
        prefix_(std::move(prefix)),
        max_characters_(max_characters) {
    unk_id_ = vocabulary_.find(unk_token_);
    for (int64_t id = 0; id < vocabulary_.id_bound(); ++id) {
      longest_token_ = std::max(longest_token_, vocabulary_.token(id).value_or("").size());
    }
  }

  const Vocabulary& vocabulary() const override { return vocabulary_; }

  void encode_piece(std::string_view piece, std::vector<int64_t>& ids) const override {
    std::vector<size_t> ends;  // where characters end
    for (size_t i = 0; i < piece.size();) {
      next_code_point(piece, i);
      ends.push_back(i);
    }
    std::vector<int64_t> found;
    bool is_known = static_cast<int64_t>(ends.size()) <= max_characters_;
    std::string candidate;
    for (size_t begin = 0, first = 0; is_known && begin < piece.size();) {
      int64_t id = -1;
      size_t last = ends.size();
      for (; last > first && id < 0; --last) {
        if (ends[last - 1] - begin > longest_token_) continue;
        candidate = begin > 0 ? prefix_ : "";
        candidate += piece.substr(begin, ends[last - 1] - begin);
        id = vocabulary_.find(candidate);
      }
      is_known = id >= 0;
      if (!is_known) break;
      found.push_back(id);
      begin = ends[last];
      first = last + 1;
    }
    if (is_known) {
      ids.insert(ids.end(), found.begin(), found.end());
      return;
    }
    if (unk_id_ < 0) {
      throw InputError(
          cat("the tokenizer's unk_token '", unk_token_, "' is not in its vocabulary"));
    }
    ids.push_back(unk_id_);
  }

 private:
  Vocabulary vocabulary_;
  std::string unk_token_;
  std::string prefix_;
  int64_t max_characters_;
  int64_t unk_id_ = -1;
  size_t longest_token_ = 0;
};

Vocabulary take_vocabulary(Document& document, const Component& component) {
  if (document.vocab_is_list) component.fail("vocab must be an object of tokens and ids");
  return Vocabulary(std::move(document.tokens), std::move(document.ids), document.name);
}

}  // namespace

std::unique_ptr<Model> make_word_level(Document& document, const Json& settings) {
  const Component component(settings, document.name, "model");
  std::string unk = component.text("unk_token");
  return std::make_unique<WordLevel>(take_vocabulary(document, component), std::move(unk));
}

std::unique_ptr<Model> make_word_piece(Document& document, const Json& settings) {
  const Component component(settings, document.name, "model");
  std::string unk = component.text("unk_token", "[UNK]");
  std::string prefix = component.text("continuing_subword_prefix", "##");
  const int64_t max_characters = component.integer("max_input_chars_per_word", 100);
  return std::make_unique<WordPiece>(take_vocabulary(document, component), std::move(unk),
                                     std::move(prefix), max_characters);
}

}  // namespace automodel::tokenizers
