#include "tokenizers/pre_tokenizer.h"

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "core/error.h"
#include "core/text.h"
#include "tokenizers/regex.h"
#include "tokenizers/unicode.h"

namespace automodel::tokenizers {

namespace {

/// What becomes of the matches a text is cut at.
enum class Behavior { kRemoved, kIsolated, kMergedWithPrevious, kMergedWithNext, kContiguous };

/// Turns matches into the ranges to keep, in place; `is_match` then says nothing.
void keep_ranges(std::vector<Match>& matches, Behavior behavior) {
  std::vector<Match> kept;
  kept.reserve(matches.size());
  bool was_match = false;
  switch (behavior) {
    case Behavior::kIsolated:
      return;
    case Behavior::kRemoved:
      std::erase_if(matches, [](const Match& match) { return match.is_match; });
      return;
    case Behavior::kContiguous:
    case Behavior::kMergedWithPrevious:
      for (const Match& match : matches) {
        const bool joins = behavior == Behavior::kContiguous ? match.is_match == was_match
                                                             : match.is_match && !was_match;
        if (joins && !kept.empty()) {
          kept.back().end = match.end;
        } else {
          kept.push_back(match);
        }
        was_match = match.is_match;
      }
      break;
    case Behavior::kMergedWithNext:
      for (auto match = matches.rbegin(); match != matches.rend(); ++match) {
        if (match->is_match && !was_match && !kept.empty()) {
          kept.back().begin = match->begin;
        } else {
          kept.push_back(*match);
        }
        was_match = match->is_match;
      }
      std::reverse(kept.begin(), kept.end());
      break;
  }
  matches = std::move(kept);
}

/// Cuts every piece of text where `find(text, matches)` says; the text itself stays.
template <typename Find>
void split_pieces(Pieces& pieces, Behavior behavior, Find find) {
  std::vector<Piece> list;
  list.reserve(pieces.list.size() + pieces.text.size() / 4);
  std::vector<Match> matches;
  for (const Piece& piece : pieces.list) {
    if (piece.id >= 0) {
      list.push_back(piece);
      continue;
    }
    matches.clear();
    find(pieces[piece], matches);
    keep_ranges(matches, behavior);
    for (const Match& match : matches) {
      if (match.begin == match.end) continue;
      list.push_back({piece.begin + match.begin, piece.begin + match.end, -1,
                      piece.is_at_start && match.begin == 0});
    }
  }
  pieces.list = std::move(list);
}

/// Every character for which `is_match` holds is a match by itself.
template <typename IsMatch>
void find_characters(std::string_view text, std::vector<Match>& out, IsMatch is_match) {
  size_t previous = 0;
  for (size_t i = 0; i < text.size();) {
    const size_t begin = i;
    if (!is_match(next_code_point(text, i))) continue;
    if (previous < begin) out.push_back({previous, begin, false});
    out.push_back({begin, i, true});
    previous = i;
  }
  if (previous < text.size()) out.push_back({previous, text.size(), false});
}

/// Rewrites the text of every piece: `rewrite(piece, out)` appends to out and returns the new
/// pieces' ends.
template <typename Rewrite>
void rewrite_pieces(Pieces& pieces, Rewrite rewrite) {
  Pieces result;
  result.text.reserve(pieces.text.size() + pieces.text.size() / 2);
  result.list.reserve(pieces.list.size() * 2 + pieces.text.size() / 3);
  for (const Piece& piece : pieces.list) {
    const size_t begin = result.text.size();
    if (piece.id >= 0) {
      result.text += pieces[piece];
      result.list.push_back({begin, result.text.size(), piece.id, piece.is_at_start});
    } else {
      rewrite(piece, result);
    }
  }
  pieces = std::move(result);
}

class ByteLevel final : public PreTokenizer {
 public:
  ByteLevel(bool add_prefix_space, std::optional<Regex> regex)
      : add_prefix_space_(add_prefix_space), regex_(std::move(regex)) {}

