#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

#include "core/utf8.h"

namespace automodel::tokenizers {

/// Position of the first byte that is not part of valid UTF-8; npos when all of it is valid.
size_t find_invalid_utf8(std::string_view text);

/// `bytes` with every maximal invalid sequence replaced by U+FFFD, as Rust's from_utf8_lossy.
std::string lossy_utf8(std::string_view bytes);

bool is_ascii(std::string_view text);

// Character classes as the reference implementation's parts have them, each of its own version of
// Unicode (character_tables.h).
bool is_whitespace(char32_t c);        ///< White_Space
bool is_numeric(char32_t c);           ///< N, Unicode 17
bool is_punctuation(char32_t c);       ///< P, Unicode 8, or one of ASCII's 32 punctuation marks
bool is_word_character(char32_t c);    ///< \w: Alphabetic, M, Nd, Pc, Join_Control; Unicode 16
bool is_combining_mark(char32_t c);    ///< M, Unicode 9
bool is_nonspacing_mark(char32_t c);   ///< Mn, Unicode 8
bool is_control_or_other(char32_t c);  ///< Cc, Cf, Co, Unicode 8

/// For a character that Unicode 14 lacks and Unicode 16 has: one of Unicode 14 with the same
/// category and the same number of bytes, for regular expressions.
std::optional<char32_t> older_stand_in(char32_t c);

enum class NormalForm { kNfc, kNfd, kNfkc, kNfkd };
/// The text in a normal form of Unicode 9: what is newer stays as it is.
std::string normal_form(std::string_view text, NormalForm form);

/// Every character in lower case by itself (no final sigma), Unicode 17.
std::string lower_case(std::string_view text);

/// Writes the characters that stand for a text's bytes in byte-level vocabularies, as UTF-8, to
/// where there is room for two bytes of each; where they end.
char* write_byte_level(char* out, std::string_view text);
/// The byte a byte-level character stands for; -1 when it stands for none.
int byte_of_character(char32_t c);

}  // namespace automodel::tokenizers
