#include "tokenizers/decoder.h"

#include <array>
#include <optional>
#include <utility>

#include "core/error.h"
#include "core/text.h"
#include "tokenizers/regex.h"
#include "tokenizers/unicode.h"

namespace automodel::tokenizers {

namespace {

class ByteLevelDecoder final : public Decoder {
 public:
  void apply(std::vector<std::string>& tokens) const override {
    std::string bytes;
    for (const std::string& token : tokens) {
      const size_t before = bytes.size();
      for (size_t i = 0; i < token.size();) {
        const int byte = byte_of_character(next_code_point(token, i));
        if (byte < 0) {  // not in the byte alphabet: the token is its own text
          bytes.resize(before);
          bytes += token;
          break;
        }
        bytes.push_back(static_cast<char>(byte));
      }
    }
    tokens.assign(1, lossy_utf8(bytes));
  }
};

class ReplaceDecoder final : public Decoder {
 public:
  ReplaceDecoder(Regex pattern, std::string content)
      : pattern_(std::move(pattern)), content_(std::move(content)) {}

  void apply(std::vector<std::string>& tokens) const override {
    std::vector<Match> matches;
    for (std::string& token : tokens) {
      matches.clear();
      pattern_.find_all(token, matches);
      std::string out;
      for (const Match& match : matches) {
        if (match.is_match) {
          out += content_;
        } else {
          out.append(token, match.begin, match.end - match.begin);
        }
      }
      token = std::move(out);
    }
  }

 private:
  Regex pattern_;
  std::string content_;
};

/// Tokens like <0x61> are bytes; runs of them become text, or U+FFFD for every byte when they are
/// no UTF-8.
class ByteFallback final : public Decoder {
 public:
  void apply(std::vector<std::string>& tokens) const override {
    std::vector<std::string> out;
    out.reserve(tokens.size());
    std::string bytes;
    const auto flush = [&] {
      if (bytes.empty()) return;
      if (find_invalid_utf8(bytes) == std::string::npos) {
        out.push_back(bytes);
      } else {
        out.insert(out.end(), bytes.size(), "\xEF\xBF\xBD");
      }
      bytes.clear();
    };
    for (std::string& token : tokens) {
      if (const std::optional<char> byte = byte_token(token)) {
        bytes.push_back(*byte);
      } else {
        flush();
        out.push_back(std::move(token));
      }
    }
    flush();
    tokens = std::move(out);
  }

 private:
  static std::optional<char> byte_token(const std::string& token) {
    if (token.size() != 6 || !token.starts_with("<0x") || token[5] != '>') return std::nullopt;
    const auto digit = [](char c) {
      if (c >= '0' && c <= '9') return c - '0';
      if (c >= 'a' && c <= 'f') return c - 'a' + 10;
      return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
    };
    // "<0x+5>" is a byte too: the reference implementation's number parser takes a sign.
    const int high = token[3] == '+' ? 0 : digit(token[3]);
    const int low = digit(token[4]);
    if (high < 0 || low < 0) return std::nullopt;
    const int value = high * 16 + low;
    return static_cast<char>(value);
  }
};

class Fuse final : public Decoder {
 public:
  void apply(std::vector<std::string>& tokens) const override {
    tokens.assign(1, join(tokens, ""));
  }
};

/// Takes up to `start` and `stop` times a character off the ends of every token.
class StripDecoder final : public Decoder {
 public:
  StripDecoder(char32_t content, int64_t start, int64_t stop) : start_(start), stop_(stop) {
    append_utf8(content_, content);
  }

  void apply(std::vector<std::string>& tokens) const override {
    for (std::string& token : tokens) {
      std::string_view rest = token;
      for (int64_t i = 0; i < start_ && rest.starts_with(content_); ++i) {
        rest.remove_prefix(content_.size());
      }
      for (int64_t i = 0; i < stop_ && rest.ends_with(content_); ++i) {
        rest.remove_suffix(content_.size());
      }
      token = std::string(rest);
    }
  }

 private:
  std::string content_;
  int64_t start_;
  int64_t stop_;
};

class MetaspaceDecoder final : public Decoder {
 public:
  MetaspaceDecoder(char32_t replacement, bool drops_first)
      : replacement_(replacement), drops_first_(drops_first) {}

  void apply(std::vector<std::string>& tokens) const override {
    for (size_t t = 0; t < tokens.size(); ++t) {
      std::string out;
      for (size_t i = 0; i < tokens[t].size();) {
        const char32_t c = next_code_point(tokens[t], i);
        if (c != replacement_) {
          append_utf8(out, c);
        } else if (t != 0 || !drops_first_) {
          out.push_back(' ');
        }
      }
      tokens[t] = std::move(out);
    }
  }

