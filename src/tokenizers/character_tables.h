#pragma once

#include <span>

/// Characters as the reference implementation classes them, ascending. Its parts follow different
/// versions of Unicode, and a file's ids depend on them; scripts/make_character_tables.py asks it.
namespace automodel::tokenizers::tables {

struct CharacterRange {
  char32_t first;
  char32_t last;
};

extern const std::span<const CharacterRange> kPunctuation;     ///< beyond ASCII too
extern const std::span<const CharacterRange> kNumeric;         ///< of Digits
extern const std::span<const CharacterRange> kWord;            ///< \w of Whitespace
extern const std::span<const CharacterRange> kCombiningMark;   ///< of StripAccents
extern const std::span<const CharacterRange> kNonspacingMark;  ///< of BertNormalizer
extern const std::span<const CharacterRange> kOther;           ///< Cc, Cf and Co of BertNormalizer
/// Decompose, compose or have a combining class today, but not in the reference's normal forms.
extern const std::span<const CharacterRange> kUnknownToNormalForms;

struct StandIn {
  char32_t first;
  char32_t last;
  char32_t other;
};

/// Characters newer than Unicode 14, and for all of a range one older character like them.
extern const std::span<const StandIn> kNewerCharacters;
/// Capitals newer than Unicode 14, and the lower case of a range's first.
extern const std::span<const StandIn> kNewerLowerCase;

/// The part of a character in extended grapheme clusters. Those of Hangul syllables follow from
/// their numbers.
enum class ClusterClass : unsigned char {
  kOther,
  kControl,
  kPrepend,
  kExtend,
  kLinker,      ///< an Extend that links consonants
  kExtendOnly,  ///< an Extend that parts a linker from the consonants beside it
  kJoiner,
  kSpacing,
  kConsonant,
  kPictographic,
  kLead,
  kVowel,
  kTail,
};
struct ClusterRange {
  char32_t first;
  char32_t last;
  ClusterClass value;
};
/// The classes of Unicode 17, as far as clusters of fewer than 6 bytes depend on it.
extern const std::span<const ClusterRange> kClusterClasses;

}  // namespace automodel::tokenizers::tables
