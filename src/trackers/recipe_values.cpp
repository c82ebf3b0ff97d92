#include "trackers/recipe_values.h"

#include <algorithm>

#include "core/text.h"

namespace automodel::trackers {

std::vector<std::pair<std::vector<std::string>, const Json*>> written_values(const Json& values) {
  std::vector<std::pair<std::vector<std::string>, const Json*>> written;
  for (const auto& [key, entry] : values.as_object()) {
    if (entry.get("origin", "") != "default") {
      written.emplace_back(split(key, '.'), &entry.at("value"));
    }
  }
  std::ranges::stable_sort(written, {}, [](const auto& it) { return it.first.size(); });
  return written;
}

void put_below(Json& parent, std::span<const std::string> path, const Json& value) {
  Json* place = &parent;
  for (; path.size() > 1; path = path.subspan(1)) {
    const Json* below = place->find(path[0]);
    if (below != nullptr && !below->is_object()) break;
    Json& next = (*place)[path[0]];
    if (!next.is_object()) next = Json::object();
    place = &next;
  }
  (*place)[join(path, ".")] = value;
}

Json nested_values(const Json& values) {
  Json nested = Json::object();
  for (const auto& [path, value] : written_values(values)) put_below(nested, path, *value);
  return nested;
}

}  // namespace automodel::trackers
