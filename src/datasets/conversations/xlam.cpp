#include "datasets/conversations/xlam.h"

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

#include "core/error.h"
#include "core/text.h"
#include "datasets/conversations/conversation.h"

namespace automodel::datasets {

namespace {

/// xLAM's names of types, and JSON schema's.
constexpr std::array<std::pair<std::string_view, std::string_view>, 12> kTypes = {
    {{"str", "string"},
     {"string", "string"},
     {"int", "integer"},
     {"integer", "integer"},
     {"float", "number"},
     {"double", "number"},
     {"number", "number"},
     {"bool", "boolean"},
     {"boolean", "boolean"},
     {"list", "array"},
     {"array", "array"},
     {"object", "object"}}};

std::string_view schema_type(const Json* type) {
  if (type == nullptr || !type->is_string()) return "string";
  const std::string name = to_lower(type->as_string());
  const auto* found = std::ranges::find(kTypes, name, [](const auto& pair) { return pair.first; });
  return found == kTypes.end() ? "string" : found->second;
}

/// A list, or a list as JSON text; null is an empty one.
Json list_of(const Json& row, const char* column, const std::string& origin) {
  const Json* value = row.find(column);
  if (value == nullptr) throw InputError(cat(origin, ": no column '", column, "'"));
  const std::string where = cat(origin, ": ", column);
  Json list = value->is_string() ? Json::parse(value->as_string(), where) : *value;
  if (list.is_null()) return Json::array();
  if (!list.is_array()) {
    throw InputError(cat(where, " must be a list, or a list as JSON text, found ", list.kind()));
  }
  return list;
}

const std::string& name_of(const Json& item, const std::string& where) {
  const Json* name = item.find("name");
  if (name == nullptr || !name->is_string() || name->as_string().empty()) {
    throw InputError(cat(where, " has no `name`"));
  }
  return name->as_string();
}

Json member_or(const Json& object, const char* key, Json fallback) {
  const Json* member = object.find(key);
  if (member == nullptr) return fallback;
  return *member;
}

/// The JSON schema of a function's parameters.
Json schema_of_parameters(const Json& parameters, const std::string& where) {
  Json schema = Json::object();
  schema["type"] = "object";
  schema["properties"] = Json::object();
  Json required = Json::array();
  for (const auto& [name, described] : parameters.as_object()) {
    if (described.is_null()) continue;
    if (!described.is_object()) {
      throw InputError(
          cat(where, ": parameter '", name, "' must be an object, found ", described.kind()));
    }
    Json property = Json::object();
    property["type"] = schema_type(described.find("type"));
    property["description"] = member_or(described, "description", "");
    if (const Json* values = described.find("enum")) property["enum"] = *values;
    if (const Json* value = described.find("default")) {
      property["default"] = *value;
    } else {
      required.push_back(name);
    }
    schema["properties"][name] = std::move(property);
  }
  if (required.size() > 0) schema["required"] = std::move(required);
  return schema;
}

Json read_tool(const Json& tool, const std::string& where) {
  Json function = Json::object();
  function["name"] = name_of(tool, where);
  function["description"] = member_or(tool, "description", "");
  const Json parameters = member_or(tool, "parameters", Json());
  if (!parameters.is_null() && !parameters.is_object()) {
    throw InputError(cat(where, ".parameters must be an object, found ", parameters.kind()));
  }
  function["parameters"] =
      schema_of_parameters(parameters.is_null() ? Json::object() : parameters, where);
  Json out = Json::object();
  out["type"] = "function";
  out["function"] = std::move(function);
  return out;
}

}  // namespace

FunctionCalls read_function_calls(const Json& row, const std::string& origin) {
  FunctionCalls out;
  out.tools = Json::array();
  int64_t number = 0;
  const Json tools = list_of(row, "tools", origin);
  const Json answers = list_of(row, "answers", origin);
  for (const Json& tool : tools.as_array()) {
    out.tools.push_back(read_tool(tool, cat(origin, ": tools[", number++, "]")));
  }
  const std::string prefix = call_id_prefix(row);
  Json calls = Json::array();
  number = 0;
  for (const Json& call : answers.as_array()) {
    const std::string where = cat(origin, ": answers[", number, "]");
    calls.push_back(make_tool_call(cat(prefix, "_", number++), name_of(call, where),
                                   read_arguments(call.find("arguments"), where)));
  }
  const Json* query = row.find("query");
  if (query == nullptr || !query->is_string()) {
    throw InputError(cat(origin, ": column 'query' must hold text, it holds ",
                         query == nullptr ? "nothing" : query->kind()));
  }
  Json answer = make_message("assistant", "");
  answer["tool_calls"] = std::move(calls);
  out.messages = Json(Json::Array{make_message("user", query->as_string()), std::move(answer)});
  return out;
}

SourceOptions XlamConfig::source() const {
  return limited_source(dataset_name, split, limit_dataset_samples);
}

SourceDescription check(const XlamConfig& config) {
  config.format().validate();
  check_template(config.chat_template);
  SourceDescription description = describe_source(config.source());
  require_columns(description, {"query", "tools", "answers"});
  return description;
}

XlamDataset::XlamDataset(const XlamConfig& config, const TextEncoder& encoder)
    : source_((config.format().validate(), config.source())),
      formatter_(encoder, config.chat_template, ChatFormatOptions{.format = config.format()}) {
  at(0);  // wrong columns are an error now, not in the first batch
}

Sample XlamDataset::at(int64_t index) const {
  const std::string origin = source_.origin(index);
  const FunctionCalls calls = read_function_calls(source_.row(index), origin);
  Sample sample = formatter_.format(calls.messages, calls.tools, origin);
  sample.row = index;
  return sample;
}

}  // namespace automodel::datasets
