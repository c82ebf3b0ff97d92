#include "datasets/conversations/tool_call_prompts.h"

#include <cstddef>
#include <utility>

#include "core/error.h"
#include "core/text.h"
#include "datasets/conversations/agent_trace.h"
#include "datasets/conversations/conversation.h"

namespace automodel::datasets {

namespace {

/// A message's calls as names and arguments; nothing where it has none.
Json calls_of(const Json& message) {
  Json out = Json::array();
  const Json* calls = message.find("tool_calls");
  if (calls == nullptr || message.at("role").as_string() != "assistant") return out;
  for (const Json& call : calls->as_array()) {
    const Json& function = call.at("function");
    const Json& arguments = function.at("arguments");
    // Arguments that are JSON have been read: what is blank still was none.
    const bool is_blank = arguments.is_string() && trim(arguments.as_string()).empty();
    Json expected = Json::object();
    expected["name"] = function.at("name");
    expected["arguments"] = is_blank ? Json::object() : arguments;
    out.push_back(std::move(expected));
  }
  return out;
}

/// The prompts of a row.
std::vector<ToolCallPrompt> prompts_of(const Json& row, const std::string& origin) {
  const Json messages = with_parsed_arguments(read_trace(row, {}, origin));
  const Json tools = read_tools(row, origin);
  const Json::Array& list = messages.as_array();
  std::vector<ToolCallPrompt> prompts;
  for (size_t i = 0; i < list.size(); ++i) {
    Json calls = calls_of(list[i]);
    if (calls.size() == 0) continue;
    const auto turn = static_cast<int64_t>(prompts.size());
    Json::Array before(list.begin(), list.begin() + static_cast<std::ptrdiff_t>(i));
    prompts.push_back({Json(std::move(before)), tools, std::move(calls), origin, turn});
  }
  return prompts;
}

}  // namespace

std::vector<ToolCallPrompt> read_tool_call_prompts(const SourceOptions& source,
                                                   std::optional<int64_t> max_samples) {
  AM_CHECK(!max_samples || *max_samples > 0, "max_samples is ", *max_samples);
  const RowSource rows(source);
  std::vector<ToolCallPrompt> prompts;
  const auto is_full = [&] {
    return max_samples && static_cast<int64_t>(prompts.size()) >= *max_samples;
  };
  for (int64_t row = 0; row < rows.size() && !is_full(); ++row) {
    for (ToolCallPrompt& prompt : prompts_of(rows.row(row), rows.origin(row))) {
      if (!is_full()) prompts.push_back(std::move(prompt));
    }
  }
  if (prompts.empty()) {
    throw InputError(cat(join_first(source.paths, 3),
                         ": no message of the assistant has tool calls in the ", rows.size(),
                         " rows that are read"));
  }
  return prompts;
}

}  // namespace automodel::datasets
