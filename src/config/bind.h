#pragma once

#include <concepts>
#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "config/diagnostic.h"
#include "config/node.h"
#include "core/field.h"
#include "core/json.h"

namespace automodel::config {

/// A key of upstream's recipes that has no effect here: accepted, and listed in one warning.
struct LegacyKey {
  std::string name;
  std::string reason;  ///< "use `seed`"
};

/// What a caller adds to the fields. An options struct may declare its own legacy keys as `static
/// std::vector<LegacyKey> legacy_keys()`, which also apply where the struct is nested.
struct BindOptions {
  std::vector<LegacyKey> legacy_keys;
  std::vector<std::string> other_keys;     ///< keys that the caller reads itself
  std::vector<std::string> required_keys;  ///< besides the fields marked required()
};

namespace bind_detail {

struct Range {
  double minimum = -std::numeric_limits<double>::infinity();
  double maximum = std::numeric_limits<double>::infinity();
  bool is_minimum_excluded = false;
  bool takes_infinity = false;
};

std::optional<bool> read_bool(const Node& node, Diagnostics& diagnostics);
std::optional<int64_t> read_int(const Node& node, const Range& range, Diagnostics& diagnostics);
std::optional<double> read_double(const Node& node, const Range& range, Diagnostics& diagnostics);
std::optional<std::string> read_string(const Node& node, Diagnostics& diagnostics);
/// Returns the index into `names`.
std::optional<size_t> read_enum(const Node& node, const std::vector<std::string>& names,
                                Diagnostics& diagnostics);
bool expect_sequence(const Node& node, Diagnostics& diagnostics);
/// `first_key` is one that the mapping may have, for the error; "" for any.
bool expect_mapping(const Node& node, std::string_view first_key, Diagnostics& diagnostics);
/// Adds findings for unknown, legacy and missing keys of a mapping.
void check_keys(const Node& node, const std::vector<std::string>& fields,
                const std::vector<std::string>& required, const BindOptions& options,
                Diagnostics& diagnostics);
void warn_no_effect(const Node& node, const char* reason, Diagnostics& diagnostics);

template <typename T>
struct IsOptional : std::false_type {};
template <typename T>
struct IsOptional<std::optional<T>> : std::true_type {};
template <typename T>
struct IsVector : std::false_type {};
template <typename T>
struct IsVector<std::vector<T>> : std::true_type {};
template <typename T>
struct IsMap : std::false_type {};
template <typename T>
struct IsMap<std::map<std::string, T>> : std::true_type {};

/// The default as JSON; null when there is nothing to show (sections, raw nodes).
template <typename T>
Json default_json(const T& value) {
  if constexpr (IsOptional<T>::value) {
    return value ? default_json(*value) : Json();
  } else if constexpr (NamedEnum<T>) {
    return Json(enum_name(value));
  } else if constexpr (std::same_as<T, bool> || std::same_as<T, std::string>) {
    return Json(value);
  } else if constexpr (std::integral<T>) {
    return Json(static_cast<int64_t>(value));
  } else if constexpr (std::floating_point<T>) {
    return Json(static_cast<double>(value));
  } else if constexpr (IsVector<T>::value) {
    Json array = Json::array();
    for (const auto& element : value) array.push_back(default_json(element));
    return array;
  } else {
    return Json();
  }
}

/// Keeps the value of a key that `parent` leaves out, if it is one to show.
void note_default(std::string_view parent, const char* key, Json value, Diagnostics& diagnostics);

template <typename T>
concept StatesLegacyKeys = requires {
  { T::legacy_keys() } -> std::convertible_to<std::vector<LegacyKey>>;
};

}  // namespace bind_detail

/// Reads an options struct from a mapping: every field that is present and not null (null keeps the
/// default; a std::optional becomes empty). Wrong types, ranges, enum texts and unknown keys become
/// findings and keep the default, so that one pass finds all. A null node gives the defaults.
template <HasFields T>
T bind(const Node& node, Diagnostics& diagnostics, const BindOptions& options = {});

/// bind() with `defaults` in place of the struct's own.
template <HasFields T>
T bind_over(T defaults, const Node& node, Diagnostics& diagnostics,
            const BindOptions& options = {});

/// Keeps the values of a section that a recipe leaves out whole, as bind() does of single keys.
template <HasFields T>
void note_defaults(const T& values, std::string_view path, Diagnostics& diagnostics);

/// Reads one value of any field type; empty, after adding a finding, when the node does not fit.
template <typename T>
std::optional<T> read_value(const Node& node, Diagnostics& diagnostics,
                            const bind_detail::Range& range = {});

namespace bind_detail {

template <typename T>
std::optional<T> read_integral(const Node& node, Diagnostics& diagnostics, Range range) {
  const double lowest = static_cast<double>(std::numeric_limits<T>::min());
  const double highest = static_cast<double>(std::numeric_limits<T>::max());
  if (range.minimum < lowest) range.minimum = lowest;
  if (range.maximum > highest) range.maximum = highest;
  const std::optional<int64_t> value = read_int(node, range, diagnostics);
  if (!value) return std::nullopt;
  return static_cast<T>(*value);
}

template <NamedEnum E>
std::optional<E> read_named(const Node& node, Diagnostics& diagnostics) {
  std::vector<std::string> names;
  for (const auto& [name, value] : EnumNames<E>::values) names.emplace_back(name);
  const std::optional<size_t> index = read_enum(node, names, diagnostics);
  if (!index) return std::nullopt;
  return EnumNames<E>::values[*index].second;
}

template <typename V>
std::optional<std::vector<V>> read_vector(const Node& node, Diagnostics& diagnostics,
                                          const Range& range) {
  if (!expect_sequence(node, diagnostics)) return std::nullopt;
  std::vector<V> values;
  bool is_good = true;
  for (const Node& child : node.children()) {
    std::optional<V> value = read_value<V>(child, diagnostics, range);
    is_good = is_good && value.has_value();
    if (value) values.push_back(std::move(*value));
  }
  if (!is_good) return std::nullopt;
  return values;
}

template <typename V>
std::optional<std::map<std::string, V>> read_map(const Node& node, Diagnostics& diagnostics,
                                                 const Range& range) {
  if (!expect_mapping(node, "", diagnostics)) return std::nullopt;
  std::map<std::string, V> values;
  bool is_good = true;
  for (const Node& child : node.children()) {
    std::optional<V> value = read_value<V>(child, diagnostics, range);
    is_good = is_good && value.has_value();
    if (value) values.emplace(child.key(), std::move(*value));
  }
  if (!is_good) return std::nullopt;
  return values;
}

/// A list field that may be written as one value; null is an empty list.
template <typename T>
std::optional<T> read_one_or_many(const Node& node, Diagnostics& diagnostics, const Range& range) {
  if constexpr (IsVector<T>::value) {
    if (node.is_null()) return T{};
    if (!node.is_sequence()) {
      auto value = read_value<typename T::value_type>(node, diagnostics, range);
      if (!value) return std::nullopt;
      return T{std::move(*value)};
    }
  }
  return read_value<T>(node, diagnostics, range);
}

}  // namespace bind_detail

template <typename T>
std::optional<T> read_value(const Node& node, Diagnostics& diagnostics,
                            const bind_detail::Range& range) {
  using namespace bind_detail;
  if constexpr (std::same_as<T, Node>) {
    return node;
  } else if constexpr (IsOptional<T>::value) {
    if (node.is_null()) return std::optional<T>(std::in_place);
    auto value = read_value<typename T::value_type>(node, diagnostics, range);
    if (!value) return std::nullopt;
    return std::optional<T>(std::in_place, std::move(*value));
  } else if constexpr (std::same_as<T, bool>) {
    return read_bool(node, diagnostics);
  } else if constexpr (std::integral<T>) {
    return read_integral<T>(node, diagnostics, range);
  } else if constexpr (std::floating_point<T>) {
    const std::optional<double> value = read_double(node, range, diagnostics);
    if (!value) return std::nullopt;
    return static_cast<T>(*value);
  } else if constexpr (std::same_as<T, std::string>) {
    return read_string(node, diagnostics);
  } else if constexpr (NamedEnum<T>) {
    return read_named<T>(node, diagnostics);
  } else if constexpr (IsVector<T>::value) {
    return read_vector<typename T::value_type>(node, diagnostics, range);
  } else if constexpr (IsMap<T>::value) {
    return read_map<typename T::mapped_type>(node, diagnostics, range);
  } else {
    static_assert(HasFields<T>, "a field's type must be one that core/field.h names");
    return bind<T>(node, diagnostics);
  }
}

template <HasFields T>
void note_defaults(const T& values, std::string_view path, Diagnostics& diagnostics) {
  for_each_field<T>([&](const auto& field) {
    bind_detail::note_default(path, field.name, bind_detail::default_json(values.*(field.member)),
                              diagnostics);
  });
}

template <HasFields T>
T bind(const Node& node, Diagnostics& diagnostics, const BindOptions& options) {
  return bind_over(T{}, node, diagnostics, options);
}

template <HasFields T>
T bind_over(T result, const Node& node, Diagnostics& diagnostics, const BindOptions& options) {
  BindOptions known = options;
  if constexpr (bind_detail::StatesLegacyKeys<T>) {
    for (LegacyKey& key : T::legacy_keys()) known.legacy_keys.push_back(std::move(key));
  }
  std::vector<std::string> names;
  std::vector<std::string> required = options.required_keys;
  for_each_field<T>([&](const auto& field) {
    names.emplace_back(field.name);
    if (field.is_required) required.emplace_back(field.name);
  });
  if (!node.is_null() &&
      !bind_detail::expect_mapping(node, names.empty() ? "" : names.front(), diagnostics)) {
    return result;
  }
  bind_detail::check_keys(node, names, required, known, diagnostics);
  for_each_field<T>([&](const auto& field) {
    using Value = typename std::remove_cvref_t<decltype(field)>::Value;
    const Node* child = node.find(field.name);
    constexpr bool takes_null = std::same_as<Value, Node> || bind_detail::IsOptional<Value>::value;
    if (child == nullptr || (child->is_null() && !takes_null && !field.takes_one)) {
      bind_detail::note_default(node.path(), field.name,
                                bind_detail::default_json(result.*(field.member)), diagnostics);
      return;
    }
    if (field.no_effect != nullptr && !child->is_null()) {
      bind_detail::warn_no_effect(*child, field.no_effect, diagnostics);
    }
    const bind_detail::Range range{field.minimum, field.maximum, field.is_minimum_excluded,
                                   field.takes_infinity};
    std::optional<Value> value;
    if (field.takes_one) {
      value = bind_detail::read_one_or_many<Value>(*child, diagnostics, range);
    } else {
      value = read_value<Value>(*child, diagnostics, range);
    }
    if (value) result.*(field.member) = std::move(*value);
  });
  return result;
}

}  // namespace automodel::config
