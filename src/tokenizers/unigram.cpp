#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <limits>
#include <memory>
#include <numeric>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/error.h"
#include "core/text.h"
#include "core/utf8.h"
#include "tokenizers/component.h"
#include "tokenizers/token_model.h"
#include "tokenizers/token_trie.h"
#include "tokenizers/word_cache.h"

namespace automodel::tokenizers {

namespace {

struct UnigramOptions {
  int64_t unk_id = -1;  ///< -1: a text that needs it is an error
  bool byte_fallback = false;
  std::string where;  ///< the component, for messages
};

/// Divides a piece into the tokens of the largest sum of scores.
class Unigram final : public Model {
 public:
  Unigram(Vocabulary vocabulary, TokenTrie trie, std::vector<double> scores, UnigramOptions options)
      : vocabulary_(std::move(vocabulary)),
        trie_(std::move(trie)),
        scores_(std::move(scores)),
        options_(std::move(options)) {
    constexpr double kUnknownPenalty = 10;
    unk_score_ = std::numeric_limits<double>::infinity();
    for (const double score : scores_) unk_score_ = std::min(unk_score_, score);
    unk_score_ -= kUnknownPenalty;
    for (int byte = 0; byte < 256; ++byte) {
      constexpr const char* kDigits = "0123456789ABCDEF";
      const std::string name = cat("<0x", kDigits[byte >> 4], kDigits[byte & 15], ">");
      id_of_byte_[static_cast<size_t>(byte)] = vocabulary_.find(name);
    }
  }

  const Vocabulary& vocabulary() const override { return vocabulary_; }

  /// All but empty tokens and those that a later one with the same text hides.
  bool may_give(int64_t id) const override {
    const std::optional<std::string_view> token = vocabulary_.token(id);
    if (!token) return false;
    return id == options_.unk_id || (!token->empty() && vocabulary_.find(*token) == id);
  }

  void encode_piece(std::string_view piece, std::vector<int64_t>& ids) const override {
    const WordCache::Place place = cache_->place_of(piece);
    if (cache_->find(place, ids)) return;
    const size_t first = ids.size();
    for (const Part& part : best_parts(piece)) add_part(piece, part, ids);
    cache_->insert(place, std::span(ids).subspan(first));
  }

 private:
  /// The last token of the best way to a place in the piece.
  struct Arrival {
    double score = 0;
    size_t begin = 0;
    int64_t id = -1;  // -1: no way yet

    void offer(double other_score, size_t other_begin, int64_t other_id) {
      if (id >= 0 && !(other_score > score)) return;
      score = other_score;
      begin = other_begin;
      id = other_id;
    }
  };

  struct Part {
    size_t begin;
    size_t end;
    int64_t id;
  };

  /// By the byte that a token ends before.
  std::vector<Arrival> arrivals(std::string_view piece) const {
    std::vector<Arrival> ways(piece.size() + 1);
    for (size_t begin = 0; begin < piece.size();) {
      size_t next = begin;
      next_code_point(piece, next);
      const double score = ways[begin].score;
      bool is_covered = false;  // whether the character is a token by itself
      uint32_t node = TokenTrie::kRoot;
      for (size_t end = begin; end < piece.size();) {
        node = trie_.next(node, piece[end++]);
        if (node == TokenTrie::kNone) break;
        const uint32_t id = trie_.token(node);
        if (id == TokenTrie::kNone) continue;
        ways[end].offer(scores_[id] + score, begin, id);
        is_covered |= end == next;
      }
      if (!is_covered) offer_unknown(piece, begin, next, ways);
      begin = next;
    }
    return ways;
  }

  /// As the reference implementation, a file without unk_id fails wherever an unknown token is the
  /// best way to a place, even when the best way to the end goes past it.
  void offer_unknown(std::string_view piece, size_t begin, size_t end,
                     std::vector<Arrival>& ways) const {
    const double score = unk_score_ + ways[begin].score;
    if (ways[end].id >= 0 && !(score > ways[end].score)) return;
    if (options_.unk_id < 0) {
      throw InputError(cat(options_.where, ": '", piece.substr(begin, end - begin),
                           "' needs an unknown token, but there is no unk_id"));
    }
    ways[end].offer(score, begin, options_.unk_id);
  }

  /// Unknown characters side by side are one part.
  std::vector<Part> best_parts(std::string_view piece) const {
    const std::vector<Arrival> ways = arrivals(piece);
    std::vector<Part> parts;
    for (size_t end = piece.size(); end > 0; end = ways[end].begin) {
      const Arrival& way = ways[end];
      if (way.id == options_.unk_id && !parts.empty() && parts.back().id == way.id) {
        parts.back().begin = way.begin;
      } else {
        parts.push_back({way.begin, end, way.id});
      }
    }
    std::ranges::reverse(parts);
    return parts;
  }

  void add_part(std::string_view piece, const Part& part, std::vector<int64_t>& ids) const {
    if (part.id != options_.unk_id) {
      ids.push_back(part.id);
      return;
    }
    const std::string_view text = piece.substr(part.begin, part.end - part.begin);
    const int64_t whole = vocabulary_.find(text);  // the unknown token's own text, for one
    if (whole >= 0) {
      ids.push_back(whole);
    } else if (!options_.byte_fallback || !add_bytes(text, ids)) {
      ids.push_back(options_.unk_id);
    }
  }

  bool add_bytes(std::string_view text, std::vector<int64_t>& ids) const {
    const auto id_of = [&](char c) { return id_of_byte_[static_cast<unsigned char>(c)]; };
    if (std::ranges::any_of(text, [&](char c) { return id_of(c) < 0; })) return false;
    std::ranges::transform(text, std::back_inserter(ids), id_of);
    return true;
  }

  Vocabulary vocabulary_;
  TokenTrie trie_;
  std::vector<double> scores_;
  UnigramOptions options_;
  double unk_score_;
  std::array<int64_t, 256> id_of_byte_{};
  std::unique_ptr<WordCache> cache_ = std::make_unique<WordCache>();
};

void check_scores(const Document& document, const Component& component) {
  for (size_t i = 0; i < document.scores.size(); ++i) {
    if (std::isfinite(document.scores[i])) continue;
    component.fail(cat("the score of token '", document.tokens[i], "' is not finite"));
  }
}

}  // namespace

std::unique_ptr<Model> make_unigram(Document& document, const Json& settings) {
  const Component component(settings, document.name, "model");
  if (!document.vocab_is_list) component.fail("vocab must be a list of tokens and scores");
  check_scores(document, component);
  const auto count = static_cast<int64_t>(document.tokens.size());
  UnigramOptions options;
  options.unk_id = component.integer("unk_id", -1);
  if (options.unk_id >= count) {
    component.fail(
        cat("unk_id ", options.unk_id, " is out of range for a vocabulary of ", count, " tokens"));
  }
  options.byte_fallback = component.flag("byte_fallback", false);
  options.where = component.where();
  TokenTrie trie(document.tokens);
  std::vector<int64_t> ids(document.tokens.size());
  std::iota(ids.begin(), ids.end(), 0);
  Vocabulary vocabulary(std::move(document.tokens), std::move(ids), document.name,
                        Vocabulary::Twins::kLastCounts);
  return std::make_unique<Unigram>(std::move(vocabulary), std::move(trie),
                                   std::move(document.scores), std::move(options));
}

}  // namespace automodel::tokenizers