  void apply(Pieces& pieces) const override {
    std::vector<Match> matches;
    matches.reserve(pieces.text.size() / 3 + 8);
    std::string prefixed;
    rewrite_pieces(pieces, [&](const Piece& piece, Pieces& result) {
      std::string_view text = pieces[piece];
      if (add_prefix_space_ && text[0] != ' ') {
        prefixed = cat(" ", text);
        text = prefixed;
      }
      matches.clear();
      if (regex_) {
        regex_->find_all(text, matches);
      } else {
        matches.push_back({0, text.size(), false});
      }
      size_t end = result.text.size();
      result.text.resize(end + 2 * text.size());
      char* const characters = result.text.data();
      size_t num_pieces = result.list.size();
      result.list.resize(num_pieces + matches.size());
      for (const Match& match : matches) {
        if (match.begin == match.end) continue;
        const size_t begin = end;
        const char* const last =
            write_byte_level(characters + begin, text.substr(match.begin, match.end - match.begin));
        end = static_cast<size_t>(last - characters);
        result.list[num_pieces++] = {begin, end, -1, piece.is_at_start && match.begin == 0};
      }
      result.text.resize(end);
      result.list.resize(num_pieces);
    });
  }

 private:
  bool add_prefix_space_;
  std::optional<Regex> regex_;
};

class Split final : public PreTokenizer {
 public:
  Split(Regex pattern, Behavior behavior, bool is_inverted)
      : pattern_(std::move(pattern)), behavior_(behavior), is_inverted_(is_inverted) {}

  void apply(Pieces& pieces) const override {
    split_pieces(pieces, behavior_, [&](std::string_view text, std::vector<Match>& out) {
      pattern_.find_all(text, out);
      if (!is_inverted_) return;
      for (Match& match : out) match.is_match = !match.is_match;
    });
  }

 private:
  Regex pattern_;
  Behavior behavior_;
  bool is_inverted_;
};

/// Cuts at characters of a class.
class CharacterSplit final : public PreTokenizer {
 public:
  CharacterSplit(bool (*is_match)(char32_t), Behavior behavior)
      : is_match_(is_match), behavior_(behavior) {}

  void apply(Pieces& pieces) const override {
    split_pieces(pieces, behavior_, [&](std::string_view text, std::vector<Match>& out) {
      find_characters(text, out, is_match_);
    });
  }

 private:
  bool (*is_match_)(char32_t);
  Behavior behavior_;
};

class DelimiterSplit final : public PreTokenizer {
 public:
  explicit DelimiterSplit(char32_t delimiter) : delimiter_(delimiter) {}

  void apply(Pieces& pieces) const override {
    split_pieces(pieces, Behavior::kRemoved, [&](std::string_view text, std::vector<Match>& out) {
      find_characters(text, out, [&](char32_t c) { return c == delimiter_; });
    });
  }

 private:
  char32_t delimiter_;
};

/// \w+|[^\w\s]+
class Whitespace final : public PreTokenizer {
 public:
  void apply(Pieces& pieces) const override {
    split_pieces(pieces, Behavior::kIsolated, [](std::string_view text, std::vector<Match>& out) {
      const auto kind = [](char32_t c) {
        return is_word_character(c) ? 1 : is_whitespace(c) ? 0 : 2;
      };
      size_t begin = 0;
      int previous = 0;
      for (size_t i = 0; i < text.size();) {
        const size_t at = i;
        const int current = kind(next_code_point(text, i));
        if (current == previous) continue;
        if (previous != 0) out.push_back({begin, at, false});
        begin = at;
        previous = current;
      }
      if (previous != 0) out.push_back({begin, text.size(), false});
    });
  }
};

class FixedLength final : public PreTokenizer {
 public:
  explicit FixedLength(int64_t length) : length_(length) {}

