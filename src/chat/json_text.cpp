#include "chat/json_text.h"

#include <algorithm>
#include <cmath>

#include "chat/characters.h"
#include "core/text.h"

namespace automodel::chat {

namespace {

class Writer final {
 public:
  Writer(Run& run, const JsonFormat& format) : run_(run), format_(format) {}

  void write(const Value& value) {
    run_.step();
    run_.check_output(out_);
    switch (value.kind) {
      case Kind::kNone:
        out_ += "null";
        return;
      case Kind::kBool:
        out_ += value.boolean ? "true" : "false";
        return;
      case Kind::kInt:
        out_ += std::to_string(value.integer);
        return;
      case Kind::kFloat:
        write_float(value.real);
        return;
      case Kind::kString:
        write_text(value.text->bytes);
        return;
      case Kind::kList:
      case Kind::kTuple:
        return write_list(*value.list);
      case Kind::kDict:
        return write_dict(*value.dict);
      default:
        throw Failure(cat("Object of type ", type_name(value), " is not JSON serializable"));
    }
  }

  std::string take() { return std::move(out_); }

 private:
  void write_float(double value) {
    out_ += std::isnan(value)   ? "NaN"
            : std::isinf(value) ? (value > 0 ? "Infinity" : "-Infinity")
                                : float_repr(value);
  }

  void write_escape(char32_t unit) {
    constexpr const char* kHex = "0123456789abcdef";
    out_ += "\\u";
    for (int shift = 12; shift >= 0; shift -= 4) out_.push_back(kHex[(unit >> shift) & 15]);
  }

  void write_text(std::string_view text) {
    run_.step_bytes(text.size());
    out_.push_back('"');
    for (size_t at = 0; at < text.size();) {
      const size_t begin = at;
      const char32_t c = next_code_point(text, at);
      constexpr std::string_view kPlain = "\"\\\b\f\n\r\t";
      constexpr std::string_view kLetters = "\"\\bfnrt";
      const size_t known = c < 0x80 ? kPlain.find(static_cast<char>(c)) : std::string_view::npos;
      if (known != std::string_view::npos) {
        out_.push_back('\\');
        out_.push_back(kLetters[known]);
      } else if (c < 0x20 || (format_.is_ascii && c >= 0x7F && c < 0x10000)) {
        write_escape(c);
      } else if (format_.is_ascii && c >= 0x10000) {
        write_escape(0xD800 + ((c - 0x10000) >> 10));
        write_escape(0xDC00 + ((c - 0x10000) & 0x3FF));
      } else {
        out_ += text.substr(begin, at - begin);
      }
    }
    out_.push_back('"');
  }

  void new_line() {
    if (!format_.indent) return;
    out_.push_back('\n');
    for (int i = 0; i < depth_; ++i) out_ += *format_.indent;
  }

  void write_list(const List& list) {
    if (list.size == 0) {
      out_ += "[]";
      return;
    }
    const Run::Depth depth(run_);
    ++depth_;
    out_.push_back('[');
    for (size_t i = 0; i < list.size; ++i) {
      if (i > 0) out_ += format_.item_separator;
      new_line();
      write(list.items[i]);
    }
    --depth_;
    new_line();
    out_.push_back(']');
  }

  void write_key(const Value& key) {
    if (key.is_string()) return write_text(key.text->bytes);
    if (!key.is_none() && !key.is_number()) {
      throw Failure(cat("keys must be str, int, float, bool or None, not ", type_name(key)));
    }
    out_.push_back('"');
    write(key);
    out_.push_back('"');
  }

  void write_dict(const Dict& dict) {
    if (dict.size == 0) {
      out_ += "{}";
      return;
    }
    const Run::Depth depth(run_);
    std::vector<Dict::Entry> entries(dict.entries, dict.entries + dict.size);
    if (format_.sorts_keys) {
      std::stable_sort(
          entries.begin(), entries.end(),
          [&](const Dict::Entry& a, const Dict::Entry& b) { return is_less(run_, a.key, b.key); });
    }
    ++depth_;
    out_.push_back('{');
    for (size_t i = 0; i < entries.size(); ++i) {
      if (i > 0) out_ += format_.item_separator;
      new_line();
      write_key(entries[i].key);
      out_ += format_.key_separator;
      write(entries[i].value);
    }
    --depth_;
    new_line();
    out_.push_back('}');
  }

  Run& run_;
  const JsonFormat& format_;
  std::string out_;
  int depth_ = 0;
};

}  // namespace

std::string to_json(Run& run, const Value& value, const JsonFormat& format) {
  Writer writer(run, format);
  writer.write(value);
  return writer.take();
}

}  // namespace automodel::chat
