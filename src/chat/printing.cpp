#include <array>
#include <charconv>
#include <cmath>

#include "chat/ast.h"
#include "chat/characters.h"
#include "chat/interpreter.h"
#include "chat/iteration.h"
#include "chat/run.h"
#include "chat/value.h"
#include "core/text.h"

namespace automodel::chat {

std::string float_repr(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
  std::array<char, 64> buffer;
  const auto [end, error] = std::to_chars(buffer.data(), buffer.data() + buffer.size(), value,
                                          std::chars_format::scientific);
  std::string digits;
  const std::string text(buffer.data(), end);
  const size_t e = text.find('e');
  const int exponent = std::stoi(text.substr(e + 1));
  const std::string sign = text[0] == '-' ? "-" : "";
  for (const char c : text.substr(0, e)) {
    if (c >= '0' && c <= '9') digits.push_back(c);
  }
  const int count = static_cast<int>(digits.size());
  if (exponent < -4 || exponent >= 16) {
    std::string out = sign + digits.substr(0, 1);
    if (count > 1) out += "." + digits.substr(1);
    const int size = std::abs(exponent);
    return cat(out, exponent < 0 ? "e-" : "e+", size < 10 ? "0" : "", size);
  }
  if (exponent < 0) {
    return sign + "0." + std::string(static_cast<size_t>(-exponent - 1), '0') + digits;
  }
  if (count <= exponent + 1) {
    return sign + digits + std::string(static_cast<size_t>(exponent + 1 - count), '0') + ".0";
  }
  const auto whole = static_cast<size_t>(exponent + 1);
  return sign + digits.substr(0, whole) + "." + digits.substr(whole);
}

void append_repr(std::string_view text, std::string& out) {
  constexpr const char* kHex = "0123456789abcdef";
  const bool has_single = text.find('\'') != std::string_view::npos;
  const char quote = has_single && text.find('"') == std::string_view::npos ? '"' : '\'';
  out.push_back(quote);
  for (size_t at = 0; at < text.size();) {
    const size_t begin = at;
    const char32_t c = next_code_point(text, at);
    if (c == static_cast<char32_t>(quote) || c == '\\') {
      out.push_back('\\');
      out.push_back(static_cast<char>(c));
    } else if (c == '\n') {
      out += "\\n";
    } else if (c == '\r') {
      out += "\\r";
    } else if (c == '\t') {
      out += "\\t";
    } else if (is_printable(c)) {
      out += text.substr(begin, at - begin);
    } else {
      const int digits = c < 0x100 ? 2 : c < 0x10000 ? 4 : 8;
      out += c < 0x100 ? "\\x" : c < 0x10000 ? "\\u" : "\\U";
      for (int shift = (digits - 1) * 4; shift >= 0; shift -= 4)
        out.push_back(kHex[(c >> shift) & 15]);
    }
  }
  out.push_back(quote);
}

namespace {

void append_items(Run& run, const List& list, const char* open, const char* close,
                  std::string& out) {
  const Run::Depth depth(run);
  out += open;
  for (size_t i = 0; i < list.size; ++i) {
    if (i > 0) out += ", ";
    append_repr(run, list.items[i], out);
  }
  out += close;
}

void append_entries(Run& run, const Dict& dict, std::string& out) {
  const Run::Depth depth(run);
  out += "{";
  for (size_t i = 0; i < dict.size; ++i) {
    if (i > 0) out += ", ";
    append_repr(run, dict.entries[i].key, out);
    out += ": ";
    append_repr(run, dict.entries[i].value, out);
  }
  out += "}";
}

[[noreturn]] void fail_address(const Value& value) {
  throw Failure(cat("a ", type_name(value),
                    " object prints its address in Python, which differs "
                    "from run to run; did the template mean to call it, "
                    "or to make a list of it?"));
}

}  // namespace

void append_repr(Run& run, const Value& value, std::string& out) {
  run.step();
  run.check_output(out);
  switch (value.kind) {
    case Kind::kMissing:
    case Kind::kUndefined:
      out += "Undefined";
      return;
    case Kind::kNone:
      out += "None";
      return;
    case Kind::kBool:
      out += value.boolean ? "True" : "False";
      return;
    case Kind::kInt:
      out += std::to_string(value.integer);
      return;
    case Kind::kFloat:
      out += float_repr(value.real);
      return;
    case Kind::kString:
      run.step_bytes(value.text->bytes.size());
      if (value.text->is_markup) out += "Markup(";
      append_repr(value.text->bytes, out);
      if (value.text->is_markup) out += ")";
      return;
    case Kind::kList:
      return append_items(run, *value.list, "[", "]", out);
    case Kind::kTuple:
      return append_items(run, *value.list, "(", value.list->size == 1 ? ",)" : ")", out);
    case Kind::kDict:
      return append_entries(run, *value.dict, out);
    case Kind::kNamespace:
      out += "<Namespace ";
      append_entries(run, *value.dict, out);
      out += ">";
      return;
    case Kind::kDictView: {
      out += type_name(value);
      append_items(run, *to_list(run, value).list, "([", "])", out);
      return;
    }
    case Kind::kRange: {
      const Range& range = *value.range;
      out += cat("range(", range.start, ", ", range.stop);
      if (range.step != 1) out += cat(", ", range.step);
      out += ")";
      return;
    }
    case Kind::kLoop:
      out += cat("<LoopContext ", value.loop->index0 + 1, "/", loop_length(run, *value.loop), ">");
      return;
    case Kind::kMacro: {
      const Statement& node = *value.macro->statement;
      out += node.tag == Tag::kMacro ? cat("<Macro '", node.name, "'>") : "<Macro anonymous>";
      return;
    }
    default:
      fail_address(value);
  }
}

void append_str(Run& run, const Value& value, std::string& out) {
  if (value.is_string()) {
    out += value.text->bytes;
  } else if (!value.is_undefined() && !value.is_missing()) {
    append_repr(run, value, out);
  }
}

std::string repr(Run& run, const Value& value) {
  std::string out;
  append_repr(run, value, out);
  return out;
}

}  // namespace automodel::chat
