#include "tokenizers/tokenizer.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "core/error.h"
#include "core/file.h"
#include "core/text.h"
#include "tokenizers/added_tokens.h"
#include "tokenizers/decoder.h"
#include "tokenizers/document.h"
#include "tokenizers/folder.h"
#include "tokenizers/normalizer.h"
#include "tokenizers/post_processor.h"
#include "tokenizers/pre_tokenizer.h"
#include "tokenizers/token_model.h"
#include "tokenizers/unicode.h"

namespace automodel::tokenizers {

struct Tokenizer::State {
  std::unique_ptr<Normalizer> normalizer;       // none: the text stays
  std::unique_ptr<PreTokenizer> pre_tokenizer;  // none: the model sees whole texts
  std::unique_ptr<Model> model;
  PostProcessor post_processor;
  std::unique_ptr<Decoder> decoder;  // none: tokens are joined by spaces
  std::optional<AddedTokens> added;

  std::string name;  // the file, for messages
  std::string folder;
  FolderSettings settings;
  std::optional<SpecialToken> bos;
  std::optional<SpecialToken> eos;
  std::optional<SpecialToken> pad;
  std::optional<SpecialToken> unk;
  std::vector<std::optional<std::string_view>> texts;  // by id; none for a hole
  std::vector<int64_t> special_ids;
  bool model_gives_specials = false;  // whether the model itself may

  int64_t find(std::string_view token) const {
    const int64_t id = added->find(token);
    return id >= 0 ? id : model->vocabulary().find(token);
  }

  std::optional<std::string_view> text(int64_t id) const {
    if (id < 0 || id >= std::ssize(texts)) return std::nullopt;
    return texts[static_cast<size_t>(id)];
  }

  int64_t id_bound() const {
    const auto& tokens = added->tokens();
    const int64_t largest_added = tokens.empty() ? -1 : tokens.rbegin()->first;
    return std::max(model->vocabulary().id_bound(), largest_added + 1);
  }

