#pragma once

#include <string>
#include <utility>
#include <vector>

#include "core/json.h"

namespace automodel::recipes {

/// A JSON array of `to_json(record)` for each record: a value, or the members of an object.
template <typename Record, typename ToJson>
Json json_list(const std::vector<Record>& records, const ToJson& to_json) {
  Json::Array list;
  for (const Record& record : records) list.emplace_back(to_json(record));
  return {std::move(list)};
}

/// A JSON array of texts.
inline Json json_list(const std::vector<std::string>& texts) {
  return Json(Json::Array(texts.begin(), texts.end()));
}

}  // namespace automodel::recipes
