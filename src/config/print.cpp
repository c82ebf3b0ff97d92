#include "config/print.h"

#include <yaml-cpp/emitter.h>
#include <yaml-cpp/emittermanip.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <vector>

#include "config/scalar.h"
#include "config/yaml_guard.h"
#include "core/error.h"
#include "core/text.h"
#include "core/utf8.h"

namespace automodel::config {

namespace {

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

/// A code point that Unicode keeps free; yaml-cpp's emitter writes U+FFFD for it.
bool is_noncharacter(uint32_t code) {
  return (code & 0xFFFE) == 0xFFFE || (code >= 0xFDD0 && code <= 0xFDEF);
}

/// True when PyYAML and yaml-cpp read the character alike without an escape and yaml-cpp writes it.
bool is_quotable(uint32_t code) {
  const bool is_line_end = code == '\n' || code == 0x85 || code == 0x2028 || code == 0x2029;
  const bool is_mark = code == '\t' || code == 0xFEFF;
  return is_printable(code) && !is_line_end && !is_mark && !is_noncharacter(code);
}

bool is_quotable(std::string_view text) {
  uint32_t code = 0;
  for (size_t at = 0; at < text.size();) {
    const size_t length = decode_utf8(text, at, code);
    if (length == 0 || !is_quotable(code)) return false;
    at += length;
  }
  return true;
}

/// The text in double quotes, what is not quotable as escapes; U+FFFD stands for a byte that is not
/// UTF-8, which a value of the environment may hold.
std::string double_quoted(std::string_view text) {
  std::string quoted = "\"";
  uint32_t code = 0;
  for (size_t at = 0; at < text.size();) {
    const size_t length = decode_utf8(text, at, code);
    if (length == 0) code = 0xFFFD;
    if (code == '"' || code == '\\') quoted.push_back('\\');
    if (length != 0 && is_quotable(code)) {
      quoted.append(text.substr(at, length));
    } else if (code == '\n') {
      quoted += "\\n";
    } else {
      std::array<char, 11> escape{};
      const char* format = code <= 0xFF ? "\\x%02x" : code <= 0xFFFF ? "\\u%04x" : "\\U%08x";
      std::snprintf(escape.data(), escape.size(), format, code);
      quoted += escape.data();
    }
    at += std::max<size_t>(1, length);
  }
  return quoted + "\"";
}

/// Whether yaml-cpp would write the text without quotes.
bool is_plain(const std::string& text) {
  YAML::Emitter out;
  out << text;
  return out.c_str() == text;
}

/// A text that YAML reads back as that string.
void emit_string(YAML::Emitter& out, const std::string& text) {
  const std::optional<Node> plain = resolve_plain_scalar(text);
  const bool is_marker = text.starts_with("---") || text.starts_with("...");
  const bool is_string = plain && plain->is_string() && text != "<<" && text != "=" && !is_marker;
  if (!is_quotable(text)) {
    // The emitter's way to write a scalar's characters as they stand, whatever its name says.
    out.WriteIntegralType(double_quoted(text));
    return;
  }
  if (!is_string || !is_plain(text)) {
    out << YAML::SingleQuoted;
  }
  out << text;
}

/// A string that upstream's translation leaves alone, or text in Python's quotes for one that it
/// would not ("5", "none").
std::string translatable(const std::string& text) {
  if (same_value(translate_text(text), Node::string(text))) return text;
  std::string literal = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') literal.push_back('\\');
    if (c == '\n') {
      literal += "\\n";
    } else {
      literal.push_back(c);
    }
  }
  return literal + "\"";
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
void emit_value(YAML::Emitter& out, const Node& node) {
  switch (node.kind()) {
    case NodeKind::kNull:
      out << YAML::LowerNull << YAML::Null;
      return;
    case NodeKind::kBool:
      out << *node.bool_value();
      return;
    case NodeKind::kInt:
      if (node.int_value()) {
        out << *node.int_value();
      } else {
        out << (node.raw_text().empty() ? float_text(*node.number()) : node.raw_text());
      }
      return;
    case NodeKind::kFloat:
      out << float_text(*node.number());
      return;
    case NodeKind::kString:
      emit_string(
          out, is_name_key(node.key()) ? *node.string_value() : translatable(*node.string_value()));
      return;
    case NodeKind::kDate:
    case NodeKind::kForeign:
      out << *node.string_value();
      return;
    case NodeKind::kSequence:
      out << YAML::Flow << YAML::BeginSeq << YAML::EndSeq;
      return;
    case NodeKind::kMapping:
      out << YAML::Flow << YAML::BeginMap << YAML::EndMap;
      return;
  }
}

/// A literal of an argument is written as it was typed, unless a secret in it must be hidden.
bool is_block(const Node& node, const PrintOptions& options) {
  if (node.children().empty()) return false;
  return node.style() == ScalarStyle::kNone || (options.has_secrets_hidden && holds_secret(node));
}

/// What was read is written as it was, so that a field that wants the text finds it again.
void emit_scalar(YAML::Emitter& out, const Node& node, const PrintOptions& options,
                 bool is_secret) {
  const bool is_value = node.is_null() || node.kind() == NodeKind::kBool;
  if (is_secret && !is_value && !node.is_interpolated()) {
    out << YAML::SingleQuoted << kHiddenText;
    return;
  }
  // A value that itself looks like a placeholder cannot be written: readers would replace it.
  const bool shows_value = options.has_values && node.is_interpolated() && !is_secret;
  if (shows_value && node.text().find('$') == std::string::npos) {
    return emit_string(out, node.text());
  }
  const bool is_null = node.is_null() && !node.is_interpolated();
  if (node.style() == ScalarStyle::kNone || is_null) return emit_value(out, node);
  const std::optional<Node> plain = resolve_plain_scalar(node.raw_text());
  const bool is_typed = plain && !plain->is_string();
  const bool was_plain = node.style() == ScalarStyle::kPlain;
  const bool may_be_plain = node.style() == ScalarStyle::kArgument && is_typed &&
                            !node.is_interpolated() && same_value(*plain, node);
  if ((was_plain && is_typed) || may_be_plain) {
    out << node.raw_text();
  } else {
    emit_string(out, node.raw_text());
  }
}

void emit(YAML::Emitter& out, const Node& node, const PrintOptions& options, bool is_secret) {
  if (!is_block(node, options)) return emit_scalar(out, node, options, is_secret);
  if (node.style() != ScalarStyle::kNone && !options.has_values) {
    // The literal without the values of its placeholders.
    return emit(out, translate_text(node.raw_text()), options, is_secret);
  }
  if (node.is_sequence()) {
    out << YAML::BeginSeq;
    for (const Node& child : node.children()) emit(out, child, options, is_secret);
    out << YAML::EndSeq;
    return;
  }
  constexpr size_t kLongestSimpleKey = 128;  // PyYAML's
  out << YAML::BeginMap;
  for (const Node& child : node.children()) {
    if (child.key().size() > kLongestSimpleKey) out << YAML::LongKey;
    out << YAML::Key;
    emit_string(out, child.key());
    out << YAML::Value;
    emit(out, child, options,
         is_secret || (options.has_secrets_hidden && is_secret_key(child.key())));
  }
  out << YAML::EndMap;
}

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

bool holds_secret(const Node& node) {
  return std::ranges::any_of(node.children(), [](const Node& child) {
    return is_secret_key(child.key()) || holds_secret(child);
  });
}

std::string to_yaml(const Node& node, const PrintOptions& options) {
  YAML::Emitter out;
  emit(out, node, options, false);
  AM_CHECK(out.good(), out.GetLastError());
  return cat(out.c_str(), "\n");
}

}  // namespace automodel::config
