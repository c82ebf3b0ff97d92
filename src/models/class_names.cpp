#include "models/class_names.h"

#include "core/text.h"

namespace automodel::models {

namespace {

constexpr int64_t kUsualCount = 2;  // transformers'

ClassNames usual(int64_t count, std::string problem = "") {
  return {usual_class_names(count), std::move(problem)};
}

ClassNames names_of(const Json& by_id) {
  if (!by_id.is_object()) {
    return usual(kUsualCount, cat("id2label is no object, but ", by_id.kind()));
  }
  std::vector<std::string> names(by_id.size());
  std::vector<bool> is_named(by_id.size());
  for (const auto& [key, name] : by_id.as_object()) {
    const auto id = parse_int(key);
    if (!id || *id < 0 || *id >= std::ssize(names) || is_named[static_cast<size_t>(*id)]) {
      return usual(kUsualCount,
                   cat("id2label: '", key, "' is no number of one of ", names.size(), " classes"));
    }
    is_named[static_cast<size_t>(*id)] = true;
    names[static_cast<size_t>(*id)] = name.is_string() ? name.as_string() : name.dump();
  }
  return {std::move(names), ""};
}

}  // namespace

std::vector<std::string> usual_class_names(int64_t count) {
  std::vector<std::string> names;
  for (int64_t id = 0; id < count; ++id) names.push_back(cat("LABEL_", id));
  return names;
}

ClassNames class_names(const Json& hf_config) {
  ClassNames found;
  const Json* by_id = hf_config.find("id2label");
  const Json* count = hf_config.find("num_labels");
  if (by_id != nullptr && !by_id->is_null()) {
    found = names_of(*by_id);
  } else if (count == nullptr || count->is_null()) {
    found = usual(kUsualCount);
  } else if (!count->is_int() || count->as_int() < 1 || count->as_int() > kMostClasses) {
    found = usual(kUsualCount, cat("num_labels is ", count->dump(), "; a whole number from 2 to ",
                                   kMostClasses, " is right"));
  } else {
    found = usual(count->as_int());
  }
  if (found.problem.empty() && found.names.size() < 2) {
    found = usual(kUsualCount,
                  cat("num_labels is ", found.names.size(),
                      ": classes are two or more; a model that predicts a number (one label) is "
                      "not in this version"));
  }
  return found;
}

void set_class_names(const std::vector<std::string>& names, Json& hf_config) {
  Json::Object by_id;
  Json::Object by_name;
  for (size_t id = 0; id < names.size(); ++id) {
    by_id.emplace_back(std::to_string(id), names[id]);
    by_name.emplace_back(names[id], static_cast<int64_t>(id));
  }
  hf_config.erase("num_labels");
  hf_config["id2label"] = Json(std::move(by_id));
  hf_config["label2id"] = Json(std::move(by_name));
}

}  // namespace automodel::models
