#include "config/bind.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "config/other_names.h"
#include "core/text.h"

namespace automodel::config::bind_detail {

namespace {

/// "at least 1", "above 0 and at most 1", or "".
std::string bounds_text(const Range& range, bool is_integer, std::optional<double> found) {
  const auto number = [&](double value) {
    return is_integer ? cat(static_cast<int64_t>(value)) : cat(value);
  };
  // Bounds that only come from the type are not worth words, unless a number is beyond them.
  constexpr double kTypeLimit = 2147483647.0;
  std::string text;
  if (std::isfinite(range.minimum) && range.minimum > -kTypeLimit) {
    text = cat(range.is_minimum_excluded ? "above " : "at least ", number(range.minimum));
  }
  const bool is_beyond = found && *found > range.maximum;
  if (std::isfinite(range.maximum) && (range.maximum < kTypeLimit || is_beyond)) {
    text += cat(text.empty() ? "" : " and ", "at most ", number(range.maximum));
  }
  return text;
}

bool is_inside(double value, const Range& range) {
  if (std::isnan(value) || (std::isinf(value) && !range.takes_infinity)) return false;
  if (range.is_minimum_excluded ? value <= range.minimum : value < range.minimum) return false;
  return value <= range.maximum;
}

void expected(const Node& node, std::string_view what, Diagnostics& diagnostics) {
  diagnostics.error(node, cat("expected ", what, ", found ", node.describe()));
}

std::string with_bounds(std::string_view what, const Range& range, bool is_integer,
                        std::optional<double> found) {
  const std::string bounds = bounds_text(range, is_integer, found);
  return bounds.empty() ? std::string(what) : cat(what, " ", bounds);
}

}  // namespace

std::optional<bool> read_bool(const Node& node, Diagnostics& diagnostics) {
  if (node.bool_value()) return node.bool_value();
  expected(node, "true or false", diagnostics);
  return std::nullopt;
}

std::optional<int64_t> read_int(const Node& node, const Range& range, Diagnostics& diagnostics) {
  std::optional<int64_t> value = node.int_value();
  constexpr double kExact = 9007199254740992.0;  // 2^53: doubles beyond are not exact
  const std::optional<double> number = node.number();
  if (!value && node.kind() == NodeKind::kFloat && std::abs(*number) <= kExact &&
      *number == std::floor(*number)) {
    value = static_cast<int64_t>(*number);
  }
  if (value && is_inside(static_cast<double>(*value), range)) return value;
  const bool is_too_large = !value && node.kind() == NodeKind::kInt;
  expected(node, is_too_large ? "a 64-bit integer" : with_bounds("an integer", range, true, number),
           diagnostics);
  return std::nullopt;
}

std::optional<double> read_double(const Node& node, const Range& range, Diagnostics& diagnostics) {
  std::optional<double> value = node.number();
  if (node.is_string()) {  // `inf` and `nan` stay strings in YAML 1.1 and in Python's literals
    const std::string text = to_lower(*node.string_value());
    if (text == "inf" || text == "+inf" || text == ".inf")
      value = std::numeric_limits<double>::infinity();
    if (text == "-inf" || text == "-.inf") value = -std::numeric_limits<double>::infinity();
    if (text == "nan" || text == ".nan") value = std::numeric_limits<double>::quiet_NaN();
  }
  if (value && is_inside(*value, range)) return value;
  const bool is_infinite = value && !std::isfinite(*value);
  expected(node, with_bounds(is_infinite ? "a finite number" : "a number", range, false, value),
           diagnostics);
  return std::nullopt;
}

std::optional<std::string> read_string(const Node& node, Diagnostics& diagnostics) {
  if (node.is_string()) return node.string_value();
  // A text that upstream's rules turned into something else ("0.99, 0.01", 2026, 'true' in quotes).
  const bool is_bare_bool = node.kind() == NodeKind::kBool && node.style() == ScalarStyle::kPlain;
  if (node.style() != ScalarStyle::kNone && !node.is_null() && !is_bare_bool) return node.text();
  if (node.kind() == NodeKind::kDate) return node.string_value();
  expected(node, "a string", diagnostics);
  return std::nullopt;
}

std::optional<size_t> read_enum(const Node& node, const std::vector<std::string>& names,
                                Diagnostics& diagnostics) {
  std::vector<std::string> candidates;  // yes/no/on/off are booleans in YAML: try both spellings
  if (node.style() != ScalarStyle::kNone) candidates.push_back(to_lower(node.text()));
  if (node.is_string()) candidates.push_back(to_lower(*node.string_value()));
  if (node.bool_value()) candidates.push_back(*node.bool_value() ? "true" : "false");
  for (const std::string& candidate : candidates) {
    for (size_t i = 0; i < names.size(); ++i) {
      if (to_lower(names[i]) == candidate) return i;
    }
  }
  const std::string suggestion =
      node.is_string() && !node.is_interpolated() ? did_you_mean(*node.string_value(), names) : "";
  diagnostics.error(
      node, cat("expected one of ", join(names, ", "), "; found ", node.describe(), suggestion));
  return std::nullopt;
}

bool expect_sequence(const Node& node, Diagnostics& diagnostics) {
  if (node.is_sequence()) return true;
  const bool is_almost = node.is_string() && node.string_value()->starts_with('[');
  diagnostics.error(node, cat("expected a list, found ", node.describe(),
                              is_almost ? "; texts in it need quotes: ['a', 'b']" : ""));
  return false;
}

bool expect_mapping(const Node& node, std::string_view first_key, Diagnostics& diagnostics) {
  if (node.is_mapping()) return true;
  expected(node, cat("a mapping of keys", first_key.empty() ? "" : " such as ", first_key),
           diagnostics);
  return false;
}

void check_keys(const Node& node, const std::vector<std::string>& fields,
                const std::vector<std::string>& required, const BindOptions& options,
                Diagnostics& diagnostics) {
  constexpr size_t kMostListed = 12;
  std::vector<std::string> valid = fields;
  valid.insert(valid.end(), options.other_keys.begin(), options.other_keys.end());
  for (const Node& child : node.children()) {
    if (std::find(valid.begin(), valid.end(), child.key()) != valid.end()) continue;
    if (child.is_deleted()) continue;
    const auto legacy =
        std::find_if(options.legacy_keys.begin(), options.legacy_keys.end(),
                     [&](const LegacyKey& candidate) { return candidate.name == child.key(); });
    if (legacy != options.legacy_keys.end()) {
      diagnostics.warning_at_key(child, cat("'", child.key(), "' is ignored: ", legacy->reason));
      continue;
    }
    std::string hint = hint_for_key(child, valid, diagnostics);
    if (hint.empty() && !valid.empty() && valid.size() <= kMostListed) {
      hint = cat("; the keys here are ", join(valid, ", "));
    }
    diagnostics.unknown_key(child, cat("unknown key '", child.key(), "'", hint));
  }
  for (const std::string& name : required) {
    if (!node.has(name)) diagnostics.missing(node, name, cat("'", name, "' is required"));
  }
}

void warn_no_effect(const Node& node, const char* reason, Diagnostics& diagnostics) {
  diagnostics.warning_at_key(node, cat("'", node.key(), "' has no effect here: ", reason));
}

void note_default(std::string_view parent, const char* key, Json value, Diagnostics& diagnostics) {
  // A mapping without a path was made while reading: it is no place in the recipe.
  if (parent.empty() || value.is_null()) return;
  diagnostics.add_default(cat(parent, ".", key), std::move(value));
}

}  // namespace automodel::config::bind_detail
