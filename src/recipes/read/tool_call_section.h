#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "core/field.h"

namespace automodel::recipes {

/// `tool_call_eval`: when a run validates, the model is prompted with conversations that end before
/// the assistant calls tools, and what it writes is compared with the calls that were made. Names
/// and defaults are upstream's, but for chat_template and tokenizer, which are the dataset's where
/// they are left out.
struct ToolCallEvalSection {
  std::optional<std::string> dataset_name = std::nullopt;
  std::vector<std::string> path;
  std::string split = "train";
  std::optional<int64_t> limit_dataset_samples = std::nullopt;
  std::optional<std::string> chat_template = std::nullopt;
  std::optional<int64_t> max_eval_samples = std::nullopt;
  int64_t max_new_tokens = 256;
  std::optional<int64_t> max_prompt_tokens = std::nullopt;
  bool do_sample = false;
  std::string metric_prefix = "tool_call";
  bool raise_on_cuda_oom = true;
  bool run_on_fsdp2 = false;

  static constexpr auto fields() {
    using S = ToolCallEvalSection;
    return std::tuple{
        field("dataset_name", &S::dataset_name,
              "data set of the hub, or a folder of rows, with agents' traces; this or path"),
        field("path", &S::path, "file of rows, or a list of them; this or dataset_name").or_one(),
        field("split", &S::split, "split of dataset_name, with an optional slice"),
        field("limit_dataset_samples", &S::limit_dataset_samples,
              "use only the first rows, unless split has a slice")
            .at_least(1),
        field("chat_template", &S::chat_template,
              "template, or a file with one, in place of the dataset's or the tokenizer's own"),
        field("max_eval_samples", &S::max_eval_samples,
              "use only the first prompts: a row has one for each answer that calls tools")
            .at_least(1),
        field("max_new_tokens", &S::max_new_tokens, "most tokens that are written behind a prompt")
            .at_least(1),
        field("max_prompt_tokens", &S::max_prompt_tokens, "longer prompts are skipped").at_least(1),
        field("do_sample", &S::do_sample,
              "draw tokens, as the model's generation_config.json says; false: take the most "
              "likely one"),
        field("metric_prefix", &S::metric_prefix, "begins the metrics' names, before a slash"),
        field("raise_on_cuda_oom", &S::raise_on_cuda_oom, "a device without memory ends the run")
            .without_effect("a device that has no memory left ends the run in any case"),
        field("run_on_fsdp2", &S::run_on_fsdp2,
              "prompt the model under fsdp2 on several ranks too")};
  }
};

}  // namespace automodel::recipes
