#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "tokenizers/component.h"

namespace automodel::tokenizers {

/// A part of a text that the model will see by itself, or an added token that was found in it.
struct Piece {
  size_t begin = 0;  ///< bytes of Pieces::text
  size_t end = 0;
  int64_t id = -1;           ///< the added token; -1 for text
  bool is_at_start = false;  ///< begins where the whole input begins
};

/// A text cut into pieces, in order. No piece is empty.
struct Pieces {
  std::string text;
  std::vector<Piece> list;

  std::string_view operator[](const Piece& piece) const {
    return std::string_view(text).substr(piece.begin, piece.end - piece.begin);
  }
};

/// Cuts the pieces that are text into smaller ones, and may change their text. Safe to use from
/// several threads.
class PreTokenizer {
 public:
  virtual ~PreTokenizer() = default;
  virtual void apply(Pieces& pieces) const = 0;
};

/// Throws InputError naming the component when it is not known.
std::unique_ptr<PreTokenizer> make_pre_tokenizer(const Component& component);

}  // namespace automodel::tokenizers
