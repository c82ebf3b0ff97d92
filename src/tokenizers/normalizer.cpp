#include "tokenizers/normalizer.h"

#include <array>
#include <utility>

#include "core/error.h"
#include "core/text.h"
#include "tokenizers/regex.h"
#include "tokenizers/unicode.h"

namespace automodel::tokenizers {

namespace {

/// Leaves out the characters that `drop` names and maps the others by `map`.
template <typename Drop, typename Map>
void filter_map(NormalizedText& text, Drop drop, Map map) {
  std::string out;
  out.reserve(text.text.size());
  for (size_t i = 0; i < text.text.size();) {
    const bool is_first = i == 0;
    const char32_t c = next_code_point(text.text, i);
    if (drop(c)) {
      if (is_first) text.is_at_start = false;
    } else {
      append_utf8(out, map(c));
    }
  }
  text.text = std::move(out);
}

constexpr auto kSame = [](char32_t c) { return c; };

class UnicodeForm final : public Normalizer {
 public:
  explicit UnicodeForm(NormalForm form) : form_(form) {}
  void apply(NormalizedText& text) const override { text.text = normal_form(text.text, form_); }

 private:
  NormalForm form_;
};

class Lowercase final : public Normalizer {
 public:
  void apply(NormalizedText& text) const override { text.text = lower_case(text.text); }
};

class StripAccents final : public Normalizer {
 public:
  void apply(NormalizedText& text) const override { filter_map(text, is_combining_mark, kSame); }
};

class Strip final : public Normalizer {
 public:
  Strip(bool left, bool right) : left_(left), right_(right) {}

  void apply(NormalizedText& text) const override {
    size_t begin = 0;
    while (left_ && begin < text.text.size()) {
      size_t next = begin;
      if (!is_whitespace(next_code_point(text.text, next))) break;
      begin = next;
    }
    size_t end = text.text.size();
    while (right_ && end > begin) {
      size_t previous = end;
      if (!is_whitespace(previous_code_point(text.text, previous))) break;
      end = previous;
    }
    if (begin > 0) text.is_at_start = false;
    text.text = text.text.substr(begin, end - begin);
  }

 private:
  bool left_;
  bool right_;
};

class Replace final : public Normalizer {
 public:
  Replace(Regex pattern, std::string content)
      : pattern_(std::move(pattern)), content_(std::move(content)) {}

  void apply(NormalizedText& text) const override {
    std::vector<Match> matches;
    pattern_.find_all(text.text, matches);
    std::string out;
    out.reserve(text.text.size());
    for (const Match& match : matches) {
      if (match.is_match) {
        if (match.begin == 0 && match.end > 0 && content_.empty()) text.is_at_start = false;
        out += content_;
      } else {
        out.append(text.text, match.begin, match.end - match.begin);
      }
    }
    text.text = std::move(out);
  }

 private:
  Regex pattern_;
  std::string content_;
};

class Prepend final : public Normalizer {
 public:
  explicit Prepend(std::string prefix) : prefix_(std::move(prefix)) {}
  void apply(NormalizedText& text) const override {
    if (!text.text.empty()) text.text.insert(0, prefix_);
  }

 private:
  std::string prefix_;
};

class ByteLevelNormalizer final : public Normalizer {
 public:
  void apply(NormalizedText& text) const override {
    std::string out(2 * text.text.size(), '\0');
    out.resize(static_cast<size_t>(write_byte_level(out.data(), text.text) - out.data()));
    text.text = std::move(out);
  }
};

/// The clean-up of neural machine translation models.
class Nmt final : public Normalizer {
 public:
  void apply(NormalizedText& text) const override {
    const auto drop = [](char32_t c) {
      return (c >= 0x01 && c <= 0x08) || c == 0x0B || (c >= 0x0E && c <= 0x1F) || c == 0x7F ||
             c == 0x8F || c == 0x9F;
    };
    const auto map = [](char32_t c) -> char32_t {
      const bool is_space = c == 0x09 || c == 0x0A || c == 0x0C || c == 0x0D || c == 0x1680 ||
                            (c >= 0x200B && c <= 0x200F) || c == 0x2028 || c == 0x2029 ||
                            c == 0x2581 || c == 0xFEFF || c == 0xFFFD;
      return is_space ? U' ' : c;
    };
    filter_map(text, drop, map);
  }
};

bool is_chinese(char32_t c) {
  return (c >= 0x4E00 && c <= 0x9FFF) || (c >= 0x3400 && c <= 0x4DBF) ||
         (c >= 0x20000 && c <= 0x2A6DF) || (c >= 0x2A700 && c <= 0x2B73F) ||
         (c >= 0x2B740 && c <= 0x2B81F) || (c >= 0x2B920 && c <= 0x2CEAF) ||
         (c >= 0xF900 && c <= 0xFAFF) || (c >= 0x2F800 && c <= 0x2FA1F);
}

struct BertOptions {
  bool clean_text = true;
  bool handle_chinese_chars = true;
  bool strip_accents = true;
  bool lowercase = true;
};

class BertNormalizer final : public Normalizer {
 public:
  explicit BertNormalizer(BertOptions options) : options_(options) {}