  void apply(Pieces& pieces) const override {
    split_pieces(pieces, Behavior::kIsolated, [&](std::string_view text, std::vector<Match>& out) {
      size_t begin = 0;
      int64_t count = 0;
      for (size_t i = 0; i < text.size();) {
        next_code_point(text, i);
        if (++count < length_ && i < text.size()) continue;
        out.push_back({begin, i, false});
        begin = i;
        count = 0;
      }
    });
  }

 private:
  int64_t length_;
};

enum class PrependScheme { kFirst, kNever, kAlways };

struct MetaspaceOptions {
  std::string replacement;
  PrependScheme prepend_scheme = PrependScheme::kAlways;
  bool splits = true;
};

class Metaspace final : public PreTokenizer {
 public:
  explicit Metaspace(MetaspaceOptions options) : options_(std::move(options)) {}

  void apply(Pieces& pieces) const override {
    rewrite_pieces(pieces, [&](const Piece& piece, Pieces& result) {
      const size_t begin = result.text.size();
      const std::string_view text = pieces[piece];
      const bool has_mark = text[0] == ' ' || text.starts_with(options_.replacement);
      const bool wants_mark =
          options_.prepend_scheme == PrependScheme::kAlways ||
          (options_.prepend_scheme == PrependScheme::kFirst && piece.is_at_start);
      if (wants_mark && !has_mark) result.text += options_.replacement;
      for (const char c : text) {
        if (c == ' ') {
          result.text += options_.replacement;
        } else {
          result.text.push_back(c);
        }
      }
      add_pieces(result, begin, piece.is_at_start);
    });
  }

 private:
  /// Adds the text from `begin` on as one piece, or cut before every mark.
  void add_pieces(Pieces& result, size_t begin, bool is_at_start) const {
    const std::string& mark = options_.replacement;
    size_t piece_begin = begin;
    while (options_.splits) {
      const size_t next = result.text.find(mark, piece_begin + 1);
      if (next == std::string::npos) break;
      result.list.push_back({piece_begin, next, -1, is_at_start && piece_begin == begin});
      piece_begin = next;
    }
    result.list.push_back(
        {piece_begin, result.text.size(), -1, is_at_start && piece_begin == begin});
  }

  MetaspaceOptions options_;
};

class PreTokenizerSequence final : public PreTokenizer {
 public:
  explicit PreTokenizerSequence(std::vector<std::unique_ptr<PreTokenizer>> parts)
      : parts_(std::move(parts)) {}
  void apply(Pieces& pieces) const override {
    for (const auto& part : parts_) part->apply(pieces);
  }

