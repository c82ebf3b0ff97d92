#include "config/node.h"

#include <algorithm>
#include <cmath>

#include "core/error.h"
#include "core/text.h"
#include "core/utf8.h"

namespace automodel::config {

namespace {

/// A few words of a text, on one line, for error messages.
std::string shorten(std::string_view text) {
  constexpr size_t kLongest = 60;
  const size_t end = num_whole_bytes(text.substr(0, text.find('\n')), kLongest);
  return end == text.size() ? std::string(text) : cat(text.substr(0, end), "...");
}

}  // namespace

std::string_view Source::line(int number) const {
  std::string_view rest = text;
  for (int i = 1; i < number; ++i) {
    const size_t end = rest.find('\n');
    if (end == std::string_view::npos) return {};
    rest.remove_prefix(end + 1);
  }
  return rest.substr(0, rest.find('\n'));
}

Node Node::boolean(bool value) {
  Node node;
  node.kind_ = NodeKind::kBool;
  node.value_ = value;
  return node;
}

Node Node::integer(int64_t value) {
  Node node;
  node.kind_ = NodeKind::kInt;
  node.value_ = value;
  return node;
}

Node Node::big_integer(double value) {
  Node node;
  node.kind_ = NodeKind::kInt;
  node.value_ = value;
  return node;
}

Node Node::real(double value) {
  Node node;
  node.kind_ = NodeKind::kFloat;
  node.value_ = value;
  return node;
}

Node Node::string(std::string value) {
  Node node;
  node.kind_ = NodeKind::kString;
  node.value_ = std::move(value);
  return node;
}

Node Node::date(std::string text) {
  Node node = string(std::move(text));
  node.kind_ = NodeKind::kDate;
  return node;
}

Node Node::foreign(std::string description) {
  Node node = string(std::move(description));
  node.kind_ = NodeKind::kForeign;
  return node;
}

Node Node::sequence(std::vector<Node> elements) {
  Node node;
  node.kind_ = NodeKind::kSequence;
  node.children_ = std::move(elements);
  return node;
}

Node Node::mapping() {
  Node node;
  node.kind_ = NodeKind::kMapping;
  return node;
}

std::optional<bool> Node::bool_value() const {
  if (kind_ != NodeKind::kBool) return std::nullopt;
  return std::get<bool>(value_);
}

std::optional<int64_t> Node::int_value() const {
  if (kind_ != NodeKind::kInt || !std::holds_alternative<int64_t>(value_)) return std::nullopt;
  return std::get<int64_t>(value_);
}

std::optional<double> Node::number() const {
  if (!is_number()) return std::nullopt;
  if (const int64_t* whole = std::get_if<int64_t>(&value_)) return static_cast<double>(*whole);
  return std::get<double>(value_);
}

std::optional<std::string> Node::string_value() const {
  if (kind_ != NodeKind::kString && kind_ != NodeKind::kDate && kind_ != NodeKind::kForeign) {
    return std::nullopt;
  }
  return std::get<std::string>(value_);
}

bool Node::is_scalar() const {
  return style_ != ScalarStyle::kNone || (!is_mapping() && !is_sequence());
}

const Node* Node::find(std::string_view key) const {
  if (!is_mapping()) return nullptr;
  const auto found = std::find_if(children_.begin(), children_.end(),
                                  [&](const Node& child) { return child.key_ == key; });
  return found == children_.end() ? nullptr : &*found;
}

Node* Node::find(std::string_view key) {
  return const_cast<Node*>(static_cast<const Node*>(this)->find(key));
}

const Node* Node::find_path(std::string_view dotted) const {
  const Node* node = this;
  for (const std::string& part : split(dotted, '.')) {
    if (node->is_sequence()) {
      const std::optional<int64_t> index = parse_int(part);
      if (!index || *index < 0 || *index >= static_cast<int64_t>(node->size())) return nullptr;
      node = &node->children_[static_cast<size_t>(*index)];
    } else {
      node = node->find(part);
      if (node == nullptr) return nullptr;
    }
  }
  return node;
}

bool Node::has(std::string_view key) const {
  const Node* child = find(key);
  return child != nullptr && !child->is_null();
}

Node& Node::put(std::string key, Node value) {
  AM_CHECK(is_mapping(), "put on ", describe());
  if (!value.key_position_.is_known()) value.key_position_ = value.position_;
  value.key_ = std::move(key);
  value.assign_paths(path_.empty() ? value.key_ : cat(path_, ".", value.key_));
  if (Node* old = find(value.key_)) {
    *old = std::move(value);
    return *old;
  }
  children_.push_back(std::move(value));
  return children_.back();
}

Node& Node::put_as_found(std::string key, Node value) {
  Node& added = put(std::move(key), value);
  value.key_ = added.key_;
  value.key_position_ = added.key_position_;
  added = std::move(value);
  return added;
}

Node& Node::put_path(std::string_view dotted, Node value) {
  const std::vector<std::string> parts = split(dotted, '.');
  Node* node = this;
  for (size_t i = 0; i + 1 < parts.size(); ++i) {
    Node* child = node->find(parts[i]);
    node = child != nullptr && child->is_mapping() ? child : &node->put(parts[i], mapping());
  }
  return node->put(parts.back(), std::move(value));
}

void Node::erase(std::string_view key) {
  std::erase_if(children_, [&](const Node& child) { return child.key_ == key; });
}

Node Node::without(std::string_view key) const {
  Node copy = *this;
  copy.erase(key);
  return copy;
}

std::string Node::describe() const {
  if (is_interpolated()) return cat("what '", shorten(raw_text_), "' stands for");
  switch (kind_) {
    case NodeKind::kNull:
      return "nothing";
    case NodeKind::kBool:
      return std::get<bool>(value_) ? "true" : "false";
    case NodeKind::kInt:
      if (const std::optional<int64_t> whole = int_value()) return cat("the integer ", *whole);
      return cat("the integer ", text_.empty() ? shortest_repr(*number()) : shorten(text_));
    case NodeKind::kFloat:
      return cat("the number ", shortest_repr(*number()));
    case NodeKind::kString:
      return cat("the string '", shorten(std::get<std::string>(value_)), "'");
    case NodeKind::kDate:
      return cat("the date ", std::get<std::string>(value_));
    case NodeKind::kSequence:
      return cat("a list of ", children_.size());
    case NodeKind::kMapping:
      return "a mapping";
    case NodeKind::kForeign:
      return std::get<std::string>(value_);
  }
  return "?";
}

void Node::set_scalar_text(std::string raw, std::string text, ScalarStyle style) {
  raw_text_ = std::move(raw);
  text_ = std::move(text);
  style_ = style;
}

void Node::set_key(std::string key, Position position) {
  key_ = std::move(key);
  key_position_ = position;
}

void Node::assume_value(Node value) {
  kind_ = value.kind_;
  value_ = std::move(value.value_);
  children_ = std::move(value.children_);
  for (Node& child : children_) child.assume_place(position_);
}

void Node::assume_place(Position position) {
  position_ = position;
  key_position_ = position;
  for (Node& child : children_) child.assume_place(position);
}

void Node::assign_paths(std::string path) {
  path_ = std::move(path);
  for (size_t i = 0; i < children_.size(); ++i) {
    const std::string part = is_mapping() ? children_[i].key_ : cat(i);
    children_[i].assign_paths(path_.empty() ? part : cat(path_, ".", part));
  }
}

bool same_value(const Node& a, const Node& b) {
  if (a.kind() != b.kind() || a.size() != b.size()) return false;
  const std::optional<double> x = a.number();
  const std::optional<double> y = b.number();
  if (x && !(*x == *y || (std::isnan(*x) && std::isnan(*y)))) return false;
  if (a.bool_value() != b.bool_value() || a.int_value() != b.int_value()) return false;
  if (a.string_value() != b.string_value()) return false;
  for (size_t i = 0; i < a.size(); ++i) {
    if (a.is_mapping() && a.children()[i].key() != b.children()[i].key()) return false;
    if (!same_value(a.children()[i], b.children()[i])) return false;
  }
  return true;
}

Json to_json(const Node& node) {
  switch (node.kind()) {
    case NodeKind::kNull:
      return Json();
    case NodeKind::kBool:
      return Json(*node.bool_value());
    case NodeKind::kInt:
      return node.int_value() ? Json(*node.int_value()) : Json(*node.number());
    case NodeKind::kFloat:
      return Json(*node.number());
    case NodeKind::kString:
    case NodeKind::kDate:
    case NodeKind::kForeign:
      return Json(*node.string_value());
    case NodeKind::kSequence: {
      Json array = Json::array();
      for (const Node& child : node.children()) array.push_back(to_json(child));
      return array;
    }
    case NodeKind::kMapping: {
      Json object = Json::object();
      for (const Node& child : node.children()) object[child.key()] = to_json(child);
      return object;
    }
  }
  return Json();
}

}  // namespace automodel::config
