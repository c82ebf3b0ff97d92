#pragma once

#include <cstdint>

#include "core/json.h"

namespace arrow {
class Array;
class DataType;
}  // namespace arrow

namespace automodel::tables {

/// Whether values of a type can be JSON.
bool is_json_type(const arrow::DataType& type);

/// One value of an array; its type is_json_type().
Json value_json(const arrow::Array& array, int64_t index);

}  // namespace automodel::tables
