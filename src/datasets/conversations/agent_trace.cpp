#include "datasets/conversations/agent_trace.h"

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>
#include <vector>

#include "core/error.h"
#include "core/text.h"
#include "datasets/conversations/conversation.h"

namespace automodel::datasets {

namespace {

constexpr std::array<std::pair<std::string_view, std::string_view>, 10> kTraceRoles = {
    {{"system", "system"},
     {"human", "user"},
     {"user", "user"},
     {"gpt", "assistant"},
     {"assistant", "assistant"},
     {"function_call", "tool_call"},
     {"tool_call", "tool_call"},
     {"observation", "tool_response"},
     {"tool_response", "tool_response"},
     {"tool", "tool_response"}}};

constexpr std::array<std::string_view, 6> kRoles = {"system",    "user",          "assistant",
                                                    "tool_call", "tool_response", "tool"};

std::string_view role_of(const Json& message) {
  const Json* role = message.find("role");
  return role != nullptr && role->is_string() ? std::string_view(role->as_string()) : "";
}

/// The text of a member; "" for one that is absent, null or no text.
std::string text_or_empty(const Json& object, const char* key) {
  const Json* member = object.find(key);
  return member != nullptr && member->is_string() ? member->as_string() : std::string();
}

Json trace_turn(const Json& turn, const std::string& where) {
  const Json* from = turn.find("from");
  const Json name = from == nullptr ? Json() : *from;
  const auto* role = std::ranges::find_if(kTraceRoles, [&](const auto& pair) {
    return name.is_string() && name.as_string() == pair.first;
  });
  if (role == kTraceRoles.end()) {
    throw InputError(cat(where,
                         ": `from` must be system, human, user, gpt, assistant, function_call, "
                         "tool_call, observation, tool_response or tool, found ",
                         from == nullptr ? "none" : name.dump()));
  }
  Json out = Json::object();
  out["role"] = role->second;
  const Json* value = turn.find("value");
  out["content"] = value == nullptr ? Json("") : *value;
  if (const Json* reasoning = turn.find("reasoning_content")) out["reasoning_content"] = *reasoning;
  return out;
}

/// A row's turns with Swift's roles.
std::vector<Json> read_turns(const Json& row, const std::string& origin) {
  const Json* messages = row.find("messages");
  const bool is_share_gpt = messages == nullptr || messages->is_null();
  const Json* list = is_share_gpt ? row.find("conversations") : messages;
  if (list == nullptr || !list->is_array()) {
    throw InputError(cat(origin,
                         ": a row must hold a list `messages` (OpenAI, Swift) or `conversations` "
                         "(ShareGPT)"));
  }
  std::vector<Json> turns;
  for (const Json& turn : list->as_array()) {
    const std::string where = cat(origin, ": message ", turns.size() + 1);
    if (!turn.is_object()) throw InputError(cat(where, " must be an object, found ", turn.kind()));
    turns.push_back(is_share_gpt ? trace_turn(turn, where) : turn);
    if (std::ranges::find(kRoles, role_of(turns.back())) == kRoles.end()) {
      const Json* role = turns.back().find("role");
      throw InputError(cat(where,
                           ": the role must be system, user, assistant, tool, tool_call or "
                           "tool_response, found ",
                           role == nullptr ? "none" : role->dump()));
    }
  }
  return turns;
}

/// Makes messages of turns, one after the other.
class TraceReader final {
 public:
  TraceReader(std::string id_prefix, std::string origin)
      : id_prefix_(std::move(id_prefix)), origin_(std::move(origin)) {}

  Json read(const std::vector<Json>& turns) {
    for (number_ = 0; number_ < turns.size();) {
      const std::string_view role = role_of(turns[number_]);
      if (role == "tool_call") {
        read_calls(turns);
      } else if (role == "tool_response" || role == "tool") {
        read_responses(turns);
      } else {
        read_message(turns[number_]);
        ++number_;
      }
    }
    return Json(std::move(out_));
  }

 private:
  std::string where() const { return cat(origin_, ": message ", number_ + 1); }

  std::string next_id() { return cat(id_prefix_, "_", num_calls_++); }

  Json read_call(const Json& turn) {
    const Json* content = turn.find("content");
    Json call = content == nullptr || content->is_null() ? Json::object() : *content;
    if (call.is_string()) {
      const std::string text = call.as_string();
      call = text.empty() ? Json::object() : Json::parse(text, where());
    }
    const std::string name = text_or_empty(call, "name");
    if (name.empty()) throw InputError(cat(where(), ": the call has no `name`"));
    pending_.push_back(next_id());
    return make_tool_call(pending_.back(), name, read_arguments(call.find("arguments"), where()));
  }

  void read_calls(const std::vector<Json>& turns) {
    Json calls = Json::array();
    pending_.clear();
    for (; number_ < turns.size() && role_of(turns[number_]) == "tool_call"; ++number_) {
      calls.push_back(read_call(turns[number_]));
    }
    const bool joins =
        !out_.empty() && role_of(out_.back()) == "assistant" && !out_.back().contains("tool_calls");
    if (!joins) out_.push_back(make_message("assistant", ""));
    out_.back()["tool_calls"] = std::move(calls);
  }

