#pragma once

#include <string>
#include <string_view>

namespace automodel::tokenizers {

// Bodies of PCRE2 character classes that are Oniguruma's sets.
inline constexpr const char* kSpace =
    "\\t-\\r \\x{85}\\x{a0}\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{2029}\\x{202f}\\x{205f}"
    "\\x{3000}";
inline constexpr const char* kNotSpace =
    "\\x{0}-\\x{8}\\x{e}-\\x{1f}\\x{21}-\\x{84}\\x{86}-\\x{9f}\\x{a1}-\\x{167f}\\x{1681}-\\x{1fff}"
    "\\x{200b}-\\x{2027}\\x{202a}-\\x{202e}\\x{2030}-\\x{205e}\\x{2060}-\\x{2fff}\\x{3001}-"
    "\\x{10ffff}";
inline constexpr const char* kWord = "\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}";
// Outside of classes, Oniguruma counts Latin-1's superscripts and fractions as word characters.
inline constexpr const char* kLatinNumbers = "\\x{b2}\\x{b3}\\x{b9}\\x{bc}-\\x{be}";
inline constexpr const char* kHex = "0-9a-fA-F";

/// The class body of a POSIX bracket's name; "" when there is none of that name.
std::string posix_class_body(std::string_view name);

/// The class body of \p{name}. A name that is not known is taken for a script's.
std::string property_body(std::string_view name);

}  // namespace automodel::tokenizers
