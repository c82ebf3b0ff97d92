#pragma once

#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "tokenizers/document.h"
#include "tokenizers/pre_tokenizer.h"
#include "tokenizers/vocabulary.h"

namespace automodel::tokenizers {

/// Turns one piece of text into token ids. Safe to use from several threads.
class Model {
 public:
  virtual ~Model() = default;

  /// Appends the ids of a piece of normalized, pre-tokenized UTF-8. Throws InputError when the
  /// piece needs an unknown token that the vocabulary lacks.
  virtual void encode_piece(std::string_view piece, std::vector<int64_t>& ids) const = 0;
  /// Appends the ids of all pieces, those of added tokens among them.
  virtual void encode(const Pieces& pieces, std::vector<int64_t>& ids) const;
  virtual const Vocabulary& vocabulary() const = 0;
  /// Whether encode() may give the id; false only where no text can.
  virtual bool may_give(int64_t id) const { return id >= 0 && id < vocabulary().id_bound(); }
};

/// The model of a tokenizer.json; takes the vocabulary and the merges out of the document. Throws
/// InputError naming the file and what is wrong.
std::unique_ptr<Model> make_model(Document& document);

// One per type; `settings` is the document's model section.
std::unique_ptr<Model> make_bpe(Document& document, const Json& settings);
std::unique_ptr<Model> make_unigram(Document& document, const Json& settings);
std::unique_ptr<Model> make_word_piece(Document& document, const Json& settings);
std::unique_ptr<Model> make_word_level(Document& document, const Json& settings);

}  // namespace automodel::tokenizers
