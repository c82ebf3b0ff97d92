#pragma once

#include <concepts>
#include <limits>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

namespace automodel {

/// One option of an options struct: what YAML parsing, unknown-key errors, the schema, `explain`
/// and the printed recipe all read. An options struct lists its fields once:
///
///   struct ClipConfig {
///     double max_norm = 1.0;
///     static constexpr auto fields() {
///       return std::tuple{field("max_norm", &ClipConfig::max_norm, "largest gradient norm")
///                             .above(0)};
///     }
///   };
///
/// The default is the member's initialiser. Member types: bool, int, int64_t, double, std::string,
/// enums with EnumNames, structs with fields(), and std::optional, std::vector,
/// std::map<std::string, T> of these.
template <typename Owner, typename T>
struct Field {
  using Value = T;

  const char* name;
  T Owner::*member;
  const char* doc;
  double minimum = -std::numeric_limits<double>::infinity();
  double maximum = std::numeric_limits<double>::infinity();
  bool is_minimum_excluded = false;
  const char* no_effect = nullptr;  ///< why setting it has no effect here; setting it warns
  bool is_required = false;         ///< leaving it out is an error
  bool takes_one = false;       ///< a list that may be written as one value; null means no value
  bool takes_infinity = false;  ///< infinite numbers mean something

  constexpr Field at_least(double bound) const {
    Field copy = *this;
    copy.minimum = bound;
    return copy;
  }
  constexpr Field above(double bound) const {
    Field copy = at_least(bound);
    copy.is_minimum_excluded = true;
    return copy;
  }
  constexpr Field at_most(double bound) const {
    Field copy = *this;
    copy.maximum = bound;
    return copy;
  }
  constexpr Field required() const {
    Field copy = *this;
    copy.is_required = true;
    return copy;
  }
  constexpr Field or_one() const {
    Field copy = *this;
    copy.takes_one = true;
    return copy;
  }
  constexpr Field or_infinite() const {
    Field copy = *this;
    copy.takes_infinity = true;
    return copy;
  }
  constexpr Field without_effect(const char* reason) const {
    Field copy = *this;
    copy.no_effect = reason;
    return copy;
  }
};

template <typename Owner, typename T>
constexpr Field<Owner, T> field(const char* name, T Owner::*member, const char* doc) {
  return Field<Owner, T>{name, member, doc};
}

/// An options struct: it lists its fields.
template <typename T>
concept HasFields = requires {
  T::fields();
};

/// Calls `visit(field)` for every field of T, in the order listed.
template <HasFields T, typename Visit>
void for_each_field(Visit&& visit) {
  std::apply([&](const auto&... fields) { (visit(fields), ...); }, T::fields());
}

/// The texts of an enum's values, in the order shown to the user. Specialise with
///   static constexpr std::array<std::pair<std::string_view, E>, N> values = {{{"full",
///   E::kFull}}};
/// Several texts may name one value; the first is the one printed.
template <typename E>
struct EnumNames;

template <typename E>
concept NamedEnum = std::is_enum_v<E> && requires {
  EnumNames<E>::values;
};

/// The first text of an enum's value.
template <NamedEnum E>
constexpr std::string_view enum_name(E value) {
  for (const auto& [name, candidate] : EnumNames<E>::values) {
    if (candidate == value) return name;
  }
  return "?";
}

}  // namespace automodel
