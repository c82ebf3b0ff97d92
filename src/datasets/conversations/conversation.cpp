#include "datasets/conversations/conversation.h"

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

#include "chat/chat_template.h"
#include "core/error.h"
#include "core/text.h"
#include "datasets/rows/row_source.h"

namespace automodel::datasets {

namespace {

constexpr std::array<std::pair<std::string_view, std::string_view>, 8> kShareGptRoles = {
    {{"system", "system"},
     {"human", "user"},
     {"user", "user"},
     {"gpt", "assistant"},
     {"assistant", "assistant"},
     {"chatgpt", "assistant"},
     {"model", "assistant"},
     {"bot", "assistant"}}};

Json read_call(const Json& call, int64_t number, const std::string& where) {
  const std::string name = cat(where, ": tool_calls[", number, "]");
  const Json* function = call.find("function");
  if (function == nullptr || !function->is_object()) {
    throw InputError(cat(name, " has no object `function`"));
  }
  const Json* function_name = function->find("name");
  if (function_name == nullptr || !function_name->is_string() ||
      function_name->as_string().empty()) {
    throw InputError(cat(name, ".function has no `name`"));
  }
  const Json* arguments = function->find("arguments");
  if (arguments == nullptr || arguments->is_null()) {
    throw InputError(cat(name, ".function has no `arguments`"));
  }
  Json out = call;
  if (const Json* id = call.find("id"); id == nullptr || id->is_null()) {
    out["id"] = cat("call_", number);
  }
  if (const Json* type = call.find("type"); type == nullptr || type->is_null()) {
    out["type"] = "function";
  }
  return out;
}

void read_assistant(Json& message, const std::string& where) {
  if (Json* reasoning = message.find("reasoning_content")) {
    if (reasoning->is_null()) *reasoning = Json("");
    if (!reasoning->is_string()) {
      throw InputError(cat(where, ": reasoning_content must be text, found ", reasoning->kind()));
    }
  }
  Json* calls = message.find("tool_calls");
  if (calls == nullptr) return;
  if (calls->is_null()) {
    message.erase("tool_calls");
    return;
  }
  if (!calls->is_array()) {
    throw InputError(cat(where, ": tool_calls must be a list, found ", calls->kind()));
  }
  int64_t number = 0;
  for (Json& call : calls->as_array()) call = read_call(call, number++, where);
}

Json read_message(const Json& message, const std::string& where) {
  if (!message.is_object()) {
    throw InputError(
        cat(where, " must be an object with role and content, found ", message.kind()));
  }
  const Json* role = message.find("role");
  const bool is_known = role != nullptr && role->is_string() &&
                        (role->as_string() == "system" || role->as_string() == "user" ||
                         role->as_string() == "assistant" || role->as_string() == "tool");
  if (!is_known) {
    throw InputError(cat(where, ": the role must be system, user, assistant or tool, found ",
                         role == nullptr ? "none" : role->dump()));
  }
  Json out = message;
  const Json* content = message.find("content");
  out["content"] = content_text(content == nullptr ? Json() : *content, where);
  if (role->as_string() == "assistant") read_assistant(out, where);
  return out;
}

Json from_share_gpt(const Json& turn, const std::string& where) {
  if (!turn.is_object()) {
    throw InputError(cat(where, " must be an object with from and value, found ", turn.kind()));
  }
  const Json* from = turn.find("from");
  if (from == nullptr) from = turn.find("role");
  std::string_view role;
  for (const auto& [name, meaning] : kShareGptRoles) {
    if (from != nullptr && from->is_string() && from->as_string() == name) role = meaning;
  }
  if (role.empty()) {
    throw InputError(cat(where,
                         ": `from` must be system, human, user, gpt, assistant, chatgpt, "
                         "model or bot, found ",
                         from == nullptr ? "none" : from->dump(),
                         "; make_agent_chat_dataset is for traces of tool calls"));
  }
  const Json* value = turn.find("value");
  if (value == nullptr) value = turn.find("content");
  Json out = Json::object();
  out["role"] = role;
  out["content"] = content_text(value == nullptr ? Json() : *value, where);
  for (const char* mark : {"weight", "train"}) {
    if (const Json* said = turn.find(mark)) out[mark] = *said;
  }
  return out;
}

/// The messages with what `change` makes of every call's arguments.
template <typename Change>
Json with_arguments(const Json& messages, const Change& change) {
  Json out = messages;
  for (Json& message : out.as_array()) {
    Json* const calls = message.find("tool_calls");
    if (calls == nullptr || !calls->is_array()) continue;
    for (Json& call : calls->as_array()) {
      Json* const function = call.find("function");
      Json* const arguments = function == nullptr ? nullptr : function->find("arguments");
      if (arguments != nullptr) *arguments = change(*arguments);
    }
  }
  return out;
}

/// json.dumps of the value; `is_ascii`: its ensure_ascii.
std::string json_dumps(const Json& value, bool is_ascii) {
  static const chat::ChatTemplate source("{{ value | tojson }}", "json.dumps");
  static const chat::ChatTemplate ascii("{{ value | tojson(ensure_ascii=true) }}", "json.dumps");
  return (is_ascii ? ascii : source).render(Json(Json::Object{{"value", value}}), 0).text;
}

}  // namespace

Json with_parsed_arguments(const Json& messages) {
  return with_arguments(messages, [](const Json& arguments) {
    if (!arguments.is_string()) return arguments;
    try {
      return Json::parse(arguments.as_string(), "arguments");
    } catch (const InputError&) {
      return arguments;
    }
  });
}

Json with_argument_texts(const Json& messages) {
  return with_arguments(messages, [](const Json& arguments) {
    return arguments.is_string() ? arguments : Json(json_dumps(arguments, /*is_ascii=*/true));
  });
}

Json content_text(const Json& content, const std::string& where) {
  if (content.is_null()) return Json("");
  if (content.is_string()) return content;
  if (!content.is_array()) {
    throw InputError(
        cat(where, ": content must be text or a list of parts, found ", content.kind()));
  }
  std::vector<std::string> texts;
  for (const Json& part : content.as_array()) {
    const Json* text = part.find("text");
    if (text == nullptr || !text->is_string()) {
      throw InputError(cat(where,
                           ": a part of the content has no `text`; images, sound and video "
                           "are not read here"));
    }
    texts.push_back(text->as_string());
  }
  return Json(join(texts, " "));
}

Json read_arguments(const Json* arguments, const std::string& where) {
  if (arguments == nullptr) return Json("");
  if (!arguments->is_string()) return Json(json_dumps(*arguments, /*is_ascii=*/false));
  if (!trim(arguments->as_string()).empty()) {
    Json::parse(arguments->as_string(), cat(where, ".arguments"));
  }
  return *arguments;
}

Json make_tool_call(const std::string& id, const std::string& name, Json arguments) {
  Json call = Json::object();
  call["id"] = id;
  call["type"] = "function";
  call["function"]["name"] = name;
  call["function"]["arguments"] = std::move(arguments);
  return call;
}

std::string call_id_prefix(const Json& row) {
  const Json* id = row.find("id");
  if (id == nullptr || id->is_null()) return "call";
  return cat("call_", id->is_string() ? id->as_string() : id->dump());
}

void check_conversation_columns(const SourceDescription& description) {
  const auto has = [&](const char* column) {
    return std::ranges::find(description.columns, column) != description.columns.end();
  };
  if (has("messages") || has("conversations")) return;
  throw InputError(
      cat(description.files.front(),
          ": no column 'messages' or 'conversations'; columns: ", join(description.columns, ", ")));
}

Json read_messages(const Json& row, const std::string& origin) {
  const Json* messages = row.find("messages");
  const Json* conversations = row.find("conversations");
  const bool is_share_gpt =
      (messages == nullptr || messages->is_null()) && conversations != nullptr;
  const Json* list = is_share_gpt ? conversations : messages;
  if (list == nullptr || !list->is_array()) {
    throw InputError(cat(origin,
                         ": a row must hold a list `messages` (OpenAI) or `conversations` "
                         "(ShareGPT)"));
  }
  if (list->size() == 0) throw InputError(cat(origin, ": the conversation has no message"));
  Json out = Json::array();
  int64_t number = 0;
  for (const Json& message : list->as_array()) {
    const std::string where = cat(origin, ": message ", ++number);
    out.push_back(is_share_gpt ? from_share_gpt(message, where) : read_message(message, where));
  }
  return out;
}

Json read_tools(const Json& row, const std::string& origin) {
  const Json* tools = row.find("tools");
  if (tools == nullptr || tools->is_null()) return {};
  Json out = *tools;
  if (out.is_string()) {
    if (trim(out.as_string()).empty()) return {};
    out = Json::parse(tools->as_string(), cat(origin, ": tools"));
  }
  if (!out.is_array()) {
    throw InputError(
        cat(origin, ": tools must be a list, or a list as JSON text, found ", out.kind()));
  }
  return out.size() == 0 ? Json() : out;
}

Json make_message(const std::string& role, const std::string& content) {
  Json message = Json::object();
  message["role"] = role;
  message["content"] = content;
  return message;
}

Json question_and_answer(const std::string& question, const std::string& answer) {
  return Json(Json::Array{make_message("user", question), make_message("assistant", answer)});
}

}  // namespace automodel::datasets
