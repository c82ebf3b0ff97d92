#include "tokenizers/grapheme.h"

#include <algorithm>
#include <iterator>

#include "core/utf8.h"
#include "tokenizers/character_tables.h"

namespace automodel::tokenizers {

namespace {

using tables::ClusterClass;

constexpr char32_t kFirstSyllable = 0xAC00;
constexpr char32_t kLastSyllable = 0xD7A3;
constexpr char32_t kNumTails = 28;  // of a Hangul lead and vowel, none among them

ClusterClass cluster_class(char32_t c) {
  if (c < 0x20) return ClusterClass::kControl;
  if (c < 0x7F) return ClusterClass::kOther;
  if (c >= kFirstSyllable && c <= kLastSyllable) {
    return (c - kFirstSyllable) % kNumTails == 0 ? ClusterClass::kVowel : ClusterClass::kTail;
  }
  const auto next =
      std::ranges::upper_bound(tables::kClusterClasses, c, {}, &tables::ClusterRange::first);
  if (next == tables::kClusterClasses.begin()) return ClusterClass::kOther;
  const tables::ClusterRange& range = *std::prev(next);
  return c <= range.last ? range.value : ClusterClass::kOther;
}

bool is_extending(ClusterClass value) {
  return value == ClusterClass::kExtend || value == ClusterClass::kLinker ||
         value == ClusterClass::kExtendOnly;
}

/// Whether Hangul syllables go on; a whole syllable is a vowel or a tail to what follows, but a
/// beginning to what is before it.
bool joins_hangul(ClusterClass left, char32_t after, ClusterClass right) {
  const bool is_syllable = after >= kFirstSyllable && after <= kLastSyllable;
  if (left == ClusterClass::kLead) {
    return is_syllable || right == ClusterClass::kLead || right == ClusterClass::kVowel;
  }
  if (is_syllable) return false;
  if (right == ClusterClass::kVowel) return left == ClusterClass::kVowel;
  return right == ClusterClass::kTail &&
         (left == ClusterClass::kVowel || left == ClusterClass::kTail);
}

/// What of a cluster's beginning decides whether it goes on.
class Cluster final {
 public:
  explicit Cluster(char32_t first) : last_(first), class_(cluster_class(first)) { follow(); }

  /// Takes the character in where it belongs to the cluster.
  bool take(char32_t c) {
    const ClusterClass next = cluster_class(c);
    if (!joins(c, next)) return false;
    last_ = c;
    class_ = next;
    follow();
    return true;
  }

 private:
  enum class Conjunct { kNone, kConsonant, kLinked };
  enum class Emoji { kNone, kPictographic, kJoined };

  bool joins(char32_t c, ClusterClass next) const {
    if (last_ == '\r' && c == '\n') return true;
    if (class_ == ClusterClass::kControl || next == ClusterClass::kControl) return false;
    if (is_extending(next) || next == ClusterClass::kJoiner || next == ClusterClass::kSpacing) {
      return true;
    }
    if (class_ == ClusterClass::kPrepend) return true;
    if (next == ClusterClass::kConsonant && conjunct_ == Conjunct::kLinked) return true;
    if (next == ClusterClass::kPictographic && emoji_ == Emoji::kJoined) return true;
    return joins_hangul(class_, c, next);
  }

  void follow() {
    if (class_ == ClusterClass::kConsonant) {
      conjunct_ = Conjunct::kConsonant;
    } else if (class_ == ClusterClass::kLinker && conjunct_ != Conjunct::kNone) {
      conjunct_ = Conjunct::kLinked;
    } else if (class_ != ClusterClass::kExtend && class_ != ClusterClass::kJoiner) {
      conjunct_ = Conjunct::kNone;
    }
    if (class_ == ClusterClass::kPictographic) {
      emoji_ = Emoji::kPictographic;
    } else if (class_ == ClusterClass::kJoiner && emoji_ == Emoji::kPictographic) {
      emoji_ = Emoji::kJoined;
    } else if (!is_extending(class_) || emoji_ == Emoji::kJoined) {
      emoji_ = Emoji::kNone;
    }
  }

  char32_t last_;
  ClusterClass class_;
  Conjunct conjunct_ = Conjunct::kNone;
  Emoji emoji_ = Emoji::kNone;
};

}  // namespace

size_t end_of_cluster(std::string_view text, size_t begin) {
  const auto is_ascii_at = [&](size_t i) { return static_cast<unsigned char>(text[i]) < 0x80; };
  if (is_ascii_at(begin) && (begin + 1 == text.size() || is_ascii_at(begin + 1))) {
    const bool is_line_end =
        begin + 1 < text.size() && text[begin] == '\r' && text[begin + 1] == '\n';
    return begin + (is_line_end ? 2 : 1);
  }
  size_t end = begin;
  Cluster cluster(next_code_point(text, end));
  while (end < text.size()) {
    size_t next = end;
    if (!cluster.take(next_code_point(text, next))) break;
    end = next;
  }
  return end;
}

}  // namespace automodel::tokenizers
