#include "recipes/check/check_tool_calls.h"

#include <algorithm>
#include <cstdint>
#include <string>
#include <utility>

#include "core/error.h"
#include "core/text.h"
#include "recipes/build/generation_config.h"
#include "recipes/check/place_of.h"

namespace automodel::recipes {

namespace {

using config::Diagnostics;
using config::Node;

/// Refuses ranks that hold parts of one sequence or of one layer, and models that write no text.
void check_company_of_tool_calls(const Recipe& recipe, Diagnostics& diagnostics) {
  const distributed::ParallelismSizes& sizes = recipe.distributed.sizes;
  const std::pair<const char*, int64_t> axes[] = {{"tp_size", sizes.tp_size.value_or(1)},
                                                  {"cp_size", sizes.cp_size.value_or(1)},
                                                  {"pp_size", sizes.pp_size.value_or(1)}};
  for (const auto& [key, size] : axes) {
    if (size <= 1) continue;
    diagnostics.unsupported(place_of(recipe, "distributed", key),
                            cat(key, " > 1 with tool_call_eval is not in this version"));
  }
  const Node& section = *recipe.root.find("tool_call_eval");
  if (recipe.model.classifies) {
    diagnostics.error(section, "a model that classifies sequences writes no tool calls");
  }
  if (recipe.dllm) {
    diagnostics.unsupported(section,
                            "tool_call_eval of models that train by diffusion is not in this "
                            "version");
  }
  if (recipe.model.reads_sources) {
    diagnostics.unsupported(section,
                            "tool_call_eval of models of an encoder and a decoder is not in this "
                            "version");
  }
}

}  // namespace

void check_tool_calls(const Recipe& recipe, int64_t num_ranks, Diagnostics& diagnostics) {
  if (!recipe.tool_calls) return;
  const ToolCallEvalSection& section = recipe.tool_calls->section;
  try {
    folder_choice(recipe.model.folder, section.do_sample);
  } catch (const UserError& error) {
    diagnostics.error(place_of(recipe, "tool_call_eval", "do_sample"), error.what());
  }
  const auto is_control = [](char c) { return static_cast<unsigned char>(c) < ' '; };
  if (section.metric_prefix.empty() || std::ranges::any_of(section.metric_prefix, is_control)) {
    diagnostics.error(place_of(recipe, "tool_call_eval", "metric_prefix"),
                      "metric_prefix begins the metrics' names: one line, and not an empty one");
  }
  const Node& node = *recipe.root.find("tool_call_eval");
  if (recipe.validation_datasets.empty()) {
    diagnostics.warning_at_key(node,
                               "'tool_call_eval' has no effect: there is no validation_dataset");
  }
  check_company_of_tool_calls(recipe, diagnostics);
  if (recipe.leaves_tool_calls_out(num_ranks)) {
    diagnostics.warning(node,
                        "tool calls are not evaluated under fsdp2 on several ranks, as in "
                        "AutoModel: run_on_fsdp2: true does");
  }
}

}  // namespace automodel::recipes
