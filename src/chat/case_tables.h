#pragma once

#include <span>

namespace automodel::chat::tables {

/// Code points [first, last], U+0080 and above.
struct CharacterRange {
  char32_t first;
  char32_t last;
};

/// What a character becomes: up to three code points, the rest 0.
struct CaseMapping {
  char32_t from;
  char32_t to[3];
};

// As str.isalpha() and its like of Python class single characters; ascending.
extern const std::span<const CharacterRange> kAlpha;
extern const std::span<const CharacterRange> kDecimal;
extern const std::span<const CharacterRange> kDigit;
extern const std::span<const CharacterRange> kNumeric;
extern const std::span<const CharacterRange> kSpace;
extern const std::span<const CharacterRange> kPrintable;
extern const std::span<const CharacterRange> kLower;
extern const std::span<const CharacterRange> kUpper;
extern const std::span<const CharacterRange> kTitle;
extern const std::span<const CharacterRange> kCaseIgnorable;

// As str.lower() and its like change single characters; ascending, without those that stay.
extern const std::span<const CaseMapping> kToLower;
extern const std::span<const CaseMapping> kToUpper;
extern const std::span<const CaseMapping> kToTitle;
extern const std::span<const CaseMapping> kFold;

}  // namespace automodel::chat::tables
