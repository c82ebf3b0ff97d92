#include "config/print.h"

#include <algorithm>
#include <vector>

#include "config/scalar.h"
#include "config/yaml_guard.h"
#include "core/text.h"

namespace automodel::config {

namespace {

constexpr const char* kHidden = "'******'";

/// The words of a key, lower case: at _ - . and at capitals ("apiKey", "HF_TOKEN").
std::vector<std::string> words_of(std::string_view key) {
  std::vector<std::string> words;
  std::string word;
  const auto is_upper = [](char c) { return c >= 'A' && c <= 'Z'; };
  for (size_t i = 0; i < key.size(); ++i) {
    const char c = key[i];
    const bool is_separator = c == '_' || c == '-' || c == '.' || c == ' ';
    const bool starts_word = is_upper(c) && i > 0 && !is_upper(key[i - 1]);
    if ((is_separator || starts_word) && !word.empty()) {
      words.push_back(to_lower(word));
      word.clear();
    }
    if (!is_separator) word.push_back(c);
  }
  if (!word.empty()) words.push_back(to_lower(word));
  return words;
}

bool is_in(std::string_view word, std::initializer_list<std::string_view> list) {
  return std::find(list.begin(), list.end(), word) != list.end();
}

/// True when PyYAML would write the text without quotes in block style.
bool is_plain_safe(std::string_view text) {
  if (text.empty() || text.front() == ' ' || text.back() == ' ') return false;
  constexpr std::string_view kIndicators = "!&*|>@`\"'#%,[]{}=<?:-";
  const char first = text.front();
  const bool is_dash_word =
      text.size() > 1 && text[1] != ' ' && (first == '-' || first == ':' || first == '?');
  if (kIndicators.find(first) != std::string_view::npos && !is_dash_word) return false;
  if (text.starts_with("---") || text.starts_with("...")) return false;
  if (text.back() == ':') return false;
  for (size_t i = 0; i < text.size(); ++i) {
    const unsigned char c = static_cast<unsigned char>(text[i]);
    if (c < 0x20 || c == 0x7F || c >= 0x80) return false;
    if (c == ':' && text[i + 1 < text.size() ? i + 1 : i] == ' ') return false;
    if (c == '#' && i > 0 && text[i - 1] == ' ') return false;
    if (is_in(std::string_view(&text[i], 1), {",", "[", "]", "{", "}"})) return false;
  }
  return true;
}

/// True for a character that PyYAML and yaml-cpp read alike inside single quotes.
bool is_quotable(uint32_t code) {
  const bool is_line_end = code == '\n' || code == 0x85 || code == 0x2028 || code == 0x2029;
  return is_printable(code) && !is_line_end && code != '\t' && code != 0xFEFF;
}

bool is_single_quotable(std::string_view text) {
  uint32_t code = 0;
  for (size_t at = 0; at < text.size(); at += std::max<size_t>(1, decode_utf8(text, at, code))) {
    if (decode_utf8(text, at, code) == 0 || !is_quotable(code)) return false;
  }
  return true;
}

std::string escaped(uint32_t code) {
  constexpr char kDigits[] = "0123456789abcdef";
  const int num_digits = code <= 0xFF ? 2 : code <= 0xFFFF ? 4 : 8;
  std::string out = num_digits == 2 ? "\\x" : num_digits == 4 ? "\\u" : "\\U";
  for (int i = num_digits; i-- > 0;) out.push_back(kDigits[(code >> (4 * i)) & 15]);
  return out;
}

std::string double_quoted(std::string_view text) {
  std::string out = "\"";
  uint32_t code = 0;
  for (size_t at = 0; at < text.size();) {
    const size_t length = std::max<size_t>(1, decode_utf8(text, at, code));
    if (code == '"' || code == '\\') {
      out.push_back('\\');
      out.push_back(text[at]);
    } else if (code == '\n') {
      out += "\\n";
    } else if (code == '\t') {
      out += "\\t";
    } else {
      out += is_quotable(code) ? std::string(text.substr(at, length)) : escaped(code);
    }
    at += length;
  }
  return out + "\"";
}

/// A text that YAML reads back as that string.
std::string string_text(std::string_view text) {
  const std::optional<Node> plain = resolve_plain_scalar(text);
  if (plain && plain->is_string() && is_plain_safe(text) && text != "<<" && text != "=") {
    return std::string(text);
  }
  if (!is_single_quotable(text)) return double_quoted(text);
  return cat("'", replace_all(std::string(text), "'", "''"), "'");
}

/// A string that upstream's translation leaves alone, or text in Python's quotes for one that it
/// would not ("5", "none").
std::string translated_string_text(const std::string& text) {
  if (same_value(translate_text(text), Node::string(text))) return string_text(text);
  std::string literal = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') literal.push_back('\\');
    if (c == '\n') {
      literal += "\\n";
    } else {
      literal.push_back(c);
    }
  }
  return string_text(literal + "\"");
}

std::string float_text(double value) {
  const std::string text = shortest_repr(value);
  if (text == "inf") return ".inf";
  if (text == "-inf") return "-.inf";
  if (text == "nan") return ".nan";
  const size_t exponent = text.find('e');
  if (exponent != std::string::npos && text.find('.') == std::string::npos) {
    return cat(text.substr(0, exponent), ".0", text.substr(exponent));
  }
  return text;
}

bool is_name_key(std::string_view key) {
  return key == "_target_" || key.ends_with("_fn");
}

/// A value that was made by the program, or is canonical whatever was written.
std::string value_text(const Node& node) {
  switch (node.kind()) {
    case NodeKind::kNull:
      return "null";
    case NodeKind::kBool:
      return *node.bool_value() ? "true" : "false";
    case NodeKind::kInt:
      if (node.int_value()) return cat(*node.int_value());
      return node.raw_text().empty() ? float_text(*node.number()) : node.raw_text();
    case NodeKind::kFloat:
      return float_text(*node.number());
    case NodeKind::kString:
      return is_name_key(node.key()) ? string_text(*node.string_value())
                                     : translated_string_text(*node.string_value());
    case NodeKind::kDate:
    case NodeKind::kForeign:
      return *node.string_value();
    case NodeKind::kSequence:
      return "[]";
    case NodeKind::kMapping:
      return "{}";
  }
  return "null";
}

class Printer {
 public:
  explicit Printer(const PrintOptions& options) : options_(options) {}

