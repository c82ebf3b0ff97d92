#include "tokenizers/regex.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "core/error.h"
#include "core/text.h"
#include "tokenizers/unicode.h"

namespace automodel::tokenizers {

struct Regex::Program {
  std::string pattern;
  pcre2_code* code = nullptr;
  bool is_jitted = false;
  bool takes_words = false;

  ~Program() { pcre2_code_free(code); }
};

namespace {

bool is_ascii_letter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

struct FreeMatchData {
  void operator()(pcre2_match_data* data) const { pcre2_match_data_free(data); }
};

std::string pcre_message(int error) {
  PCRE2_UCHAR text[160] = {};
  pcre2_get_error_message(error, text, sizeof(text));
  return reinterpret_cast<const char*>(text);
}

/// Whether the pattern's match at an ASCII letter, or at a space before one, is the run of letters
/// that begins there, with that space. True of the patterns of GPT-2, Llama 3, Qwen and their kin.
bool takes_words(std::string_view pattern) {
  // Alternatives that match at no such place, and those that match such a run.
  constexpr std::string_view kOthers[] = {
      "(?i:'s|'t|'re|'ve|'m|'ll|'d)|",
      "'(?:[sdmt]|ll|ve|re)|",
      "'s|",
      "'t|",
      "'re|",
      "'ve|",
      "'m|",
      "'ll|",
      "'d|",
      "\\p{N}|",
      "\\p{N}{1,3}|",
  };
  constexpr std::string_view kWords[] = {" ?\\p{L}+", "[^\\r\\n\\p{L}\\p{N}]?\\p{L}+"};
  for (bool goes_on = true; goes_on;) {
    goes_on = false;
    for (const std::string_view other : kOthers) {
      if (!pattern.starts_with(other)) continue;
      pattern.remove_prefix(other.size());
      goes_on = true;
    }
  }
  return std::ranges::any_of(kWords, [&](std::string_view word) {
    return pattern.starts_with(word) &&
           (pattern.size() == word.size() || pattern[word.size()] == '|');
  });
}

/// Where the run of ASCII letters ends that begins at `start`, or behind a space there; `start`
/// where there is none, or what follows is not ASCII and may be a letter too.
size_t end_of_word(std::string_view text, size_t start) {
  size_t at = start + (start < text.size() && text[start] == ' ' ? 1 : 0);
  const size_t begin = at;
  while (at < text.size() && is_ascii_letter(text[at])) ++at;
  if (at == begin) return start;
  return at < text.size() && static_cast<unsigned char>(text[at]) >= 0x80 ? start : at;
}

/// The text with every character that PCRE2's Unicode may lack as an older one like it, of the same
/// size. Nothing when there is none.
std::optional<std::string> with_older_characters(std::string_view text) {
  if (is_ascii(text)) return std::nullopt;
  std::optional<std::string> result;
  for (size_t i = 0; i < text.size();) {
    const size_t at = i;
    const std::optional<char32_t> older = older_stand_in(next_code_point(text, i));
    if (!older) continue;
    if (!result) result = text;
    std::string bytes;
    append_utf8(bytes, *older);
    result->replace(at, i - at, bytes);
  }
  return result;
}

}  // namespace

Regex::Regex() = default;
Regex::Regex(Regex&& other) noexcept = default;
Regex& Regex::operator=(Regex&& other) noexcept = default;
Regex::~Regex() = default;

Regex Regex::from_pattern(std::string_view pattern, std::string_view where) {
  Regex regex;
  regex.program_ = std::make_unique<Program>();
  regex.program_->pattern = pattern;
  const auto refuse = [&](const std::string& reason) {
    return InputError(cat(where, ": cannot use the regular expression '", pattern, "': ", reason));
  };
  std::string translated;
  try {
    translated = translate_oniguruma(pattern);
  } catch (const InputError& error) {
    throw refuse(error.what());
  }
  int error = 0;
  PCRE2_SIZE offset = 0;
  // Oniguruma's ^ and $ are those of lines; it knows no other line end than \n.
  const uint32_t options = PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C;
  pcre2_compile_context* context = pcre2_compile_context_create(nullptr);
  pcre2_set_newline(context, PCRE2_NEWLINE_LF);
  regex.program_->code = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(translated.data()),
                                       translated.size(), options, &error, &offset, context);
  pcre2_compile_context_free(context);
  if (regex.program_->code == nullptr) {
    throw refuse(cat(pcre_message(error), " at byte ", offset, " of '", translated, "'"));
  }
  // Without the JIT (not built in, or no executable memory) matching is slower, not different.
  pcre2_jit_compile(regex.program_->code, PCRE2_JIT_COMPLETE);
  size_t jit_size = 0;
  pcre2_pattern_info(regex.program_->code, PCRE2_INFO_JITSIZE, &jit_size);
  regex.program_->is_jitted = jit_size > 0;
  regex.program_->takes_words = takes_words(pattern);
  return regex;
}

