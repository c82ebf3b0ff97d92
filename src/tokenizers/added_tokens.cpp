#include "tokenizers/added_tokens.h"

#include <algorithm>

#include "core/error.h"
#include "core/text.h"
#include "tokenizers/unicode.h"

namespace automodel::tokenizers {

AddedToken read_added_token(const Json& json, const std::string& where) {
  const Json* content = json.find("content");
  if (content == nullptr || !content->is_string()) {
    throw InputError(cat(where, ": an added token must be an object with a \"content\""));
  }
  AddedToken token;
  token.content = content->as_string();
  const auto read = [&](std::string_view key, bool& flag) {
    const Json* value = json.find(key);
    if (value == nullptr || value->is_null()) return;
    if (!value->is_bool()) {
      throw InputError(cat(where, ": ", key, " of the added token '", token.content,
                           "' must be a boolean, found ", value->kind()));
    }
    flag = value->as_bool();
  };
  read("special", token.special);
  token.normalized = !token.special;
  read("normalized", token.normalized);
  read("single_word", token.single_word);
  read("lstrip", token.lstrip);
  read("rstrip", token.rstrip);
  return token;
}

void Matcher::insert(std::string_view text, int64_t id) {
  if (text.empty()) return;
  begins_[static_cast<unsigned char>(text[0])] = true;
  only_begin_ = is_empty() || only_begin_ == text[0] ? std::optional(text[0]) : std::nullopt;
  uint32_t node = 0;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    auto& children = nodes_[node].children;
    const auto child =
        std::ranges::lower_bound(children, byte, {}, [](const auto& entry) { return entry.first; });
    if (child != children.end() && child->first == byte) {
      node = child->second;
    } else {
      const auto created = static_cast<uint32_t>(nodes_.size());
      children.insert(child, {byte, created});
      nodes_.emplace_back();
      node = created;
    }
  }
  nodes_[node].id = id;
}

std::optional<Matcher::Hit> Matcher::find(std::string_view text, size_t from) const {
  for (size_t begin = from; begin < text.size(); ++begin) {
    if (only_begin_) {
      begin = text.find(*only_begin_, begin);
      if (begin == std::string_view::npos) break;
    }
    if (!begins_[static_cast<unsigned char>(text[begin])]) continue;
    std::optional<Hit> longest;
    uint32_t node = 0;
    for (size_t i = begin; i < text.size(); ++i) {
      const auto byte = static_cast<unsigned char>(text[i]);
      const auto& children = nodes_[node].children;
      const auto child = std::ranges::lower_bound(children, byte, {},
                                                  [](const auto& entry) { return entry.first; });
      if (child == children.end() || child->first != byte) break;
      node = child->second;
      if (nodes_[node].id >= 0) longest = Hit{begin, i + 1, nodes_[node].id};
    }
    if (longest) return longest;
  }
  return std::nullopt;
}

void AddedTokens::add(const std::vector<AddedToken>& tokens) {
  int64_t next_id = vocabulary_->size();
  if (!tokens_.empty()) {
    const int64_t largest = tokens_.rbegin()->first;
    if (largest >= next_id) next_id = largest + 1;
  }
  for (const AddedToken& token : tokens) {
    if (token.content.empty()) continue;
    int64_t id = find(token.content);
    if (id >= 0) {
      if (const AddedToken* old = this->token(id); old != nullptr && *old == token) continue;
    } else {
      id = vocabulary_->find(token.content);
      if (id < 0) id = next_id++;
    }
    ids_[token.content] = id;
    if (token.special) special_texts_.insert(token.content);
    if (token.normalized && normalizer_ != nullptr) {
      NormalizedText normalized{token.content, true};
      normalizer_->apply(normalized);
      if (normalized.text != token.content) normalized_texts_[id] = std::move(normalized.text);
    }
    tokens_[id] = token;
  }
  rebuild();
}

void AddedTokens::rebuild() {
  plain_ = Matcher();
  normalized_ = Matcher();
  for (const auto& [id, token] : tokens_) {
    if (token.normalized) {
      normalized_.insert(*text(id), id);
    } else {
      plain_.insert(token.content, id);
    }
  }
}

int64_t AddedTokens::find(std::string_view content) const {
  const auto found = ids_.find(std::string(content));
  return found == ids_.end() ? -1 : found->second;
}

const AddedToken* AddedTokens::token(int64_t id) const {
  const auto found = tokens_.find(id);
  return found == tokens_.end() ? nullptr : &found->second;
}

std::optional<std::string_view> AddedTokens::text(int64_t id) const {
  const AddedToken* token = this->token(id);
  if (token == nullptr) return std::nullopt;
  const auto normalized = normalized_texts_.find(id);
  return normalized == normalized_texts_.end() ? token->content : normalized->second;
}

int64_t AddedTokens::num_new() const {
  return std::ranges::count_if(
      ids_, [&](const auto& entry) { return vocabulary_->find(entry.first) < 0; });
}

void AddedTokens::cut(const NormalizedText& text, const Matcher& matcher, Pieces& out) const {
  const std::string_view all = text.text;
  const size_t base = out.text.size();
  out.text += all;
  const auto add = [&](size_t begin, size_t end, int64_t id) {
    if (begin >= end) return;
    out.list.push_back({base + begin, base + end, id, text.is_at_start && begin == 0});
  };
  size_t done = 0;
  std::optional<Matcher::Hit> hit;
  if (!matcher.is_empty()) hit = matcher.find(all, 0);
  for (; hit; hit = matcher.find(all, hit->end)) {
    const AddedToken& token = tokens_.at(hit->id);
    size_t begin = hit->begin;
    size_t end = hit->end;
    if (token.single_word) {
      size_t before = begin;
      size_t after = end;
      const bool joins_left = begin > 0 && is_word_character(previous_code_point(all, before));
      const bool joins_right = end < all.size() && is_word_character(next_code_point(all, after));
      if (joins_left || joins_right) continue;
    }
    if (token.lstrip) {
      while (begin > 0) {
        size_t before = begin;
        if (!is_whitespace(previous_code_point(all, before))) break;
        begin = before;
      }
      begin = std::max(begin, done);  // an earlier match may have taken the white space
    }
    if (token.rstrip) {
      while (end < all.size()) {
        size_t after = end;
        if (!is_whitespace(next_code_point(all, after))) break;
        end = after;
      }
    }
    add(done, begin, -1);
    add(begin, end, hit->id);
    done = end;
  }
  add(done, all.size(), -1);
}

Pieces AddedTokens::split(std::string_view text) const {
  Pieces plain;
  cut({std::string(text), true}, plain_, plain);
  if (normalizer_ == nullptr && normalized_.is_empty()) return plain;
  Pieces result;
  result.text.reserve(text.size());
  for (const Piece& piece : plain.list) {
    if (piece.id >= 0) {
      const size_t begin = result.text.size();
      result.text += plain[piece];
      result.list.push_back({begin, result.text.size(), piece.id, piece.is_at_start});
      continue;
    }
    NormalizedText normalized{std::string(plain[piece]), piece.is_at_start};
    if (normalizer_ != nullptr) normalizer_->apply(normalized);
    cut(normalized, normalized_, result);
  }
  return result;
}

}  // namespace automodel::tokenizers
