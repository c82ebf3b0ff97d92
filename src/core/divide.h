#pragma once

#include <type_traits>

namespace automodel {

/// How many parts of `size` hold `count` things: count / size, rounded up. Of integers; `count` is
/// not negative and `size` is positive.
template <class Integer>
constexpr Integer ceil_div(Integer count, std::type_identity_t<Integer> size) {
  return count / size + (count % size != 0 ? 1 : 0);
}

/// The least multiple of `multiple` that is not less than `value`. Of integers; `value` is not
/// negative and `multiple` is positive.
template <class Integer>
constexpr Integer round_up(Integer value, std::type_identity_t<Integer> multiple) {
  return ceil_div(value, multiple) * multiple;
}

}  // namespace automodel