 private:
  std::vector<std::unique_ptr<PreTokenizer>> parts_;
};

Behavior read_behavior(const Component& component) {
  const std::string text = component.text("behavior", "Isolated");
  if (text == "Removed") return Behavior::kRemoved;
  if (text == "Isolated") return Behavior::kIsolated;
  if (text == "MergedWithPrevious") return Behavior::kMergedWithPrevious;
  if (text == "MergedWithNext") return Behavior::kMergedWithNext;
  if (text == "Contiguous") return Behavior::kContiguous;
  component.fail(cat("unknown behavior '", text,
                     "'; known here: Removed, Isolated, MergedWithPrevious, MergedWithNext, "
                     "Contiguous"));
}

std::unique_ptr<PreTokenizer> make_byte_level(const Component& component) {
  std::optional<Regex> regex;
  if (component.flag("use_regex", true)) {
    regex = Regex::from_pattern(
        R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)",
        component.where());
  }
  return std::make_unique<ByteLevel>(component.flag("add_prefix_space", true), std::move(regex));
}

std::unique_ptr<PreTokenizer> make_metaspace_split(const Component& component) {
  MetaspaceOptions options;
  append_utf8(options.replacement, component.character("replacement"));
  const std::string scheme = component.text("prepend_scheme", "always");
  if (scheme == "first") {
    options.prepend_scheme = PrependScheme::kFirst;
  } else if (scheme == "never") {
    options.prepend_scheme = PrependScheme::kNever;
  } else if (scheme != "always") {
    component.fail(cat("unknown prepend_scheme '", scheme, "'; known here: first, never, always"));
  }
  // Older files say add_prefix_space.
  if (!component.flag("add_prefix_space", true)) options.prepend_scheme = PrependScheme::kNever;
  options.splits = component.flag("split", true);
  return std::make_unique<Metaspace>(std::move(options));
}

/// A split that keeps all matches and what is between them, with nothing else done before the
/// text's bytes become characters: one pass does both.
bool is_split_to_bytes(const Component& split, const Component& bytes) {
  return split.type() == "Split" && read_behavior(split) == Behavior::kIsolated &&
         !split.flag("invert", false) && bytes.type() == "ByteLevel" &&
         !bytes.flag("use_regex", true) && !bytes.flag("add_prefix_space", true);
}

std::unique_ptr<PreTokenizer> make_split_sequence(const Component& component) {
  std::vector<std::unique_ptr<PreTokenizer>> parts;
  const std::vector<Component> list = component.list("pretokenizers");
  for (size_t i = 0; i < list.size(); ++i) {
    if (i + 1 < list.size() && is_split_to_bytes(list[i], list[i + 1])) {
      parts.push_back(
          std::make_unique<ByteLevel>(/*add_prefix_space=*/false, list[i].pattern("pattern")));
      ++i;
    } else {
      parts.push_back(make_pre_tokenizer(list[i]));
    }
  }
  return std::make_unique<PreTokenizerSequence>(std::move(parts));
}

std::unique_ptr<PreTokenizer> make_bert() {
  std::vector<std::unique_ptr<PreTokenizer>> parts;
  parts.push_back(std::make_unique<CharacterSplit>(is_whitespace, Behavior::kRemoved));
  parts.push_back(std::make_unique<CharacterSplit>(is_punctuation, Behavior::kIsolated));
  return std::make_unique<PreTokenizerSequence>(std::move(parts));
}

}  // namespace

std::unique_ptr<PreTokenizer> make_pre_tokenizer(const Component& component) {
  const std::string& type = component.type();
  if (type == "ByteLevel") return make_byte_level(component);
  if (type == "Metaspace") return make_metaspace_split(component);
  if (type == "Sequence") return make_split_sequence(component);
  if (type == "BertPreTokenizer") return make_bert();
  if (type == "Whitespace") return std::make_unique<Whitespace>();
  if (type == "WhitespaceSplit") {
    return std::make_unique<CharacterSplit>(is_whitespace, Behavior::kRemoved);
  }
  if (type == "Punctuation") {
    return std::make_unique<CharacterSplit>(is_punctuation, read_behavior(component));
  }
  if (type == "CharDelimiterSplit") {
    return std::make_unique<DelimiterSplit>(component.character("delimiter"));
  }
  if (type == "Digits") {
    const bool individual = component.flag("individual_digits", false);
    return std::make_unique<CharacterSplit>(
        is_numeric, individual ? Behavior::kIsolated : Behavior::kContiguous);
  }
  if (type == "FixedLength") {
    const int64_t length = component.integer("length", 5);
    if (length < 1) component.fail("length must be at least 1");
    return std::make_unique<FixedLength>(length);
  }
  if (type == "Split") {
    return std::make_unique<Split>(component.pattern("pattern"), read_behavior(component),
                                   component.flag("invert", false));
  }
  constexpr std::array<std::string_view, 11> kKnown = {
      "ByteLevel",          "Split",           "Digits",      "Metaspace",
      "Whitespace",         "WhitespaceSplit", "Punctuation", "BertPreTokenizer",
      "CharDelimiterSplit", "FixedLength",     "Sequence"};
  component.fail_unknown(kKnown);
}

}  // namespace automodel::tokenizers
