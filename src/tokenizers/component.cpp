#include "tokenizers/component.h"

#include "core/error.h"
#include "core/text.h"
#include "tokenizers/unicode.h"

namespace automodel::tokenizers {

Component::Component(const Json& json, std::string file, std::string path)
    : json_(&json), file_(std::move(file)), path_(std::move(path)) {
  if (!json.is_object()) {
    throw InputError(cat(file_, ": ", path_, ": expected an object, found ", json.kind()));
  }
  const Json* type = json.find("type");
  if (type == nullptr || !type->is_string()) {
    throw InputError(cat(file_, ": ", path_, ": the component has no \"type\""));
  }
  type_ = type->as_string();
}

std::string Component::where() const {
  return cat(file_, ": ", path_, " (", type_, ")");
}

void Component::fail(std::string_view what) const {
  throw InputError(cat(where(), ": ", what));
}

void Component::fail_unknown(std::span<const std::string_view> known) const {
  std::vector<std::string> names(known.begin(), known.end());
  throw InputError(cat(file_, ": ", path_, ": unknown component '", type_, "'",
                       did_you_mean(type_, names), "; known here: ", join(names, ", ")));
}

bool Component::flag(std::string_view key, bool fallback) const {
  const Json* value = json_->find(key);
  if (value == nullptr || value->is_null()) return fallback;
  if (!value->is_bool()) fail(cat(key, " must be a boolean, found ", value->kind()));
  return value->as_bool();
}

int64_t Component::integer(std::string_view key, int64_t fallback) const {
  const Json* value = json_->find(key);
  if (value == nullptr || value->is_null()) return fallback;
  if (!value->is_int() || value->as_int() < 0) {
    fail(cat(key, " must be a whole number, not negative"));
  }
  return value->as_int();
}

std::string Component::text(std::string_view key, const std::string& fallback) const {
  const Json* value = json_->find(key);
  if (value == nullptr || value->is_null()) return fallback;
  return text(key);
}

std::string Component::text(std::string_view key) const {
  const Json& value = member(key);
  if (!value.is_string()) fail(cat(key, " must be a string, found ", value.kind()));
  return value.as_string();
}

const Json& Component::member(std::string_view key) const {
  const Json* value = json_->find(key);
  if (value == nullptr) fail(cat("'", key, "' is missing"));
  return *value;
}

char32_t Component::character(std::string_view key) const {
  const std::string value = text(key);
  size_t size = 0;
  const char32_t c = value.empty() ? 0 : next_code_point(value, size);
  if (value.empty() || size != value.size()) fail(cat(key, " must be one character"));
  return c;
}

Regex Component::pattern(std::string_view key) const {
  const Json& value = member(key);
  if (value.is_string()) return Regex::from_literal(value.as_string(), where());
  const Json* regex = value.find("Regex");
  const Json* literal = value.find("String");
  if (regex != nullptr && regex->is_string()) {
    return Regex::from_pattern(regex->as_string(), where());
  }
  if (literal == nullptr || !literal->is_string()) {
    fail(cat(key, " must be {\"Regex\": ...} or {\"String\": ...}"));
  }
  return Regex::from_literal(literal->as_string(), where());
}

std::vector<Component> Component::list(std::string_view key) const {
  const Json& value = member(key);
  if (!value.is_array()) fail(cat(key, " must be a list, found ", value.kind()));
  std::vector<Component> parts;
  for (size_t i = 0; i < value.as_array().size(); ++i) {
    parts.emplace_back(value.as_array()[i], file_, cat(path_, ".", key, "[", i, "]"));
  }
  return parts;
}

}  // namespace automodel::tokenizers
