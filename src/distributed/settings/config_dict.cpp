#include "distributed/settings/config_dict.h"

#include "core/text.h"
#include "distributed/settings/distributed_config.h"

namespace automodel::distributed {

namespace {

ConfigValue value_of(bool value) {
  return value;
}
ConfigValue value_of(int64_t value) {
  return value;
}
ConfigValue value_of(const std::string& value) {
  return value;
}
ConfigValue value_of(const std::vector<std::string>& value) {
  return value;
}
ConfigValue value_of(const std::map<std::string, std::string>& value) {
  return value;
}
ConfigValue value_of(const MixedPrecisionPolicy& policy) {
  return &policy;
}
ConfigValue value_of(const CPUOffloadPolicy& policy) {
  return &policy;
}

/// Upstream's False, True and "selective".
ConfigValue value_of(ActivationCheckpointingMode mode) {
  if (mode == ActivationCheckpointingMode::kSelective) return std::string("selective");
  return mode == ActivationCheckpointingMode::kFull;
}

template <typename T>
ConfigValue value_of(const std::optional<T>& value) {
  return value ? value_of(*value) : ConfigValue();
}

template <HasFields Config>
ConfigDict dict_of(const Config& config) {
  ConfigDict dict;
  for_each_field<Config>(
      [&](const auto& field) { dict.emplace_back(field.name, value_of(config.*(field.member))); });
  return dict;
}

Json to_json(const ConfigValue& value);

struct JsonOf {
  Json operator()(std::monostate) const { return Json(); }
  Json operator()(bool value) const { return Json(value); }
  Json operator()(int64_t value) const { return Json(value); }
  Json operator()(const std::string& value) const { return Json(value); }
  Json operator()(const std::vector<std::string>& values) const {
    Json list = Json::array();
    for (const std::string& value : values) list.push_back(Json(value));
    return list;
  }
  Json operator()(const std::map<std::string, std::string>& values) const {
    Json object = Json::object();
    for (const auto& [key, value] : values) object[key] = Json(value);
    return object;
  }
  template <HasFields Policy>
  Json operator()(const Policy* policy) const {
    return distributed::to_json(dict_of(*policy));
  }
};

Json to_json(const ConfigValue& value) {
  return std::visit(JsonOf(), value);
}

struct TextOf {
  std::string operator()(std::monostate) const { return "none"; }
  std::string operator()(bool value) const { return cat(value); }
  std::string operator()(int64_t value) const { return cat(value); }
  std::string operator()(const std::string& value) const { return value; }
  std::string operator()(const std::vector<std::string>& values) const {
    return cat("[", join(values, ", "), "]");
  }
  std::string operator()(const std::map<std::string, std::string>& values) const {
    std::vector<std::string> pairs;
    for (const auto& [key, value] : values) pairs.push_back(cat(key, ": ", value));
    return cat("{", join(pairs, ", "), "}");
  }
  template <HasFields Policy>
  std::string operator()(const Policy* policy) const {
    return cat("{", to_text(dict_of(*policy)), "}");
  }
};

}  // namespace

const ConfigValue* find(const ConfigDict& dict, const std::string& name) {
  for (const auto& [key, value] : dict) {
    if (key == name) return &value;
  }
  return nullptr;
}

std::string to_text(const ConfigDict& dict) {
  std::vector<std::string> pairs;
  for (const auto& [key, value] : dict) {
    pairs.push_back(cat(key, ": ", std::visit(TextOf(), value)));
  }
  return join(pairs, ", ");
}

Json to_json(const ConfigDict& dict) {
  Json object = Json::object();
  for (const auto& [key, value] : dict) object[key] = to_json(value);
  return object;
}

ConfigDict FSDP2Config::to_dict() const {
  ConfigDict dict = dict_of(*this);
  for (auto& [key, value] : dict) {
    if (key == "tp_plan" && tp_plan_name) value = *tp_plan_name;
  }
  return dict;
}

ConfigDict MegatronFSDPConfig::to_dict() const {
  return dict_of(*this);
}

ConfigDict DDPConfig::to_dict() const {
  return dict_of(*this);
}

}  // namespace automodel::distributed
