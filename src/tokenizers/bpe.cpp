#include <algorithm>
#include <array>
#include <functional>
#include <optional>
#include <queue>
#include <string>
#include <utility>

#include "core/error.h"
#include "core/text.h"
#include "tokenizers/component.h"
#include "tokenizers/token_model.h"
#include "tokenizers/unicode.h"
#include "tokenizers/word_cache.h"

namespace automodel::tokenizers {

namespace {

struct BpeOptions {
  std::optional<std::string> unk_token;
  std::string continuing_subword_prefix;
  std::string end_of_word_suffix;
  bool fuse_unk = false;
  bool byte_fallback = false;
  bool ignore_merges = false;
};

constexpr uint32_t kNone = ~uint32_t{0};

class BytePairEncoding final : public Model {
 public:
  BytePairEncoding(Vocabulary vocabulary, MergeTable merges, BpeOptions options)
      : vocabulary_(std::move(vocabulary)),
        merges_(std::move(merges)),
        options_(std::move(options)),
        has_affixes_(!options_.continuing_subword_prefix.empty() ||
                     !options_.end_of_word_suffix.empty()),
        id_of_character_(kTableSize, kNone) {
    for (int64_t id = 0; id < vocabulary_.id_bound(); ++id) {
      const std::string_view token = vocabulary_.token(id).value_or("");
      if (token.empty() || token.size() > 3) continue;
      size_t size = 0;
      const char32_t c = next_code_point(token, size);
      if (size == token.size()) id_of_character_[c] = static_cast<uint32_t>(id);
    }
    for (int byte = 0; byte < 256; ++byte) {
      constexpr const char* kDigits = "0123456789ABCDEF";
      const std::string name = cat("<0x", kDigits[byte >> 4], kDigits[byte & 15], ">");
      id_of_byte_[static_cast<size_t>(byte)] = vocabulary_.find(name);
    }
    if (options_.unk_token) unk_id_ = vocabulary_.find(*options_.unk_token);
  }

  const Vocabulary& vocabulary() const override { return vocabulary_; }

  bool may_give(int64_t id) const override {
    const std::optional<std::string_view> token = vocabulary_.token(id);
    if (!token) return false;
    if (options_.ignore_merges || has_affixes_ || merges_.gives(id)) return true;
    const bool has_all_bytes = std::ranges::find(id_of_byte_, -1) == id_of_byte_.end();
    if (id == unk_id_ && !(options_.byte_fallback && has_all_bytes)) return true;
    if (options_.byte_fallback && std::ranges::find(id_of_byte_, id) != id_of_byte_.end()) {
      return true;
    }
    size_t size = 0;
    if (!token->empty()) next_code_point(*token, size);
    return size == token->size();
  }

  void encode_piece(std::string_view piece, std::vector<int64_t>& ids) const override {
    encode_word(piece, cache_->place_of(piece), ids);
  }

  void encode(const Pieces& pieces, std::vector<int64_t>& ids) const override {
    constexpr size_t kAhead = 4;  // encoding so many takes about as long as memory
    std::array<WordCache::Place, kAhead> places;
    for (size_t i = 0; i < pieces.list.size() + kAhead; ++i) {
      WordCache::Place& place = places[i % kAhead];
      if (i >= kAhead) {
        const Piece& piece = pieces.list[i - kAhead];
        if (piece.id >= 0) {
          ids.push_back(piece.id);
        } else {
          encode_word(pieces[piece], place, ids);
        }
      }
      if (i < pieces.list.size()) place = cache_->place_of(pieces[pieces.list[i]]);
    }
  }

 private:
  static constexpr char32_t kTableSize = 0x10000;
  static constexpr size_t kFewSymbols = 24;

  void encode_word(std::string_view piece, const WordCache::Place& place,
                   std::vector<int64_t>& ids) const {
    if (cache_->find(place, ids)) return;
    const size_t first = ids.size();
    const int64_t whole = options_.ignore_merges ? vocabulary_.find(piece) : -1;
    if (whole >= 0) {
      ids.push_back(whole);
    } else {
      std::vector<uint32_t> symbols = characters(piece);
      if (symbols.size() <= kFewSymbols) {
        merge_few(symbols);
      } else {
        merge_many(symbols);
      }
      ids.insert(ids.end(), symbols.begin(), symbols.end());
    }
    cache_->insert(place, std::span(ids).subspan(first));
  }

