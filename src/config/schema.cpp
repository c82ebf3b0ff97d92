#include "config/schema.h"

#include <algorithm>
#include <cmath>

#include "config/other_names.h"
#include "core/error.h"
#include "core/text.h"

namespace automodel::config {

namespace schema_detail {

namespace {

constexpr const char* kAbsentOrPlaceholder = "\\$|^([nN]one|null|~)$";
constexpr const char* kMappingOrAbsent = "\\$|^([nN]one|null|~)$|^\\s*\\{";

Json types(std::initializer_list<const char*> names) {
  Json array = Json::array();
  for (const char* name : names) array.push_back(name);
  return array;
}

bool is_type_limit(double bound, bool is_integer) {
  return !std::isfinite(bound) || (is_integer && std::abs(bound) >= 2147483647.0);
}

Json bound(double value, bool is_integer) {
  return is_integer ? Json(static_cast<int64_t>(value)) : Json(value);
}

}  // namespace

Json scalar_schema(const char* type) {
  Json schema = Json::object();
  const bool is_string = std::string_view(type) == "string";
  // A string takes any scalar: upstream reads `2026` or "1,2" as something else, we as the text.
  schema["type"] =
      is_string ? types({"string", "number", "null"}) : types({type, "string", "null"});
  if (!is_string) schema["pattern"] = kAbsentOrPlaceholder;
  return schema;
}

Json number_schema(bool is_integer, const bind_detail::Range& range) {
  Json schema = scalar_schema(is_integer ? "integer" : "number");
  // Numbers in quotes, 1_000 and inf are strings to an editor; the loader reads them as numbers.
  schema["pattern"] =
      cat(kAbsentOrPlaceholder, "|^\\s*[-+]?([0-9.][0-9_.eExXa-fA-F+-]*|inf|nan)\\s*$");
  if (!is_type_limit(range.minimum, is_integer)) {
    schema[range.is_minimum_excluded ? "exclusiveMinimum" : "minimum"] =
        bound(range.minimum, is_integer);
  }
  if (!is_type_limit(range.maximum, is_integer)) {
    schema["maximum"] = bound(range.maximum, is_integer);
  }
  return schema;
}

Json enum_schema(const std::vector<std::string>& names) {
  Json texts = Json::array();
  bool has_bool = false;
  for (const std::string& name : names) {
    texts.push_back(name);
    const std::string word = to_lower(name);
    has_bool = has_bool || word == "true" || word == "false" || word == "on" || word == "off";
  }
  if (has_bool) {
    texts.push_back(true);
    texts.push_back(false);
  }
  texts.push_back(nullptr);
  Json known = Json::object();
  known["enum"] = std::move(texts);
  Json any_case = scalar_schema("boolean");
  any_case["type"] = "string";
  any_case["pattern"] = cat(kAbsentOrPlaceholder, "|[A-Z]");  // the loader takes any case
  Json schema = Json::object();
  Json options = Json::array();
  options.push_back(std::move(known));
  options.push_back(std::move(any_case));
  schema["anyOf"] = std::move(options);
  return schema;
}

Json list_schema(Json items) {
  Json schema = Json::object();
  schema["type"] = types({"array", "string", "null"});  // "[1, 2]" as a Python literal
  schema["items"] = std::move(items);
  return schema;
}

Json one_or_many_schema(Json list) {
  Json options = Json::array();
  if (const Json* items = list.find("items")) options.push_back(*items);
  options.push_back(std::move(list));
  Json schema = Json::object();
  schema["anyOf"] = std::move(options);
  return schema;
}

Json map_schema(Json values) {
  Json schema = Json::object();
  schema["type"] = types({"object", "string", "null"});
  schema["additionalProperties"] = std::move(values);
  return schema;
}

void describe_field(Json& schema, const char* doc, const char* no_effect, Json default_value) {
  std::string text = doc;
  if (no_effect != nullptr) text += cat(text.empty() ? "" : ". ", "No effect here: ", no_effect);
  if (!text.empty()) schema["description"] = text;
  if (!default_value.is_null()) schema["default"] = std::move(default_value);
}

Json object_schema(Json properties, Json required) {
  Json schema = Json::object();
  schema["type"] = types({"object", "string", "null"});
  schema["pattern"] = kMappingOrAbsent;  // "{'a': 1}" as a Python literal
  schema["additionalProperties"] = false;
  if (required.size() > 0) schema["required"] = std::move(required);
  schema["properties"] = std::move(properties);
  return schema;
}

Json anything() {
  return Json::object();
}

}  // namespace schema_detail

Json schema_document(Json schema, std::string_view id, std::string_view title) {
  Json document = Json::object();
  document["$schema"] = "https://json-schema.org/draft/2020-12/schema";
  document["$id"] = id;
  document["title"] = title;
  for (auto& [key, value] : schema.as_object()) document[key] = std::move(value);
  return document;
}

namespace {

std::string number_text(const Json& number) {
  return number.is_int() ? cat(number.as_int()) : cat(number.as_double());
}

std::string range_text(const Json& schema) {
  std::string text;
  if (const Json* bound = schema.find("minimum")) text += cat(", at least ", number_text(*bound));
  if (const Json* bound = schema.find("exclusiveMinimum")) {
    text += cat(", above ", number_text(*bound));
  }
  if (const Json* bound = schema.find("maximum")) text += cat(", at most ", number_text(*bound));
  return text;
}

/// Whether a key has another schema with one target than with another. The `title` of each of these
/// schemas names its targets.
bool is_of_several_targets(const Json& schema) {
  const Json* options = schema.find("anyOf");
  return options != nullptr && options->as_array()[0].contains("title");
}

/// "integer, at least 1", "one of a, b", "list of numbers", "section".
std::string type_text(const Json& schema) {
  if (is_of_several_targets(schema)) {
    std::vector<std::string> texts;
    for (const Json& variant : schema.at("anyOf").as_array()) {
      std::string text = type_text(variant);
      if (std::ranges::find(texts, text) == texts.end()) texts.push_back(std::move(text));
    }
    const bool may_be_any = std::ranges::find(texts, "any value") != texts.end();
    return may_be_any ? "any value" : join(texts, " or ");
  }
  if (const Json* options = schema.find("anyOf")) {
    const Json* names = options->as_array()[0].find("enum");
    if (names == nullptr) {
      const bool may_be_list = options->as_array()[1].contains("items");
      return cat(type_text(options->as_array()[0]), may_be_list ? ", or a list of them" : "");
    }
    std::vector<std::string> words;
    for (const Json& name : names->as_array()) {
      if (name.is_string()) words.push_back(name.as_string());
    }
    return cat("one of ", join(words, ", "));
  }
  const Json* type = schema.find("type");
  if (const Json* names = schema.find("enum"); names != nullptr && type == nullptr) {
    std::vector<std::string> words;
    for (const Json& name : names->as_array()) {
      if (name.is_string()) words.push_back(name.as_string());
    }
    return cat("one of ", join(words, ", "));
  }
  if (type == nullptr) return "any value";
  const std::string name = type->is_string() ? type->as_string() : type->as_array()[0].as_string();
  if (name == "array") {
    const Json* items = schema.find("items");
    return items == nullptr ? "list" : cat("list, each: ", type_text(*items));
  }
  if (name == "object") {
    const Json* values = schema.find("additionalProperties");
    const bool is_map = values != nullptr && values->is_object();
    return is_map ? cat("mapping of any key, each: ", type_text(*values)) : "section";
  }
  if (name == "boolean") return "true or false";
  return cat(name, range_text(schema));
}

std::string headline(std::string_view key, const Json& schema) {
  std::string text = cat(key, ": ", type_text(schema));
  if (is_of_several_targets(schema)) {
    const auto has_default = [](const Json& variant) { return variant.contains("default"); };
    const bool is_any = std::ranges::any_of(schema.at("anyOf").as_array(), has_default);
    return is_any ? cat(text, " (default by _target_)") : text;
  }
  if (const Json* value = schema.find("default")) {
    text += cat(" (default ",
                value->is_string() && value->as_string() != "" ? value->as_string() : value->dump(),
                ")");
  }
  return text;
}

std::vector<std::string> keys_of(const Json& schema) {
  std::vector<std::string> keys;
  const Json* properties = schema.find("properties");
  if (properties == nullptr) return keys;
  for (const auto& [key, value] : properties->as_object()) keys.push_back(key);
  return keys;
}

/// The schema of one key below `schema`, nullptr when there is none.
const Json* step(const Json& schema, const std::string& key) {
  if (const Json* properties = schema.find("properties")) {
    if (const Json* found = properties->find(key)) return found;
  }
  if (const Json* patterns = schema.find("patternProperties")) {
    for (const auto& [pattern, found] : patterns->as_object()) {
      AM_CHECK(pattern.starts_with('^'), pattern);  // and the rest is how keys begin
      const bool is_described = !found.as_object().empty();
      if (is_described && key.starts_with(pattern.substr(1))) return &found;
    }
  }
  const Json* values = schema.find("additionalProperties");
  if (values != nullptr && values->is_object()) return values;
  if (parse_int(key)) {
    if (const Json* items = schema.find("items")) return items;
  }
  return nullptr;
}

}  // namespace

namespace {

/// f(path, schema of the key) for every key below, those of a section after it.
template <typename F>
void for_each_key(const Json& schema, const std::string& path, const F& f) {
  for (const std::string& key : keys_of(schema)) {
    const std::string whole = path.empty() ? key : cat(path, ".", key);
    const Json& child = *schema.find("properties")->find(key);
    f(whole, child);
    for_each_key(child, whole, f);
  }
}

/// "; 'learning rate' is in the text of optimizer.lr, ..." for a name that is no key; "" for none.
std::string hint_by_text(const Json& schema, std::string_view key) {
  constexpr size_t kMostShown = 6;
  const std::string words = replace_all(to_lower(key), "_", " ");
  if (words.size() < 3) return "";
  std::vector<std::string> found;
  for_each_key(schema, "", [&](const std::string& path, const Json& of_key) {
    const Json* doc = of_key.find("description");
    const bool has_text = doc != nullptr && doc->is_string();
    if (has_text && to_lower(doc->as_string()).find(words) != std::string::npos) {
      found.push_back(path);
    }
  });
  if (found.empty()) return "";
  const size_t num_left = found.size() - std::min(found.size(), kMostShown);
  found.resize(found.size() - num_left);
  return cat("; '", words, "' is in the text of ", join(found, ", "),
             num_left == 0 ? "" : cat(" and ", num_left, " more"));
}

std::string description(const Json& schema) {
  const Json* text = schema.find("description");
  return text == nullptr ? std::string() : text->as_string();
}

/// Whether a key is described alike for all targets that have it.
bool have_one_description(const Json& schema) {
  if (!is_of_several_targets(schema)) return true;
  const Json::Array& variants = schema.at("anyOf").as_array();
  return std::ranges::all_of(
      variants, [&](const Json& it) { return description(it) == description(variants[0]); });
}

/// A line for each schema of a key that targets have differently, with the description below it
/// where descriptions differ.
std::string variants_text(const Json& schema) {
  const Json::Array& variants = schema.at("anyOf").as_array();
  const bool have_one = have_one_description(schema);
  std::string text = have_one ? cat("\n  ", description(variants[0])) : "";
  for (const Json& variant : variants) {
    text += cat("\n  ", headline(variant.at("title").as_string(), variant));
    if (!have_one) text += cat("\n      ", description(variant));
  }
  return text;
}

/// A key's headline and text; of a section also its keys.
std::string description_of(const Json& schema, const std::string& path) {
  if (is_of_several_targets(schema)) return cat(headline(path, schema), variants_text(schema));
  std::string text = headline(path, schema);
  if (const Json* doc = schema.find("description")) text += cat("\n  ", doc->as_string());
  const Json* required = schema.find("required");
  for (const std::string& key : keys_of(schema)) {
    const Json& child = *schema.find("properties")->find(key);
    bool is_required = false;
    if (required != nullptr) {
      for (const Json& name : required->as_array()) is_required |= name.as_string() == key;
    }
    text += cat("\n  ", headline(key, child), is_required ? " (required)" : "");
    const Json* doc = child.find("description");
    if (doc == nullptr) continue;
    text += cat("\n      ", doc->as_string());
    if (!have_one_description(child)) {
      text += cat("; or else, by _target_: automodel explain ", path, ".", key);
    }
  }
  return text;
}

}  // namespace

std::vector<std::string> keys_ending_with(const Json& schema, std::string_view end) {
  const std::string ending = cat(".", end);
  std::vector<std::string> found;
  for_each_key(schema, "", [&](const std::string& path, const Json&) {
    if (path.ends_with(ending)) found.push_back(path);
  });
  return found;
}

namespace {

/// The texts of the keys whose path is `end` or ends with ".end"; "" for none.
std::string explain_ending(const Json& schema, std::string_view end) {
  if (end.empty()) return "";
  std::vector<std::string> texts;
  if (step(schema, std::string(end)) != nullptr) texts.push_back(explain(schema, end));
  for (const std::string& whole : keys_ending_with(schema, end)) {
    texts.push_back(explain(schema, whole));
  }
  return join(texts, "\n");
}

}  // namespace

std::string explain(const Json& schema, std::string_view dotted_key) {
  const Json* at = &schema;
  std::string path;
  for (const std::string& key : split(dotted_key, '.')) {
    const Json* next = step(*at, key);
    if (next == nullptr) {
      const std::string_view meant = path.empty() ? name_here(key) : std::string_view();
      std::string texts = explain_ending(schema, meant);
      if (!texts.empty()) {
        texts = cat("what others call '", key, "' is said by ", meant, " here:\n", texts);
      }
      std::string own = explain_ending(schema, dotted_key);
      if (!own.empty() && !texts.empty()) own += '\n';
      if (own += texts; !own.empty()) return own;
      const std::vector<std::string> keys = keys_of(*at);
      const std::string where = path.empty() ? "a recipe" : cat("'", path, "'");
      std::string hint = hint_for_key(key, keys);
      if (hint.empty()) hint = hint_by_text(schema, key);
      if (hint.empty() && !keys.empty()) hint = cat("; its keys are ", join(keys, ", "));
      throw UserError(cat("no key '", key, "' in ", where, hint));
    }
    at = next;
    path += cat(path.empty() ? "" : ".", key);
  }
  return description_of(*at, path);
}

}  // namespace automodel::config
