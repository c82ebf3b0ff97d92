#pragma once

#include <optional>
#include <string_view>

namespace automodel::report {

/// A member of a record: a number, a text, or neither (true, false and null).
struct FlatMember {
  std::string_view key;
  std::optional<double> number;
  std::string_view text;  ///< of a text
};

/// Reads a line of JSON of the form that records mostly have, an object of numbers, texts in plain
/// ASCII and true, false or null, several times as fast as a parser of all JSON. What has another
/// form, right or wrong, is left to that.
class FlatRecord final {
 public:
  explicit FlatRecord(std::string_view line);

  /// The next member; absent behind the last one, or where the form ends.
  std::optional<FlatMember> next();
  /// Whether the line ended as an object does, once next() has no more.
  bool is_whole() const { return is_whole_; }

 private:
  void skip_space();
  bool take(char wanted);
  std::optional<std::string_view> take_text();
  std::optional<double> take_number();
  bool take_word();

  const char* at_;
  const char* end_;
  bool is_first_ = true;
  bool is_whole_ = false;
};

}  // namespace automodel::report
