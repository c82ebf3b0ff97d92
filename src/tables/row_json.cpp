#include "tables/row_json.h"

#include <arrow/api.h>
#include <arrow/util/float16.h>

#include "core/error.h"
#include "core/text.h"

namespace automodel::tables {

namespace {

using arrow::Type;

template <typename Array>
const Array& as(const arrow::Array& array) {
  return static_cast<const Array&>(array);
}

/// The elements [begin, end) of a list.
Json elements(const arrow::Array& values, int64_t begin, int64_t end) {
  Json list = Json::array();
  for (int64_t i = begin; i < end; ++i) list.push_back(value_json(values, i));
  return list;
}

Json struct_json(const arrow::StructArray& array, int64_t index) {
  Json object = Json::object();
  for (int i = 0; i < array.num_fields(); ++i) {
    object.as_object().emplace_back(array.struct_type()->field(i)->name(),
                                    value_json(*array.field(i), index));
  }
  return object;
}

Json scalar_text(const arrow::Array& array, int64_t index) {
  const auto scalar = array.GetScalar(index);
  if (!scalar.ok()) throw InputError(scalar.status().message());
  return Json((*scalar)->ToString());
}

Json whole_number(const arrow::Array& array, int64_t index) {
  switch (array.type_id()) {
    case Type::INT8:
      return Json(int64_t{as<arrow::Int8Array>(array).Value(index)});
    case Type::INT16:
      return Json(int64_t{as<arrow::Int16Array>(array).Value(index)});
    case Type::INT32:
      return Json(int64_t{as<arrow::Int32Array>(array).Value(index)});
    case Type::INT64:
      return Json(as<arrow::Int64Array>(array).Value(index));
    case Type::UINT8:
      return Json(int64_t{as<arrow::UInt8Array>(array).Value(index)});
    case Type::UINT16:
      return Json(int64_t{as<arrow::UInt16Array>(array).Value(index)});
    case Type::UINT32:
      return Json(int64_t{as<arrow::UInt32Array>(array).Value(index)});
    default:
      return Json(uint64_t{as<arrow::UInt64Array>(array).Value(index)});
  }
}

Json list_json(const arrow::Array& array, int64_t index) {
  switch (array.type_id()) {
    case Type::LIST:
    case Type::MAP: {
      const auto& list = as<arrow::ListArray>(array);
      return elements(*list.values(), list.value_offset(index), list.value_offset(index + 1));
    }
    case Type::LARGE_LIST: {
      const auto& list = as<arrow::LargeListArray>(array);
      return elements(*list.values(), list.value_offset(index), list.value_offset(index + 1));
    }
    default: {
      const auto& list = as<arrow::FixedSizeListArray>(array);
      return elements(*list.values(), list.value_offset(index), list.value_offset(index + 1));
    }
  }
}

}  // namespace

bool is_json_type(const arrow::DataType& type) {
  switch (type.id()) {
    case Type::DICTIONARY:
      return is_json_type(*static_cast<const arrow::DictionaryType&>(type).value_type());
    case Type::EXTENSION:
      return is_json_type(*static_cast<const arrow::ExtensionType&>(type).storage_type());
    case Type::LIST:
    case Type::MAP:
    case Type::LARGE_LIST:
    case Type::FIXED_SIZE_LIST:
    case Type::STRUCT:
      for (const auto& field : type.fields()) {
        if (!is_json_type(*field->type())) return false;
      }
      return true;
    default:
      return arrow::is_integer(type.id()) || arrow::is_floating(type.id()) ||
             arrow::is_temporal(type.id()) || arrow::is_decimal(type.id()) ||
             arrow::is_string(type.id()) || type.id() == Type::STRING_VIEW ||
             type.id() == Type::BOOL || type.id() == Type::NA;
  }
}

Json value_json(const arrow::Array& array, int64_t index) {
  if (array.type_id() == Type::NA || array.IsNull(index)) return {};
  switch (array.type_id()) {
    case Type::BOOL:
      return Json(as<arrow::BooleanArray>(array).Value(index));
    case Type::HALF_FLOAT:
      return Json(
          arrow::util::Float16::FromBits(as<arrow::HalfFloatArray>(array).Value(index)).ToDouble());
    case Type::FLOAT:
      return Json(double{as<arrow::FloatArray>(array).Value(index)});
    case Type::DOUBLE:
      return Json(as<arrow::DoubleArray>(array).Value(index));
    case Type::STRING:
      return Json(as<arrow::StringArray>(array).GetView(index));
    case Type::LARGE_STRING:
      return Json(as<arrow::LargeStringArray>(array).GetView(index));
    case Type::STRING_VIEW:
      return Json(as<arrow::StringViewArray>(array).GetView(index));
    case Type::DICTIONARY: {
      const auto& dictionary = as<arrow::DictionaryArray>(array);
      return value_json(*dictionary.dictionary(), dictionary.GetValueIndex(index));
    }
    case Type::EXTENSION:
      return value_json(*as<arrow::ExtensionArray>(array).storage(), index);
    case Type::STRUCT:
      return struct_json(as<arrow::StructArray>(array), index);
    case Type::LIST:
    case Type::MAP:
    case Type::LARGE_LIST:
    case Type::FIXED_SIZE_LIST:
      return list_json(array, index);
    default:
      return arrow::is_integer(array.type_id()) ? whole_number(array, index)
                                                : scalar_text(array, index);
  }
}

}  // namespace automodel::tables