  int64_t find_character(std::string_view text, char32_t c, bool is_first, bool is_last) const {
    if (!has_affixes_) {
      if (c < kTableSize) {
        return id_of_character_[c] == kNone ? -1 : static_cast<int64_t>(id_of_character_[c]);
      }
      return vocabulary_.find(text);
    }
    return vocabulary_.find(affixed(text, is_first, is_last));
  }

  std::string affixed(std::string_view text, bool is_first, bool is_last) const {
    return cat(is_first ? "" : options_.continuing_subword_prefix, text,
               is_last ? options_.end_of_word_suffix : "");
  }

  bool add_bytes(std::string_view text, std::vector<uint32_t>& symbols) const {
    for (const char c : text) {
      if (id_of_byte_[static_cast<unsigned char>(c)] < 0) return false;
    }
    for (const char c : text) {
      symbols.push_back(static_cast<uint32_t>(id_of_byte_[static_cast<unsigned char>(c)]));
    }
    return true;
  }

  /// The piece's characters as tokens: by themselves, as bytes, or as the unknown token. A
  /// character that is none of these is left out.
  std::vector<uint32_t> characters(std::string_view piece) const {
    std::vector<uint32_t> symbols;
    symbols.reserve(piece.size());
    bool has_unk = false;  // an unknown token that is still to be added
    for (size_t i = 0; i < piece.size();) {
      const size_t begin = i;
      const char32_t c = next_code_point(piece, i);
      const std::string_view text = piece.substr(begin, i - begin);
      const bool is_last = i == piece.size();
      const int64_t id = find_character(text, c, begin == 0, is_last);
      if (id >= 0) {
        if (has_unk) symbols.push_back(static_cast<uint32_t>(unk_id_));
        has_unk = false;
        symbols.push_back(static_cast<uint32_t>(id));
        continue;
      }
      // Like the reference implementation, bytes do not flush an unknown token before them.
      if (options_.byte_fallback && add_bytes(affixed(text, begin == 0, is_last), symbols)) {
        continue;
      }
      if (!options_.unk_token) continue;
      if (unk_id_ < 0) {
        throw InputError(
            cat("the tokenizer's unk_token '", *options_.unk_token, "' is not in its vocabulary"));
      }
      if (has_unk && !options_.fuse_unk) symbols.push_back(static_cast<uint32_t>(unk_id_));
      has_unk = true;
    }
    if (has_unk) symbols.push_back(static_cast<uint32_t>(unk_id_));
    return symbols;
  }

  /// Merges the best pair (lowest rank, then leftmost) until none is left, by looking at all.
  void merge_few(std::vector<uint32_t>& symbols) const {
    std::array<const MergeTable::Merge*, kFewSymbols> merge{};
    size_t count = symbols.size();
    for (size_t i = 0; i + 1 < count; ++i) merge[i] = merges_.find(symbols[i], symbols[i + 1]);
    while (count > 1) {
      size_t best = count;
      for (size_t i = 0; i + 1 < count; ++i) {
        if (merge[i] != nullptr && (best == count || merge[i]->rank < merge[best]->rank)) best = i;
      }
      if (best == count) break;
      symbols[best] = merge[best]->id;
      for (size_t i = best + 1; i + 1 < count; ++i) {
        symbols[i] = symbols[i + 1];
        merge[i] = merge[i + 1];
      }
      --count;
      if (best > 0) merge[best - 1] = merges_.find(symbols[best - 1], symbols[best]);
      merge[best] = best + 1 < count ? merges_.find(symbols[best], symbols[best + 1]) : nullptr;
    }
    symbols.resize(count);
  }

  struct Candidate {
    uint32_t rank;
    uint32_t id;
    size_t position;

    bool operator>(const Candidate& other) const {
      return rank != other.rank ? rank > other.rank : position > other.position;
    }
  };

