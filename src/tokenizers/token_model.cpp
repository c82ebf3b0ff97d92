#include "tokenizers/token_model.h"

#include <array>

#include "core/error.h"
#include "core/text.h"
#include "tokenizers/component.h"

namespace automodel::tokenizers {

namespace {

/// Old files name no type; the members tell.
const char* type_by_members(const Document& document, const Json& settings) {
  if (document.has_merges) return "BPE";
  if (document.vocab_is_list) return "Unigram";
  return settings.contains("max_input_chars_per_word") ? "WordPiece" : "WordLevel";
}

}  // namespace

void Model::encode(const Pieces& pieces, std::vector<int64_t>& ids) const {
  for (const Piece& piece : pieces.list) {
    if (piece.id >= 0) {
      ids.push_back(piece.id);
    } else {
      encode_piece(pieces[piece], ids);
    }
  }
}

std::unique_ptr<Model> make_model(Document& document) {
  Json* settings = document.rest.find("model");
  if (settings == nullptr) throw InputError(cat(document.name, ": 'model' is missing"));
  if (!settings->is_object()) {
    throw InputError(cat(document.name, ": model: expected an object, found ", settings->kind()));
  }
  if (!settings->contains("type")) {
    (*settings)["type"] = Json(type_by_members(document, *settings));
  }
  const Component component(*settings, document.name, "model");
  constexpr std::array<std::string_view, 4> kKnown = {"BPE", "Unigram", "WordPiece", "WordLevel"};
  if (!document.has_vocab) component.fail("'vocab' is missing");
  if (component.type() == "BPE") return make_bpe(document, *settings);
  if (component.type() == "Unigram") return make_unigram(document, *settings);
  if (component.type() == "WordPiece") return make_word_piece(document, *settings);
  if (component.type() == "WordLevel") return make_word_level(document, *settings);
  component.fail_unknown(kKnown);
}

}  // namespace automodel::tokenizers