 private:
  char32_t replacement_;
  bool drops_first_;
};

/// Spaces before punctuation and around English contractions go.
std::string clean_up(std::string text) {
  constexpr std::array<std::pair<std::string_view, std::string_view>, 11> kReplacements{{
      {" .", "."},
      {" ?", "?"},
      {" !", "!"},
      {" ,", ","},
      {" ' ", "'"},
      {" n't", "n't"},
      {" 'm", "'m"},
      {" do not", " don't"},
      {" 's", "'s"},
      {" 've", "'ve"},
      {" 're", "'re"},
  }};
  for (const auto& [from, to] : kReplacements) text = replace_all(std::move(text), from, to);
  return text;
}

class WordPieceDecoder final : public Decoder {
 public:
  WordPieceDecoder(std::string prefix, bool cleans_up)
      : prefix_(std::move(prefix)), cleans_up_(cleans_up) {}

  void apply(std::vector<std::string>& tokens) const override {
    for (size_t i = 0; i < tokens.size(); ++i) {
      std::string& token = tokens[i];
      if (i != 0) {
        if (token.starts_with(prefix_)) {
          token.erase(0, prefix_.size());
        } else {
          token.insert(token.begin(), ' ');
        }
      }
      if (cleans_up_) token = clean_up(std::move(token));
    }
  }

 private:
  std::string prefix_;
  bool cleans_up_;
};

class BpeDecoder final : public Decoder {
 public:
  explicit BpeDecoder(std::string suffix) : suffix_(std::move(suffix)) {}

  void apply(std::vector<std::string>& tokens) const override {
    for (size_t i = 0; i < tokens.size(); ++i) {
      tokens[i] = replace_all(std::move(tokens[i]), suffix_, i + 1 == tokens.size() ? "" : " ");
    }
  }

 private:
  std::string suffix_;
};

class CtcDecoder final : public Decoder {
 public:
  CtcDecoder(std::string pad, std::string delimiter, bool cleans_up)
      : pad_(std::move(pad)), delimiter_(std::move(delimiter)), cleans_up_(cleans_up) {}

  void apply(std::vector<std::string>& tokens) const override {
    std::vector<std::string> out;
    for (size_t i = 0; i < tokens.size(); ++i) {
      if (i > 0 && tokens[i] == tokens[i - 1]) continue;
      std::string token = replace_all(tokens[i], pad_, "");
      if (cleans_up_) token = replace_all(clean_up(std::move(token)), delimiter_, " ");
      if (!token.empty()) out.push_back(std::move(token));
    }
    tokens = std::move(out);
  }

 private:
  std::string pad_;
  std::string delimiter_;
  bool cleans_up_;
};

class DecoderSequence final : public Decoder {
 public:
  explicit DecoderSequence(std::vector<std::unique_ptr<Decoder>> parts)
      : parts_(std::move(parts)) {}
  void apply(std::vector<std::string>& tokens) const override {
    for (const auto& part : parts_) {
      if (!tokens.empty()) part->apply(tokens);
    }
  }

 private:
  std::vector<std::unique_ptr<Decoder>> parts_;
};

std::unique_ptr<Decoder> make_metaspace(const Component& component) {
  const bool never = component.text("prepend_scheme", "always") == "never" ||
                     !component.flag("add_prefix_space", true);
  return std::make_unique<MetaspaceDecoder>(component.character("replacement"), !never);
}

std::unique_ptr<Decoder> make_sequence(const Component& component) {
  std::vector<std::unique_ptr<Decoder>> parts;
  for (const Component& part : component.list("decoders")) parts.push_back(make_decoder(part));
  return std::make_unique<DecoderSequence>(std::move(parts));
}

}  // namespace

std::unique_ptr<Decoder> make_decoder(const Component& component) {
  const std::string& type = component.type();
  if (type == "ByteLevel") return std::make_unique<ByteLevelDecoder>();
  if (type == "ByteFallback") return std::make_unique<ByteFallback>();
  if (type == "Fuse") return std::make_unique<Fuse>();
  if (type == "Metaspace") return make_metaspace(component);
  if (type == "Sequence") return make_sequence(component);
  if (type == "BPEDecoder") return std::make_unique<BpeDecoder>(component.text("suffix", "</w>"));
  if (type == "Replace") {
    return std::make_unique<ReplaceDecoder>(component.pattern("pattern"),
                                            component.text("content"));
  }
  if (type == "Strip") {
    return std::make_unique<StripDecoder>(component.character("content"),
                                          component.integer("start", 0),
                                          component.integer("stop", 0));
  }
  if (type == "WordPiece") {
    return std::make_unique<WordPieceDecoder>(component.text("prefix", "##"),
                                              component.flag("cleanup", true));
  }
  if (type == "CTC") {
    return std::make_unique<CtcDecoder>(component.text("pad_token", "<pad>"),
                                        component.text("word_delimiter_token", "|"),
                                        component.flag("cleanup", true));
  }
  constexpr std::array<std::string_view, 10> kKnown = {
      "ByteLevel", "Replace",   "ByteFallback", "Fuse", "Strip",
      "Metaspace", "WordPiece", "BPEDecoder",   "CTC",  "Sequence"};
  component.fail_unknown(kKnown);
}

}  // namespace automodel::tokenizers
