#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "config/source.h"
#include "core/json.h"

namespace automodel::config {

enum class NodeKind {
  kNull,
  kBool,
  kInt,
  kFloat,
  kString,
  kDate,  ///< a YAML 1.1 date or time; string_value() is its text
  kSequence,
  kMapping,
  kForeign,  ///< a Python value that recipes have no use for (complex, bytes, set, `...`)
};

enum class ScalarStyle {
  kNone,  ///< not written as a scalar
  kPlain,
  kQuoted,    ///< '...', "...", | or >
  kArgument,  ///< the value of an override
};

/// A value of a recipe with the place it was written at. A tree of values: copies are deep.
///
/// A scalar holds three things: raw_text() as written (quotes removed), text() after `${ENV}`, and
/// the value that upstream's rules make of that text; so "[1, 2]" in quotes is a sequence whose
/// text() is still "[1, 2]". Children of a mapping carry their keys.
class Node {
 public:
  Node() = default;  ///< null

  static Node null() { return Node(); }
  static Node boolean(bool value);
  static Node integer(int64_t value);
  static Node big_integer(double value);  ///< beyond int64_t
  static Node real(double value);
  static Node string(std::string value);
  static Node date(std::string text);
  static Node foreign(std::string description);  ///< "a complex number"
  static Node sequence(std::vector<Node> elements = {});
  static Node mapping();

  NodeKind kind() const { return kind_; }
  bool is_null() const { return kind_ == NodeKind::kNull; }
  bool is_mapping() const { return kind_ == NodeKind::kMapping; }
  bool is_sequence() const { return kind_ == NodeKind::kSequence; }
  bool is_string() const { return kind_ == NodeKind::kString; }
  bool is_number() const { return kind_ == NodeKind::kInt || kind_ == NodeKind::kFloat; }

  /// The value, if the node is of that kind. int_value() is empty for integers beyond int64_t.
  std::optional<bool> bool_value() const;
  std::optional<int64_t> int_value() const;
  std::optional<double> number() const;             ///< kInt or kFloat
  std::optional<std::string> string_value() const;  ///< kString or kDate

  /// True for anything that was written, or made, as a scalar.
  bool is_scalar() const;
  ScalarStyle style() const { return style_; }
  const std::string& raw_text() const { return raw_text_; }
  const std::string& text() const { return text_; }
  bool is_interpolated() const { return raw_text_ != text_; }  ///< holds text from the environment

  /// True for a null by which an override removed a value: it counts as absent.
  bool is_deleted() const { return is_deleted_; }
  void mark_deleted() { is_deleted_ = true; }

  /// Elements of a sequence, values of a mapping (in the order of the file); none for scalars.
  const std::vector<Node>& children() const { return children_; }
  std::vector<Node>& children() { return children_; }
  size_t size() const { return children_.size(); }
  bool empty() const { return children_.empty(); }

  /// A mapping's value for a key; nullptr when there is none (a null value is returned).
  const Node* find(std::string_view key) const;
  Node* find(std::string_view key);
  /// The node at "a.b.0"; nullptr when a part is missing. Keys that hold dots are not found.
  const Node* find_path(std::string_view dotted) const;
  /// True when the key is there and not null: upstream's idea of a present section.
  bool has(std::string_view key) const;

  const std::string& key() const { return key_; }    ///< "" for elements and the root
  const std::string& path() const { return path_; }  ///< "a.b.0"; "" for the root
  const Position& position() const { return position_; }
  const Position& key_position() const { return key_position_; }

  /// Adds or replaces (in place) a key of a mapping; the new value gets this mapping's path.
  Node& put(std::string key, Node value);
  /// Sets "a.b.c", making mappings on the way and replacing what is none.
  Node& put_path(std::string_view dotted, Node value);
  /// Like put(), but the value keeps its path: messages name the place where it was written.
  Node& put_as_found(std::string key, Node value);
  void erase(std::string_view key);
  /// A mapping without one of its keys; paths and positions are kept.
  Node without(std::string_view key) const;

  /// The value in words for messages: "the string 'abc'", "true", "the number 1.5", "a list of 2",
  /// "a mapping", "nothing". Does not show text from the environment.
  std::string describe() const;

  // For readers: sets what parsing knows.
  void set_scalar_text(std::string raw, std::string text, ScalarStyle style);
  void set_position(Position position) { position_ = position; }
  void set_key(std::string key, Position position);
  /// Takes kind, value and children from `value`; keeps text, key and positions.
  void assume_value(Node value);
  void assign_paths(std::string path);

 private:
  void assume_place(Position position);

  NodeKind kind_ = NodeKind::kNull;
  std::variant<std::monostate, bool, int64_t, double, std::string> value_;
  ScalarStyle style_ = ScalarStyle::kNone;
  bool is_deleted_ = false;
  std::string raw_text_;
  std::string text_;
  std::vector<Node> children_;
  std::string key_;
  std::string path_;
  Position position_;
  Position key_position_;
};

/// Whether values are equal, with keys in the same order; texts and positions are ignored. NaN
/// equals NaN.
bool same_value(const Node& a, const Node& b);

/// The value as JSON: dates as strings, foreign values as their description.
Json to_json(const Node& node);

}  // namespace automodel::config
