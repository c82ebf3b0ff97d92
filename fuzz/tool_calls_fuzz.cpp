// rooms: chat
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>
#include <utility>
#include <vector>

#include "chat/tool_calls.h"
#include "core/json.h"

namespace chat = automodel::chat;

/// Any text has calls or none; scored against themselves, they are all there, and those with a name
/// are right in it and in their arguments.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const std::vector<chat::ParsedToolCall> calls = chat::parse_tool_calls(text);
  automodel::Json own = automodel::Json::array();
  for (const chat::ParsedToolCall& call : calls) {
    automodel::Json expected = automodel::Json::object();
    expected["name"] = call.name ? automodel::Json(*call.name) : automodel::Json();
    expected["arguments"] = call.arguments;
    own.push_back(std::move(expected));
  }
  const chat::ToolCallScores scores = chat::score_tool_calls(calls, own);
  for (const auto& [name, member] : chat::ToolCallScores::metrics()) {
    if (!(scores.*member >= 0 && scores.*member <= 1)) std::abort();
  }
  if (calls.empty()) return 0;
  size_t num_named = 0;
  for (const chat::ParsedToolCall& call : calls) num_named += call.name ? 1 : 0;
  const double named = static_cast<double>(num_named) / static_cast<double>(calls.size());
  if (scores.has_call != 1 || scores.name_correct < named - 1e-9) std::abort();
  return 0;
}
