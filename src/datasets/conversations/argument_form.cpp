#include "datasets/conversations/argument_form.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "datasets/conversations/conversation.h"

namespace automodel::datasets {

namespace {

constexpr const char* kKey = "am_key";
constexpr const char* kDumped = R"({"am_key": "am_value"})";
constexpr const char* kPrinted = "{'am_key': 'am_value'}";  // by Python

/// A conversation with a call: with an answer to it and the assistant's words behind, if `goes_on`.
Json probe_messages(const Json& arguments, bool has_system, bool goes_on) {
  Json messages = Json::array();
  if (has_system) messages.push_back(make_message("system", "a"));
  messages.push_back(make_message("user", "b"));
  Json call = make_message("assistant", "");
  // Some templates want ids of nine characters.
  call["tool_calls"] = Json(Json::Array{make_tool_call("call00000", "f", arguments)});
  messages.push_back(std::move(call));
  if (!goes_on) return messages;
  Json answer = make_message("tool", "c");
  answer["tool_call_id"] = "call00000";
  answer["name"] = "f";
  messages.push_back(std::move(answer));
  messages.push_back(make_message("assistant", "d"));
  return messages;
}

Json probe_tools() {
  Json function = Json::object();
  function["name"] = "f";
  function["description"] = "d";
  function["parameters"]["type"] = "object";
  function["parameters"]["properties"][kKey]["type"] = "string";
  Json tool = Json::object();
  tool["type"] = "function";
  tool["function"] = std::move(function);
  return Json(Json::Array{std::move(tool)});
}

}  // namespace

bool has_calls(const Json& messages) {
  return std::ranges::any_of(messages.as_array(), [](const Json& message) {
    const Json* const calls = message.find("tool_calls");
    return calls != nullptr && calls->is_array() && calls->size() > 0;
  });
}

bool takes_argument_texts(const chat::ChatTemplate& source, const Json& variables, bool has_tools,
                          int64_t now) {
  Json all = variables;
  all["tools"] = has_tools ? probe_tools() : Json();
  all["documents"] = Json();
  all["add_generation_prompt"] = Json(false);
  // What the template writes with such arguments, if it takes the conversation.
  const auto written = [&](const Json& arguments, bool has_system, bool goes_on) {
    all["messages"] = probe_messages(arguments, has_system, goes_on);
    std::optional<std::string> text;
    try {
      text = source.render(all, now).text;
    } catch (const chat::TemplateError&) {
      text.reset();
    }
    return text;
  };
  for (const bool goes_on : {false, true}) {
    for (const bool has_system : {false, true}) {
      const auto of_object = written(Json::parse(kDumped, "the probe"), has_system, goes_on);
      const auto of_text = written(Json(kDumped), has_system, goes_on);
      if (!of_object && !of_text) continue;
      const bool is_text_whole = of_text && of_text->find(kDumped) != std::string::npos;
      return is_text_whole && (!of_object || of_object->find(kPrinted) != std::string::npos);
    }
  }
  return false;
}

}  // namespace automodel::datasets
