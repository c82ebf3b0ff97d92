#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/text.h"
#include "core/utf8.h"
#include "tokenizers/component.h"
#include "tokenizers/grapheme.h"
#include "tokenizers/normalizer.h"
#include "tokenizers/unicode.h"

namespace automodel::tokenizers {

namespace {

/// The bytes of a base64 text with its padding; nullopt when it is none.
std::optional<std::string> decode_base64(std::string_view text) {
  constexpr std::string_view kDigits =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::array<int, 256> value_of;
  value_of.fill(-1);
  for (size_t i = 0; i < kDigits.size(); ++i) {
    value_of[static_cast<unsigned char>(kDigits[i])] = static_cast<int>(i);
  }
  if (text.size() % 4 != 0) return std::nullopt;
  for (int i = 0; i < 2 && text.ends_with('='); ++i) text.remove_suffix(1);
  std::string bytes;
  bytes.reserve(text.size() / 4 * 3 + 2);
  uint32_t bits = 0;
  int num_bits = 0;
  for (const char c : text) {
    const int value = value_of[static_cast<unsigned char>(c)];
    if (value < 0) return std::nullopt;
    bits = (bits << 6 | static_cast<uint32_t>(value)) & 0xFFFF;
    num_bits += 6;
    if (num_bits < 8) continue;
    num_bits -= 8;
    bytes.push_back(static_cast<char>(bits >> num_bits & 0xFF));
  }
  if ((bits & ((1U << num_bits) - 1)) != 0) return std::nullopt;
  return bytes;
}

/// SentencePiece's table of rules: what a text that begins with a key becomes. A double-array trie
/// of the keys whose values are places in one text, where what each becomes ends at a NUL.
class RuleTable final {
 public:
  /// Throws InputError where the trie has a way out of itself or of the text.
  RuleTable(std::vector<uint32_t> units, std::string texts, const Component& component)
      : units_(std::move(units)), texts_(std::move(texts)) {
    check(component);
  }

  /// What the shortest key at the text's beginning becomes; nullopt when there is none.
  std::optional<std::string_view> find(std::string_view text) const {
    uint32_t base = offset(units_[0]);
    for (const char c : text) {
      const std::optional<Step> step = step_from(base, static_cast<unsigned char>(c));
      if (c == '\0' || !step) return std::nullopt;
      base = step->base;
      if (!step->ends_key) continue;
      const std::string_view rest = std::string_view(texts_).substr(value_at(base));
      return rest.substr(0, rest.find('\0'));
    }
    return std::nullopt;
  }

 private:
  struct Step {
    uint32_t base;  ///< the units of the next bytes are at this number XOR the byte
    bool ends_key;  ///< the value is at `base`
  };

  static uint32_t offset(uint32_t unit) { return (unit >> 10) << ((unit & 0x200) >> 6); }

  std::optional<Step> step_from(uint32_t base, unsigned char byte) const {
    const uint32_t at = base ^ byte;
    if (at >= units_.size()) return std::nullopt;
    const uint32_t unit = units_[at];
    if ((unit & 0x800000FF) != byte) return std::nullopt;
    return Step{at ^ offset(unit), (unit & 0x100) != 0};
  }

  uint32_t value_at(uint32_t base) const { return units_[base] & 0x7FFFFFFF; }

  /// Walks every way from the root.
  void check(const Component& component) const {
    std::vector<bool> is_seen(units_.size());
    std::vector<uint32_t> open;
    const auto enter = [&](uint32_t base) {
      // Whatever the next byte is, its unit must be there.
      if ((base | 0xFF) >= units_.size()) {
        component.fail("precompiled_charsmap is malformed: its trie leads out of itself");
      }
      if (!is_seen[base]) open.push_back(base);
      is_seen[base] = true;
    };
    enter(offset(units_[0]));
    while (!open.empty()) {
      const uint32_t base = open.back();
      open.pop_back();
      for (unsigned byte = 1; byte < 256; ++byte) {
        const std::optional<Step> step = step_from(base, static_cast<unsigned char>(byte));
        if (!step) continue;
        enter(step->base);
        if (step->ends_key) check_value(value_at(step->base), component);
      }
    }
  }

  void check_value(uint32_t value, const Component& component) const {
    const bool is_in_character =
        value < texts_.size() && (static_cast<unsigned char>(texts_[value]) & 0xC0) == 0x80;
    if (value <= texts_.size() && !is_in_character) return;
    component.fail(cat("precompiled_charsmap is malformed: a rule points to byte ", value, " of ",
                       texts_.size(), " bytes of texts",
                       is_in_character ? ", inside of a character" : ""));
  }

  std::vector<uint32_t> units_;
  std::string texts_;
};

class Precompiled final : public Normalizer {
 public:
  explicit Precompiled(RuleTable rules) : rules_(std::move(rules)) {}

  void apply(NormalizedText& text) const override {
    std::string out;
    out.reserve(text.text.size());
    const std::string_view all = text.text;
    for (size_t begin = 0; begin < all.size();) {
      const size_t end = end_of_cluster(all, begin);
      append_cluster(all.substr(begin, end - begin), out);
      begin = end;
    }
    // Even where the first character is gone, what is first now counts as the text's beginning.
    text.text = std::move(out);
  }

 private:
  static constexpr size_t kFewBytes = 6;

  /// As the reference implementation: small clusters are looked up as a whole, and what is behind
  /// the key that is found is lost; others character by character.
  void append_cluster(std::string_view cluster, std::string& out) const {
    if (cluster.size() < kFewBytes) {
      if (const std::optional<std::string_view> text = rules_.find(cluster)) {
        out += *text;
        return;
      }
    }
    for (size_t i = 0; i < cluster.size();) {
      const size_t begin = i;
      next_code_point(cluster, i);
      const std::string_view character = cluster.substr(begin, i - begin);
      out += rules_.find(character).value_or(character);
    }
  }

  RuleTable rules_;
};

uint32_t little_endian(std::string_view bytes, size_t at) {
  uint32_t value = 0;
  for (size_t i = 0; i < 4; ++i) {
    value |= static_cast<uint32_t>(static_cast<unsigned char>(bytes[at + i])) << (8 * i);
  }
  return value;
}

}  // namespace

std::unique_ptr<Normalizer> make_precompiled(const Component& component) {
  const std::optional<std::string> bytes = decode_base64(component.text("precompiled_charsmap"));
  if (!bytes) component.fail("precompiled_charsmap is not base64");
  const auto fail = [&](std::string_view what) {
    component.fail(cat("precompiled_charsmap is malformed: ", what));
  };
  if (bytes->size() < 4) fail("it has no size of its trie");
  const size_t num_units = little_endian(*bytes, 0) / 4;
  if (num_units == 0) fail("its trie is empty");
  if (bytes->size() - 4 < 4 * num_units) fail("its trie is cut off");
  std::vector<uint32_t> units(num_units);
  for (size_t i = 0; i < num_units; ++i) units[i] = little_endian(*bytes, 4 + 4 * i);
  std::string texts = bytes->substr(4 + 4 * num_units);
  if (find_invalid_utf8(texts) != std::string::npos) fail("its texts are not UTF-8");
  return std::make_unique<Precompiled>(RuleTable(std::move(units), std::move(texts), component));
}

}  // namespace automodel::tokenizers