  void fill_texts() {
    texts.resize(static_cast<size_t>(id_bound()));
    for (size_t i = 0; i < texts.size(); ++i) {
      texts[i] = model->vocabulary().token(static_cast<int64_t>(i));
    }
    for (const auto& [id, token] : added->tokens()) {
      texts[static_cast<size_t>(id)] = added->text(id);
    }
  }
};

namespace {

/// A component of the document, absent or null for none.
const Json* section(const Document& document, std::string_view key) {
  const Json* json = document.rest.find(key);
  return json == nullptr || json->is_null() ? nullptr : json;
}

/// The document's added tokens in order, each with the id that it is listed with.
std::vector<std::pair<int64_t, AddedToken>> read_added_tokens(const Document& document) {
  std::vector<std::pair<int64_t, AddedToken>> tokens;
  const Json* list = section(document, "added_tokens");
  if (list == nullptr) return tokens;
  if (!list->is_array()) {
    throw InputError(cat(document.name, ": added_tokens must be a list, found ", list->kind()));
  }
  for (const Json& entry : list->as_array()) {
    AddedToken token = read_added_token(entry, cat(document.name, ": added_tokens"));
    const Json* id = entry.find("id");
    tokens.emplace_back(id != nullptr && id->is_int() ? id->as_int() : 0, std::move(token));
  }
  return tokens;
}

void check_version(const Document& document) {
  const Json* version = section(document, "version");
  if (version != nullptr && !(version->is_string() && version->as_string() == "1.0")) {
    throw InputError(cat(document.name, ": unknown version of tokenizer.json; known here: 1.0"));
  }
}

/// Adds the tokens of tokenizer.json and of the files beside it.
void add_tokens(const FolderSettings& settings,
                const std::vector<std::pair<int64_t, AddedToken>>& of_file, AddedTokens& added) {
  std::vector<AddedToken> own;
  for (const auto& [id, token] : of_file) own.push_back(token);
  std::map<int64_t, AddedToken> by_id = settings.listed_tokens;
  if (!settings.is_list_whole) {
    for (const auto& [id, token] : of_file) by_id[id] = token;
  }
  std::vector<AddedToken> listed;
  for (const auto& [id, token] : by_id) listed.push_back(token);
  const bool rebuilt = !settings.class_name.empty();
  if (!rebuilt) added.add(own);
  if (rebuilt || settings.is_list_whole || !settings.listed_tokens.empty()) added.add(listed);
  std::vector<AddedToken> missing;
  for (const AddedToken& token : settings.special_tokens) {
    // A token may have several names: the last one's flags stay, where they are new.
    const bool is_there = std::ranges::find(missing, token) != missing.end();
    if (added.find(token.content) < 0 && !is_there) missing.push_back(token);
  }
  added.add(missing);
  if (!settings.class_adds_specials) return;
  std::vector<AddedToken> plain;
  for (const AddedToken& token : settings.special_tokens) {
    plain.push_back({.content = token.content, .normalized = false, .special = true});
  }
  added.add(plain);
}

}  // namespace

Tokenizer::Tokenizer(std::shared_ptr<const State> state) : state_(std::move(state)) {}

std::shared_ptr<Tokenizer::State> Tokenizer::build(Document document, FolderSettings settings) {
  check_version(document);
  auto state = std::make_shared<State>();
  state->name = document.name;
  state->model = make_model(document);
  if (const Json* json = section(document, "normalizer")) {
    state->normalizer = make_normalizer({*json, document.name, "normalizer"});
  }
  if (const Json* json = section(document, "pre_tokenizer")) {
    state->pre_tokenizer = make_pre_tokenizer({*json, document.name, "pre_tokenizer"});
  }
  if (const Json* json = section(document, "post_processor")) {
    state->post_processor = PostProcessor({*json, document.name, "post_processor"});
  }
  if (const Json* json = section(document, "decoder")) {
    state->decoder = make_decoder({*json, document.name, "decoder"});
  }
  state->added.emplace(state->model->vocabulary(), state->normalizer.get());
  add_tokens(settings, read_added_tokens(document), *state->added);
  state->fill_texts();

  const auto named = [&](const std::optional<std::string>& text) -> std::optional<SpecialToken> {
    if (!text) return std::nullopt;
    const int64_t id = state->find(*text);
    if (id < 0) return std::nullopt;
    return SpecialToken{*text, id};
  };
  state->bos = named(settings.bos);
  state->eos = named(settings.eos);
  state->pad = named(settings.pad);
  state->unk = named(settings.unk);
  std::set<int64_t> special_ids;
  for (const auto& [id, token] : state->added->tokens()) {
    if (token.special) special_ids.insert(id);
  }
  for (const auto& token : {state->bos, state->eos, state->pad, state->unk}) {
    if (token) special_ids.insert(token->id);
  }
  state->special_ids.assign(special_ids.begin(), special_ids.end());
  state->model_gives_specials = std::ranges::any_of(
      state->special_ids, [&](int64_t id) { return state->model->may_give(id); });
  state->settings = std::move(settings);
  return state;
}

Tokenizer Tokenizer::load(const std::string& folder) {
  const std::string path = path_join(folder, "tokenizer.json");
  if (!path_exists(path)) {
    for (const char* other : {"tokenizer.model", "spiece.model"}) {
      if (!path_exists(path_join(folder, other))) continue;
      throw UnsupportedError(cat(folder, ": its tokenizer is ", other,
                                 ", a SentencePiece model, which is not in this version; "
                                 "tokenizer.json is read"));
    }
    throw InputError(cat(folder, is_directory(folder)
                                     ? ": there is no tokenizer.json in this folder"
                                     : ": there is no such folder"));
  }
  const std::string text = read_file(path);
  Document document = read_document(text, path);
  FolderSettings settings = read_folder(folder, document);
  apply_class(settings, read_tokenizer_config(folder), document);
  std::shared_ptr<State> state = build(std::move(document), std::move(settings));
  state->folder = folder;
  return Tokenizer(std::move(state));
}

Tokenizer Tokenizer::from_json_text(std::string_view text, const std::string& name) {
  return Tokenizer(build(read_document(text, name), FolderSettings{}));
}

namespace {

/// The lengths to which a text and its pair are cut, so that they have `most` tokens together.
std::pair<size_t, size_t> cut_lengths(size_t first, size_t second, size_t most) {
  if (first + second <= most) return {first, second};
  const size_t shorter = std::min(first, second);
  if (2 * shorter <= most) {
    const size_t longer = most - shorter;
    return first <= second ? std::pair{shorter, longer} : std::pair{longer, shorter};
  }
  const size_t half = most / 2;
  const size_t rest = most - half;
  return first <= second ? std::pair{half, rest} : std::pair{rest, half};
}

void cut(std::vector<int64_t>& ids, size_t length, bool cuts_left) {
  if (cuts_left) {
    ids.erase(ids.begin(), ids.end() - static_cast<std::ptrdiff_t>(length));
  } else {
    ids.resize(length);
  }
}

}  // namespace

std::vector<int64_t> Tokenizer::encode(std::string_view text, bool add_special_tokens) const {
  return state_->post_processor.apply(encode_text(text), add_special_tokens);
}

TypedIds Tokenizer::encode(const TextAndPair& texts, bool add_special_tokens,
                           const std::optional<TokenLimit>& limit) const {
  const PostProcessor& processor = state_->post_processor;
  std::vector<int64_t> first = encode_text(texts.text);
  std::vector<int64_t> second;
  if (texts.pair) second = encode_text(*texts.pair);
  if (limit) {
    const size_t added = add_special_tokens ? processor.num_added(texts.pair.has_value()) : 0;
    const auto most = static_cast<size_t>(std::max<int64_t>(limit->most_tokens, 0));
    if (added > most) {
      throw InputError(cat("a limit of ", limit->most_tokens, " tokens leaves no room for the ",
                           added, " special tokens that the tokenizer adds"));
    }
    const auto lengths = cut_lengths(first.size(), second.size(), most - added);
    cut(first, lengths.first, limit->cuts_left);
    cut(second, lengths.second, limit->cuts_left);
  }
  return processor.apply(first, texts.pair ? &second : nullptr, add_special_tokens);
}

std::vector<int64_t> Tokenizer::encode_text(std::string_view text) const {
  const size_t invalid = find_invalid_utf8(text);
  if (invalid != std::string_view::npos) {
    throw InputError(cat("cannot tokenize a text that is not UTF-8 (at byte ", invalid, ")"));
  }
  const State& state = *state_;
  Pieces pieces = state.added->split(text);
  if (state.pre_tokenizer != nullptr) state.pre_tokenizer->apply(pieces);
  std::vector<int64_t> ids;
  ids.reserve(pieces.list.size() + 8);
  state.model->encode(pieces, ids);
  return ids;
}

std::string Tokenizer::decode(std::span<const int64_t> ids, bool skip_special_tokens) const {
  const State& state = *state_;
  std::vector<std::string> tokens;
  tokens.reserve(ids.size());
  for (const int64_t id : ids) {
    const std::optional<std::string_view> text = state.text(id);
    if (!text || (skip_special_tokens && state.added->is_special(*text))) continue;
    tokens.emplace_back(*text);
  }
  if (state.decoder == nullptr) return join(tokens, " ");
  if (tokens.empty()) return "";
  state.decoder->apply(tokens);
  return join(tokens, "");
}

int64_t Tokenizer::vocab_size() const {
  return state_->model->vocabulary().size() + state_->added->num_new();
}

int64_t Tokenizer::id_bound() const {
  return state_->id_bound();
}

std::optional<std::string_view> Tokenizer::id_to_token(int64_t id) const {
  return state_->text(id);
}

const std::optional<SpecialToken>& Tokenizer::bos() const {
  return state_->bos;
}
const std::optional<SpecialToken>& Tokenizer::eos() const {
  return state_->eos;
}
const std::optional<SpecialToken>& Tokenizer::pad() const {
  return state_->pad;
}
const std::optional<SpecialToken>& Tokenizer::unk() const {
  return state_->unk;
}
bool Tokenizer::is_special(int64_t id) const {
  return std::ranges::binary_search(state_->special_ids, id);
}

std::optional<int64_t> Tokenizer::find_special(std::string_view text) const {
  if (state_->model_gives_specials) {
    for (const int64_t id : encode(text, /*add_special_tokens=*/false)) {
      if (is_special(id)) return id;
    }
    return std::nullopt;
  }
  for (const Piece& piece : state_->added->split(text).list) {
    if (piece.id >= 0 && is_special(piece.id)) return piece.id;
  }
  return std::nullopt;
}

std::string Tokenizer::normalized(std::string_view text) const {
  const Pieces pieces = state_->added->split(text);
  std::string out;
  for (const Piece& piece : pieces.list) out += pieces[piece];
  return out;
}

const std::map<std::string, std::string>& Tokenizer::named_tokens() const {
  return state_->settings.named_tokens;
}

std::optional<double> Tokenizer::model_max_length() const {
  return state_->settings.model_max_length;
}

bool Tokenizer::truncates_left() const {
  return state_->settings.truncates_left;
}

bool Tokenizer::gives_types() const {
  return state_->settings.gives_types;
}

const std::optional<TemplateText>& Tokenizer::chat_template() const {
  return state_->settings.chat_template;
}

const std::string& Tokenizer::folder() const {
  return state_->folder;
}

}  // namespace automodel::tokenizers