  void read_responses(const std::vector<Json>& turns) {
    const auto is_response = [](const Json& turn) {
      return role_of(turn) == "tool_response" || role_of(turn) == "tool";
    };
    for (size_t place = 0; number_ < turns.size() && is_response(turns[number_]);
         ++number_, ++place) {
      const Json& turn = turns[number_];
      std::string id = text_or_empty(turn, "tool_call_id");
      if (id.empty() && place < pending_.size()) id = pending_[place];
      if (id.empty()) id = cat(id_prefix_, "_response_", num_calls_, "_", place);
      const Json* content = turn.find("content");
      Json message = make_message("tool", content == nullptr     ? std::string()
                                          : content->is_string() ? content->as_string()
                                                                 : content->dump());
      message["tool_call_id"] = id;
      const std::string name = text_or_empty(turn, "name");
      if (!name.empty()) message["name"] = name;
      out_.push_back(std::move(message));
    }
  }

  void read_message(const Json& turn) {
    pending_.clear();
    const Json* content = turn.find("content");
    Json message = make_message(
        std::string(role_of(turn)),
        content == nullptr ? std::string() : content_text(*content, where()).as_string());
    if (role_of(turn) == "assistant") {
      const Json* reasoning = turn.find("reasoning_content");
      if (reasoning != nullptr && !reasoning->is_null() && !reasoning->is_string()) {
        throw InputError(
            cat(where(), ": reasoning_content must be text, found ", reasoning->kind()));
      }
      const std::string text = text_or_empty(turn, "reasoning_content");
      if (!text.empty()) message["reasoning_content"] = text;
      const Json* calls = turn.find("tool_calls");
      if (calls != nullptr && !calls->is_null()) message["tool_calls"] = read_own_calls(*calls);
    }
    out_.push_back(std::move(message));
  }

  Json read_own_calls(const Json& calls) {
    if (!calls.is_array()) {
      throw InputError(cat(where(), ": tool_calls must be a list, found ", calls.kind()));
    }
    Json out = Json::array();
    for (const Json& call : calls.as_array()) {
      const std::string name = cat(where(), ": tool_calls[", out.size(), "]");
      const Json* function = call.find("function");
      if (function == nullptr || !function->is_object()) {
        throw InputError(cat(name, " has no object `function`"));
      }
      const std::string function_name = text_or_empty(*function, "name");
      if (function_name.empty()) throw InputError(cat(name, ".function has no `name`"));
      std::string id = text_or_empty(call, "id");
      if (id.empty()) id = cat(id_prefix_, "_", num_calls_);
      ++num_calls_;
      pending_.push_back(id);
      out.push_back(
          make_tool_call(id, function_name, read_arguments(function->find("arguments"), name)));
    }
    return out;
  }

  std::string id_prefix_;
  std::string origin_;
  Json::Array out_;
  std::vector<std::string> pending_;  ///< ids of the calls that wait for responses
  int64_t num_calls_ = 0;
  size_t number_ = 0;  ///< of the turn that is read
};

size_t num_system_messages(const Json::Array& messages) {
  size_t count = 0;
  while (count < messages.size() && role_of(messages[count]) == "system") ++count;
  return count;
}

}  // namespace

bool has_assistant_message(const Json& row) {
  const auto any = [&](const char* list, const char* key, std::string_view other) {
    const Json* turns = row.find(list);
    return turns != nullptr && turns->is_array() &&
           std::ranges::any_of(turns->as_array(), [&](const Json& turn) {
             const std::string role = text_or_empty(turn, key);
             return role == "assistant" || role == other;
           });
  };
  const Json* messages = row.find("messages");
  if (messages != nullptr && messages->is_array()) return any("messages", "role", "assistant");
  return any("conversations", "from", "gpt");
}

Json read_trace(const Json& row, const TraceOptions& options, const std::string& origin) {
  std::vector<Json> turns = read_turns(row, origin);
  if (options.trims_incomplete_last_turn) {
    const auto last = std::find_if(turns.rbegin(), turns.rend(),
                                   [](const Json& turn) { return role_of(turn) == "assistant"; });
    if (last != turns.rend()) turns.erase(last.base(), turns.end());
  }
  Json messages = TraceReader(call_id_prefix(row), origin).read(turns);
  if (messages.size() == 0) throw InputError(cat(origin, ": the conversation has no message"));
  if (options.drops_history_reasoning) {
    bool is_last = true;
    Json::Array& list = messages.as_array();
    for (auto message = list.rbegin(); message != list.rend(); ++message) {
      if (role_of(*message) != "assistant") continue;
      if (!is_last) message->erase("reasoning_content");
      is_last = false;
    }
  }
  return messages;
}

int64_t num_exchanges(const Json& messages) {
  const Json::Array& list = messages.as_array();
  const auto begin = list.begin() + static_cast<std::ptrdiff_t>(num_system_messages(list));
  return std::count_if(begin, list.end(),
                       [](const Json& message) { return role_of(message) == "user"; });
}

Json drop_exchanges(const Json& messages, int64_t count) {
  const Json::Array& list = messages.as_array();
  const size_t num_system = num_system_messages(list);
  Json::Array kept(list.begin(), list.begin() + static_cast<std::ptrdiff_t>(num_system));
  int64_t num_dropped = -1;
  for (size_t i = num_system; i < list.size(); ++i) {
    if (role_of(list[i]) == "user") ++num_dropped;
    if (num_dropped >= count) kept.push_back(list[i]);
  }
  return Json(std::move(kept));
}

}  // namespace automodel::datasets