  std::string print(const Node& root) {
    if (is_block(root)) {
      print_children(root, 0, false);
    } else {
      out_ = cat(scalar(root, false), "\n");
    }
    return std::move(out_);
  }

 private:
  static bool is_block(const Node& node) {
    return node.style() == ScalarStyle::kNone && !node.children().empty();
  }

  /// What was read is written as it was, so that a field that wants the text finds it again.
  std::string scalar(const Node& node, bool is_secret) const {
    const bool is_value = node.is_null() || node.kind() == NodeKind::kBool;
    if (is_secret && !is_value && !node.is_interpolated()) return kHidden;
    // A value that itself looks like a placeholder cannot be written: readers would replace it.
    const bool shows_value = options_.has_values && node.is_interpolated() && !is_secret;
    if (shows_value && node.text().find('$') == std::string::npos) return string_text(node.text());
    const bool is_null = node.is_null() && !node.is_interpolated();
    if (node.style() == ScalarStyle::kNone || is_null) return value_text(node);
    const std::optional<Node> plain = resolve_plain_scalar(node.raw_text());
    const bool is_typed = plain && !plain->is_string();
    const bool was_plain = node.style() == ScalarStyle::kPlain;
    const bool may_be_plain = node.style() == ScalarStyle::kArgument && is_typed &&
                              !node.is_interpolated() && same_value(*plain, node);
    if ((was_plain && is_typed) || may_be_plain) return node.raw_text();
    return string_text(node.raw_text());
  }

  /// Entries of a block; `is_inline` says that the first stands on a line already begun ("- ").
  void print_children(const Node& node, size_t indent, bool is_secret, bool is_inline = false) {
    for (size_t i = 0; i < node.size(); ++i) {
      const Node& child = node.children()[i];
      if (i > 0 || !is_inline) out_ += std::string(indent, ' ');
      if (node.is_sequence()) {
        out_ += "-";
        print_value(child, indent, is_secret, true);
      } else {
        const bool hides = is_secret || (options_.has_secrets_hidden && is_secret_key(child.key()));
        print_key(string_text(child.key()), indent);
        print_value(child, indent, hides, false);
      }
    }
  }

  /// Long keys take YAML's explicit form, as PyYAML writes them.
  void print_key(const std::string& key, size_t indent) {
    constexpr size_t kLongestSimpleKey = 128;
    if (key.size() <= kLongestSimpleKey) {
      out_ += cat(key, ":");
    } else {
      out_ += cat("? ", key, "\n", std::string(indent, ' '), ":");
    }
  }

  void print_value(const Node& node, size_t indent, bool is_secret, bool is_element) {
    if (!is_block(node)) {
      out_ += cat(" ", scalar(node, is_secret), "\n");
      return;
    }
    if (is_element) {  // PyYAML puts the first entry behind the dash
      out_ += " ";
      print_children(node, indent + 2, is_secret, true);
      return;
    }
    out_ += "\n";
    print_children(node, node.is_sequence() ? indent : indent + 2, is_secret);
  }

  PrintOptions options_;
  std::string out_;
};

}  // namespace

bool is_secret_key(std::string_view key) {
  const std::vector<std::string> words = words_of(key);
  const auto names_special_token = [&](size_t i) {
    return i > 0 && is_in(words[i - 1], {"bos", "eos", "pad", "unk", "sep", "cls", "mask", "turn",
                                         "image", "video", "audio", "special", "stop"});
  };
  for (size_t i = 0; i < words.size(); ++i) {
    if (is_in(words[i], {"password", "secret", "apikey", "authorization", "auth"})) return true;
    const bool ends_key = i + 1 == words.size();
    if (words[i] == "token" && ends_key && !names_special_token(i)) return true;
    if (words[i] == "api" && !ends_key && words[i + 1] == "key") return true;
  }
  return false;
}

std::string to_yaml(const Node& node, const PrintOptions& options) {
  return Printer(options).print(node);
}

}  // namespace automodel::config
