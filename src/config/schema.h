#pragma once

#include <concepts>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "config/bind.h"
#include "config/node.h"
#include "core/field.h"
#include "core/json.h"

namespace automodel::config {

/// JSON Schema (draft 2020-12) of an options struct: types, defaults, ranges, enum texts, docs, no
/// other keys. Scalars also take null, `none` and text with `${ENV}`, as recipes do. The result is
/// a plain object schema, so that recipes can put several under `properties` of a whole.
template <HasFields T>
Json schema_of(const T& defaults = T{});

/// Adds $schema, $id and title to the schema of a whole recipe.
Json schema_document(Json schema, std::string_view id, std::string_view title);

/// The dotted keys of a schema whose last part, or parts, are `end`: "optimizer.lr" for "lr".
std::vector<std::string> keys_ending_with(const Json& schema, std::string_view end);

/// Describes a dotted key: type, default, range, allowed values and text; for a section also its
/// keys, one per line. A key that is none is taken for the end of others, which are described.
/// Throws UserError with a suggestion when the schema has no such key.
std::string explain(const Json& schema, std::string_view dotted_key);

namespace schema_detail {

Json scalar_schema(const char* type);
Json number_schema(bool is_integer, const bind_detail::Range& range);
Json enum_schema(const std::vector<std::string>& names);
Json list_schema(Json items);
Json map_schema(Json values);
/// The schema of a list that may also be written as one element.
Json one_or_many_schema(Json list);
/// Adds description, default (unless null) and a field's other properties.
void describe_field(Json& schema, const char* doc, const char* no_effect, Json default_value);
Json object_schema(Json properties, Json required);
Json anything();

template <typename T>
Json value_schema(const T& value, const bind_detail::Range& range);

template <typename T>
Json value_schema(const T& value, const bind_detail::Range& range) {
  using namespace bind_detail;
  if constexpr (std::same_as<T, Node>) {
    return anything();
  } else if constexpr (IsOptional<T>::value) {
    using Inner = typename T::value_type;
    return value_schema(value ? *value : Inner{}, range);
  } else if constexpr (std::same_as<T, bool>) {
    return scalar_schema("boolean");
  } else if constexpr (std::integral<T>) {
    return number_schema(true, range);
  } else if constexpr (std::floating_point<T>) {
    return number_schema(false, range);
  } else if constexpr (std::same_as<T, std::string>) {
    return scalar_schema("string");
  } else if constexpr (NamedEnum<T>) {
    std::vector<std::string> names;
    for (const auto& [name, candidate] : EnumNames<T>::values) names.emplace_back(name);
    return enum_schema(names);
  } else if constexpr (IsVector<T>::value) {
    return list_schema(value_schema(typename T::value_type{}, range));
  } else if constexpr (IsMap<T>::value) {
    return map_schema(value_schema(typename T::mapped_type{}, range));
  } else {
    return schema_of<T>(value);
  }
}

}  // namespace schema_detail

template <HasFields T>
Json schema_of(const T& defaults) {
  Json properties = Json::object();
  Json required = Json::array();
  for_each_field<T>([&](const auto& field) {
    const auto& value = defaults.*(field.member);
    Json schema = schema_detail::value_schema(
        value, {field.minimum, field.maximum, field.is_minimum_excluded});
    if (field.takes_one) schema = schema_detail::one_or_many_schema(std::move(schema));
    schema_detail::describe_field(schema, field.doc, field.no_effect,
                                  bind_detail::default_json(value));
    properties[field.name] = std::move(schema);
    if (field.is_required) required.push_back(field.name);
  });
  return schema_detail::object_schema(std::move(properties), std::move(required));
}

}  // namespace automodel::config
