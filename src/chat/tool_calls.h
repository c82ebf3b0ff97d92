#pragma once

#include <array>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/json.h"

namespace automodel::chat {

/// A tool call that a model wrote.
struct ParsedToolCall {
  std::optional<std::string> name;   ///< none where the call's JSON is broken
  Json arguments = Json::object();   ///< an object, empty when they are not valid
  bool has_valid_arguments = false;  ///< they are a JSON object, or the text of one
};

/// The tool calls of a generated text, in its order, as upstream's evaluation finds them. Forms are
/// tried one after the other, and the first that any call is written in is the text's:
///   - Harmony: `<|channel|>commentary to=functions.NAME<|message|>{ARGUMENTS}`
///   - Qwen, Hermes: `<tool_call>CALL</tool_call>`, also with a list of calls
///   - Llama: `<|python_tag|>CALL`
///   - Mistral: `[TOOL_CALLS][CALL, CALL]`
///   - any JSON object with a name.
/// A CALL is an object with `name` and `arguments` (or `parameters`), which may be JSON text; one
/// without a name is none. Broken JSON in Qwen's or Llama's form is a call without a name, and in
/// Harmony's one without valid arguments; elsewhere it is no call. Takes any text, bytes that are
/// not UTF-8 as U+FFFD, and time nearly linear in its length. A \u escape of half a surrogate pair
/// is kept as three bytes that are not valid UTF-8.
std::vector<ParsedToolCall> parse_tool_calls(std::string_view text);

/// How well calls agree with those that were expected: means over the expected ones, of 0 to 1
/// each.
struct ToolCallScores {
  double has_call = 0;              ///< there is a call in its place
  double name_correct = 0;          ///< with its name
  double args_json_valid = 0;       ///< with valid arguments
  double args_field_recall = 0;     ///< share of the expected arguments' keys that it has
  double args_field_precision = 0;  ///< share of its arguments' keys that are expected
  double args_exact_match = 0;      ///< with equal arguments

  /// The scores with upstream's names.
  static constexpr auto metrics() {
    using Scores = ToolCallScores;
    using Metric = std::pair<std::string_view, double Scores::*>;
    return std::array{Metric{"has_call", &Scores::has_call},
                      Metric{"name_correct", &Scores::name_correct},
                      Metric{"args_json_valid", &Scores::args_json_valid},
                      Metric{"args_field_recall", &Scores::args_field_recall},
                      Metric{"args_field_precision", &Scores::args_field_precision},
                      Metric{"args_exact_match", &Scores::args_exact_match}};
  }

  ToolCallScores& operator+=(const ToolCallScores& other);
  ToolCallScores& operator/=(double count);
};

/// Compares the calls of a text with `expected`, a list of objects with `name` and `arguments` (an
/// object, or its JSON text), each with the call in its place, as upstream does. Further calls
/// count nothing; without an expected call everything is 0. Arguments are equal where Python's
/// dicts are: in any order, 1 as 1.0 and true; NaN equals NaN, as it does for upstream, whose
/// reader has one NaN only. Throws InputError when `expected` is no list.
ToolCallScores score_tool_calls(const std::vector<ParsedToolCall>& predicted, const Json& expected);

}  // namespace automodel::chat