Regex Regex::from_literal(std::string_view text, std::string_view where) {
  if (text.empty()) return from_pattern("", where);
  Regex regex;
  regex.literal_ = text;
  return regex;
}

void Regex::find_all(std::string_view text, std::vector<Match>& out) const {
  if (text.empty()) {
    out.push_back({0, 0, false});
    return;
  }
  size_t previous = 0;
  const auto add = [&](size_t begin, size_t end) {
    if (previous != begin) out.push_back({previous, begin, false});
    out.push_back({begin, end, true});
    previous = end;
  };
  if (program_ == nullptr) {
    for (size_t at = text.find(literal_); at != std::string_view::npos;
         at = text.find(literal_, previous)) {
      add(at, at + literal_.size());
    }
  } else {
    const std::unique_ptr<pcre2_match_data, FreeMatchData> data(
        pcre2_match_data_create(1, nullptr));
    AM_CHECK(data != nullptr);
    const std::optional<std::string> replaced = with_older_characters(text);
    if (replaced) text = *replaced;
    size_t start = 0;
    size_t last_match_end = std::string_view::npos;
    while (start <= text.size()) {
      if (program_->takes_words) {
        if (const size_t end = end_of_word(text, start); end > start) {
          add(start, end);
          start = end;
          last_match_end = end;
          continue;
        }
      }
      const auto* const subject = reinterpret_cast<PCRE2_SPTR>(text.data());
      int status = PCRE2_ERROR_JIT_STACKLIMIT;  // what the JIT leaves, the interpreter does
      if (program_->is_jitted) {
        status =
            pcre2_jit_match(program_->code, subject, text.size(), start, 0, data.get(), nullptr);
      }
      if (status == PCRE2_ERROR_JIT_STACKLIMIT) {
        status = pcre2_match(program_->code, subject, text.size(), start,
                             PCRE2_NO_JIT | PCRE2_NO_UTF_CHECK, data.get(), nullptr);
      }
      if (status == PCRE2_ERROR_NOMATCH) break;
      if (status < 0) {
        throw InputError(cat("the tokenizer's regular expression '", program_->pattern,
                             "' fails on a text of ", text.size(),
                             " bytes: ", pcre_message(status)));
      }
      const PCRE2_SIZE* ends = pcre2_get_ovector_pointer(data.get());
      const size_t begin = ends[0];
      const size_t end = ends[1];
      // As Oniguruma's iterator: no empty match right behind a match, and \K is no reason to go
      // back.
      if (end < begin || begin < start || (begin == end && begin == last_match_end)) {
        if (start >= text.size()) break;
        next_code_point(text, start);
        continue;
      }
      start = end;
      last_match_end = end;
      add(begin, end);
    }
  }
  if (previous != text.size()) out.push_back({previous, text.size(), false});
}

}  // namespace automodel::tokenizers