  /// merge_few() for longer texts, with a queue of pairs and a linked list of symbols.
  void merge_many(std::vector<uint32_t>& symbols) const {
    const size_t count = symbols.size();
    std::vector<size_t> next(count);
    std::vector<size_t> previous(count);
    std::vector<bool> is_gone(count, false);
    std::vector<Candidate> storage;
    storage.reserve(count);
    std::priority_queue<Candidate, std::vector<Candidate>, std::greater<>> queue(
        std::greater<>{}, std::move(storage));
    const auto propose = [&](size_t left, size_t right) {
      const MergeTable::Merge* merge = merges_.find(symbols[left], symbols[right]);
      if (merge != nullptr) queue.push({merge->rank, merge->id, left});
    };
    for (size_t i = 0; i < count; ++i) {
      next[i] = i + 1;
      previous[i] = i == 0 ? count : i - 1;
      if (i + 1 < count) propose(i, i + 1);
    }
    while (!queue.empty()) {
      const Candidate top = queue.top();
      queue.pop();
      const size_t left = top.position;
      if (is_gone[left] || next[left] == count) continue;
      const size_t right = next[left];
      const MergeTable::Merge* merge = merges_.find(symbols[left], symbols[right]);
      if (merge == nullptr || merge->id != top.id) continue;  // the pair has changed meanwhile
      symbols[left] = top.id;
      is_gone[right] = true;
      next[left] = next[right];
      if (next[left] != count) previous[next[left]] = left;
      if (previous[left] != count) propose(previous[left], left);
      if (next[left] != count) propose(left, next[left]);
    }
    size_t kept = 0;
    for (size_t i = 0; i < count; ++i) {
      if (!is_gone[i]) symbols[kept++] = symbols[i];
    }
    symbols.resize(kept);
  }

  Vocabulary vocabulary_;
  MergeTable merges_;
  BpeOptions options_;
  bool has_affixes_;
  std::vector<uint32_t> id_of_character_;
  std::array<int64_t, 256> id_of_byte_{};
  int64_t unk_id_ = -1;
  std::unique_ptr<WordCache> cache_ = std::make_unique<WordCache>();
};

MergeTable read_merges(const Document& document, const Vocabulary& vocabulary, size_t prefix_size) {
  const StringList& pairs = document.merges;
  MergeTable merges(pairs.size() / 2);
  std::string merged;
  for (size_t i = 0; i + 1 < pairs.size(); i += 2) {
    const std::string_view left = pairs[i];
    const std::string_view right = pairs[i + 1];
    const size_t rank = i / 2;
    const auto id_of = [&](std::string_view token) {
      const int64_t id = vocabulary.find(token);
      if (id < 0) {
        throw InputError(cat(document.name, ": model.merges entry ", rank + 1, " ('", left, "' '",
                             right, "') needs the token '", token,
                             "', which is not in the vocabulary"));
      }
      return static_cast<uint32_t>(id);
    };
    const uint32_t left_id = id_of(left);
    const uint32_t right_id = id_of(right);
    if (right.size() < prefix_size) {
      throw InputError(cat(document.name, ": model.merges entry ", rank + 1, ": '", right,
                           "' is shorter than the continuing_subword_prefix"));
    }
    merged.assign(left);
    merged += right.substr(prefix_size);
    merges.insert(left_id, right_id, {static_cast<uint32_t>(rank), id_of(merged)});
  }
  return merges;
}

}  // namespace

std::unique_ptr<Model> make_bpe(Document& document, const Json& settings) {
  const Component component(settings, document.name, "model");
  const Json* dropout = settings.find("dropout");
  if (dropout != nullptr && !dropout->is_null() &&
      !(dropout->is_number() && dropout->as_double() == 0)) {
    component.fail("dropout is not supported; set it to null");
  }
  if (document.vocab_is_list) component.fail("vocab must be an object of tokens and ids");
  if (!document.has_merges) component.fail("'merges' is missing");
  BpeOptions options;
  const Json* unk = settings.find("unk_token");
  if (unk != nullptr && !unk->is_null()) options.unk_token = component.text("unk_token");
  options.continuing_subword_prefix = component.text("continuing_subword_prefix", "");
  options.end_of_word_suffix = component.text("end_of_word_suffix", "");
  options.fuse_unk = component.flag("fuse_unk", false);
  options.byte_fallback = component.flag("byte_fallback", false);
  options.ignore_merges = component.flag("ignore_merges", false);
  Vocabulary vocabulary(std::move(document.tokens), std::move(document.ids), document.name);
  MergeTable merges = read_merges(document, vocabulary, options.continuing_subword_prefix.size());
  return std::make_unique<BytePairEncoding>(std::move(vocabulary), std::move(merges),
                                            std::move(options));
}

}  // namespace automodel::tokenizers