  void apply(NormalizedText& text) const override {
    if (options_.clean_text) clean(text);
    if (options_.handle_chinese_chars) space_chinese(text);
    if (options_.strip_accents) {
      text.text = normal_form(text.text, NormalForm::kNfd);
      filter_map(text, is_nonspacing_mark, kSame);
    }
    if (options_.lowercase) text.text = lower_case(text.text);
  }

 private:
  static void clean(NormalizedText& text) {
    const auto is_plain_space = [](char32_t c) { return c == '\t' || c == '\n' || c == '\r'; };
    filter_map(
        text,
        [&](char32_t c) {
          return c == 0 || c == 0xFFFD || (!is_plain_space(c) && is_control_or_other(c));
        },
        [](char32_t c) -> char32_t { return is_whitespace(c) ? U' ' : c; });
  }

  static void space_chinese(NormalizedText& text) {
    if (is_ascii(text.text)) return;
    std::string out;
    for (size_t i = 0; i < text.text.size();) {
      const char32_t c = next_code_point(text.text, i);
      const bool spaced = is_chinese(c);
      if (spaced) out.push_back(' ');
      append_utf8(out, c);
      if (spaced) out.push_back(' ');
    }
    text.text = std::move(out);
  }

  BertOptions options_;
};

class NormalizerSequence final : public Normalizer {
 public:
  explicit NormalizerSequence(std::vector<std::unique_ptr<Normalizer>> parts)
      : parts_(std::move(parts)) {}
  void apply(NormalizedText& text) const override {
    for (const auto& part : parts_) part->apply(text);
  }

 private:
  std::vector<std::unique_ptr<Normalizer>> parts_;
};

std::unique_ptr<Normalizer> make_bert(const Component& component) {
  BertOptions options;
  options.clean_text = component.flag("clean_text", true);
  options.handle_chinese_chars = component.flag("handle_chinese_chars", true);
  options.lowercase = component.flag("lowercase", true);
  options.strip_accents = component.flag("strip_accents", options.lowercase);
  return std::make_unique<BertNormalizer>(options);
}

}  // namespace

std::unique_ptr<Normalizer> make_normalizer(const Component& component) {
  const std::string& type = component.type();
  if (type == "NFC") return std::make_unique<UnicodeForm>(NormalForm::kNfc);
  if (type == "NFD") return std::make_unique<UnicodeForm>(NormalForm::kNfd);
  if (type == "NFKC") return std::make_unique<UnicodeForm>(NormalForm::kNfkc);
  if (type == "NFKD") return std::make_unique<UnicodeForm>(NormalForm::kNfkd);
  if (type == "Lowercase") return std::make_unique<Lowercase>();
  if (type == "StripAccents") return std::make_unique<StripAccents>();
  if (type == "Nmt") return std::make_unique<Nmt>();
  if (type == "ByteLevel") return std::make_unique<ByteLevelNormalizer>();
  if (type == "Prepend") return std::make_unique<Prepend>(component.text("prepend"));
  if (type == "Precompiled") return make_precompiled(component);
  if (type == "BertNormalizer" || type == "Bert") return make_bert(component);
  if (type == "Strip") {
    return std::make_unique<Strip>(component.flag("strip_left", true),
                                   component.flag("strip_right", true));
  }
  if (type == "Replace") {
    return std::make_unique<Replace>(component.pattern("pattern"), component.text("content"));
  }
  if (type == "Sequence") {
    std::vector<std::unique_ptr<Normalizer>> parts;
    for (const Component& part : component.list("normalizers")) {
      parts.push_back(make_normalizer(part));
    }
    return std::make_unique<NormalizerSequence>(std::move(parts));
  }
  constexpr std::array<std::string_view, 14> kKnown = {
      "NFC",     "NFD", "NFKC",           "NFKD",        "Lowercase", "StripAccents", "Strip",
      "Replace", "Nmt", "BertNormalizer", "Precompiled", "Prepend",   "ByteLevel",    "Sequence"};
  component.fail_unknown(kKnown);
}

}  // namespace automodel::tokenizers
