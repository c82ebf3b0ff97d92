#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/json.h"
#include "datasets/rows/row_source.h"

namespace automodel::datasets {

/// A conversation that ends where the assistant is to call tools, and the calls of the trace.
struct ToolCallPrompt {
  Json messages;       ///< in OpenAI's form, as read_trace() makes them
  Json tools;          ///< null: none
  Json calls;          ///< a list of {"name", "arguments"}; absent or blank arguments are {}
  std::string origin;  ///< of the row: "file:line"
  int64_t turn = 0;    ///< which of the row's messages with calls it ends before, from 0
};

/// A prompt for each of the assistant's messages with tool calls, in the rows' order: everything
/// before that message. Of a message with text too, the text is left out with the calls. Rows are
/// traces (agent_trace.h), read until there are `max_samples` prompts (at least 1; none: all).
/// Throws InputError for rows that are no traces, and where no message has calls.
std::vector<ToolCallPrompt> read_tool_call_prompts(const SourceOptions& source,
                                                   std::optional<int64_t> max_samples);

}  // namespace automodel::datasets
