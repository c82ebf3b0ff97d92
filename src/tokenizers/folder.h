#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "core/json.h"
#include "tokenizers/added_tokens.h"
#include "tokenizers/document.h"
#include "tokenizers/template_text.h"

namespace automodel::tokenizers {

/// What the files beside tokenizer.json say.
struct FolderSettings {
  /// The transformers class whose own components replace those of tokenizer.json; "" for none.
  std::string class_name;
  bool class_adds_specials = false;  ///< the class adds its named tokens anew, as plain specials

  // The named special tokens, as texts.
  std::optional<std::string> bos;
  std::optional<std::string> eos;
  std::optional<std::string> pad;
  std::optional<std::string> unk;
  /// Every special token that has a name: bos_token, image_token.
  std::map<std::string, std::string> named_tokens;

  /// The added tokens by id that the files beside tokenizer.json list.
  std::map<int64_t, AddedToken> listed_tokens;
  /// The list is added_tokens_decoder's: a class that builds anew takes no other token. Otherwise
  /// tokenizer.json's added tokens belong to the list.
  bool is_list_whole = false;
  /// Named and additional special tokens; added when the tokenizer does not know them yet.
  std::vector<AddedToken> special_tokens;

  bool truncates_left = false;
  bool gives_types = true;  ///< models are to be given the types of tokens beside them
  std::optional<double> model_max_length;  ///< may be far beyond 64 bits, which means no limit
  std::optional<TemplateText> chat_template;
};

/// Reads everything of a tokenizer folder but tokenizer.json, whose "padding" and "truncation" say
/// what the other files leave open. Throws InputError.
FolderSettings read_folder(const std::string& folder, const Document& document);

/// Replaces components in the document as the settings' class does. Throws InputError.
void apply_class(const FolderSettings& settings, const Json& tokenizer_config, Document& document);

/// tokenizer_config.json of a folder; an empty object when there is none. Throws InputError.
Json read_tokenizer_config(const std::string& folder);

}  // namespace automodel::tokenizers
