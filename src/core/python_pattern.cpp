#include "core/python_pattern.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <array>
#include <cctype>

#include "core/error.h"

namespace automodel {

namespace {

constexpr size_t kLongest = 10000;  // bytes of an expression; PCRE2 bounds how deep groups nest

/// The letters that mean the same behind a backslash in Python and PCRE2. PCRE2 knows others, of
/// which Python refuses most.
constexpr std::string_view kEscapes = "AbBdDsSwWZafnrtx";

std::string text_of(int error) {
  std::array<PCRE2_UCHAR, 256> text{};
  pcre2_get_error_message(error, text.data(), text.size());
  return reinterpret_cast<const char*>(text.data());
}

/// Whether "{,digits}" begins there. PCRE2 takes it for plain text before 10.43.
bool is_open_count(std::string_view expression, size_t begin) {
  if (!expression.substr(begin).starts_with("{,")) return false;
  size_t end = begin + 2;
  while (end < expression.size() && std::isdigit(static_cast<unsigned char>(expression[end]))) {
    ++end;
  }
  return end < expression.size() && expression[end] == '}';
}

/// Python's expression as PCRE2 writes it.
std::string translated(std::string_view expression) {
  std::string out;
  bool is_in_class = false;
  for (size_t i = 0; i < expression.size(); ++i) {
    const char c = expression[i];
    if (c == '\\' && i + 1 < expression.size()) {
      const char next = expression[++i];
      const bool is_letter = std::isalpha(static_cast<unsigned char>(next)) != 0;
      if (is_letter && kEscapes.find(next) == std::string_view::npos) {
        throw UserError(cat("\\", next, " is not understood"));
      }
      out += {c, next};
      continue;
    }
    if (!is_in_class && is_open_count(expression, i)) {
      out += "{0";
      continue;
    }
    if (c == '[' && !is_in_class) {
      is_in_class = true;
      out += c;
      // A bracket that comes first is a character.
      if (expression.substr(i + 1).starts_with("^")) out += expression[++i];
      if (expression.substr(i + 1).starts_with("]")) {
        out += "\\]";
        ++i;
      }
      continue;
    }
    if (c == '[') out += '\\';  // begins no class of POSIX's
    if (c == ']') is_in_class = false;
    out += c;
  }
  return out;
}

}  // namespace

struct PythonPattern::Program {
  pcre2_code* code = nullptr;

  Program() = default;
  ~Program() { pcre2_code_free(code); }
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;
};

PythonPattern::PythonPattern(std::string_view expression) {
  if (expression.size() > kLongest) {
    throw UserError(cat("it has ", expression.size(), " bytes, more than ", kLongest));
  }
  const std::string pattern = translated(expression);
  int error = 0;
  PCRE2_SIZE place = 0;
  const auto program = std::make_shared<Program>();
  program->code =
      pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(),
                    PCRE2_UTF | PCRE2_UCP | PCRE2_NEVER_BACKSLASH_C, &error, &place, nullptr);
  if (program->code == nullptr) throw UserError(text_of(error));
  program_ = program;
}

bool PythonPattern::is_in(std::string_view text) const {
  return matches(text, false);
}

bool PythonPattern::is_all_of(std::string_view text) const {
  return matches(text, true);
}

bool PythonPattern::matches(std::string_view text, bool is_whole) const {
  const std::unique_ptr<pcre2_match_data, decltype(&pcre2_match_data_free)> data(
      pcre2_match_data_create_from_pattern(program_->code, nullptr), &pcre2_match_data_free);
  const uint32_t options = is_whole ? PCRE2_ANCHORED | PCRE2_ENDANCHORED : 0;
  const int status = pcre2_match(program_->code, reinterpret_cast<PCRE2_SPTR>(text.data()),
                                 text.size(), 0, options, data.get(), nullptr);
  if (status == PCRE2_ERROR_NOMATCH) return false;
  if (status < 0) throw UserError(cat(text_of(status), " in '", text, "'"));
  return true;
}

}  // namespace automodel
