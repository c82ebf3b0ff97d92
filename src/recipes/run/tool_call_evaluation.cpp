#include "recipes/run/tool_call_evaluation.h"

#include <algorithm>
#include <atomic>
#include <string>
#include <utility>

#include "comm/groups/sums.h"
#include "core/error.h"
#include "core/long_work.h"
#include "core/text.h"
#include "datasets/conversations/chat_format.h"
#include "datasets/conversations/tool_call_prompts.h"
#include "datasets/samples/tokenizer_encoder.h"
#include "recipes/build/generation_config.h"
#include "recipes/read/read_data.h"

namespace automodel::recipes {

namespace {

constexpr int64_t kMostPromptsAtOnce = 8;
constexpr int64_t kMostTokensAtOnce = int64_t{1} << 12;
constexpr int64_t kMostTold = 3;  // skipped prompts that are named

}  // namespace

ToolCallEvaluation::ToolCallEvaluation(const Recipe& recipe, EvaluatedModel evaluated,
                                       Reporter& reporter)
    : evaluated_(std::move(evaluated)),
      section_(recipe.tool_calls.value().section),
      is_left_out_(recipe.leaves_tool_calls_out(evaluated_.ranks.size())) {
  if (is_left_out_) return;
  models::check_writes_text(evaluated_.model);
  read_prompts(recipe, reporter);
}

std::string ToolCallEvaluation::name_of(std::string_view metric) const {
  return cat(section_.metric_prefix, "/", metric);
}

void ToolCallEvaluation::read_prompts(const Recipe& recipe, Reporter& reporter) {
  const DatasetSection& data = recipe.tool_calls->data;
  const std::string folder = tokenizer_folder(recipe, data);
  if (folder.empty()) throw InputError("tool_call_eval: the tokenizer is not on this machine");
  tokenizer_ = std::make_unique<tokenizers::Tokenizer>(tokenizers::Tokenizer::load(folder));
  const datasets::TokenizerEncoder encoder(*tokenizer_, data.encoder_options);
  end_tokens_ = end_tokens(encoder.eos_token_id(), recipe.model.hf_config, recipe.model.folder);
  choose_tokens(recipe, reporter);
  // Nothing is trained on these texts, so special tokens in them do no harm.
  const datasets::ChatFormatter formatter(encoder, data.plan->named_template(),
                                          {.allows_special_tokens = true});
  const auto all =
      datasets::read_tool_call_prompts(data.plan->source().value(), section_.max_eval_samples);
  const auto most_learned = models::most_positions(evaluated_.model);
  const auto skip = [&](const datasets::ToolCallPrompt& prompt, const std::string& why) {
    if (num_skipped_++ < kMostTold) {
      reporter.warning(cat("tool_call_eval: ", prompt.origin, ": answer ", prompt.turn,
                           " is not asked for: ", why));
    }
  };
  for (size_t i = 0; i < all.size(); ++i) {
    if (static_cast<int>(i % static_cast<size_t>(evaluated_.ranks.size())) !=
        evaluated_.ranks.rank()) {
      continue;
    }
    const datasets::ToolCallPrompt& prompt = all[i];
    Prompt made;
    made.number = i;
    try {
      made.ids = encoder.encode(formatter.prompt(prompt.messages, prompt.tools, prompt.origin),
                                /*add_special_tokens=*/false);
    } catch (const InputError& error) {
      skip(prompt, error.what());
      continue;
    }
    const auto length = static_cast<int64_t>(made.ids.size());
    if (length == 0) {
      skip(prompt, "the chat template writes nothing");
    } else if (section_.max_prompt_tokens && length > *section_.max_prompt_tokens) {
      skip(prompt,
           cat(length, " tokens are more than max_prompt_tokens ", *section_.max_prompt_tokens));
    } else if (most_learned && length >= *most_learned) {
      skip(prompt, cat(length, " tokens leave no place for an answer: the model has ",
                       *most_learned, " positions"));
    } else {
      made.calls = prompt.calls;
      prompts_.push_back(std::move(made));
    }
  }
  const double num_left_out = comm::sum_over(evaluated_.ranks, static_cast<double>(num_skipped_));
  if (evaluated_.ranks.rank() != 0 || num_left_out == 0) return;
  const bool is_none_left = num_left_out == static_cast<double>(all.size());
  reporter.warning(cat("tool_call_eval: ", static_cast<int64_t>(num_left_out), " of ", all.size(),
                       " prompts are left out", is_none_left ? ": its scores stay 0" : ""));
}

/// As transformers chooses them: the folder's generation_config.json says how.
void ToolCallEvaluation::choose_tokens(const Recipe& recipe, Reporter& reporter) {
  FolderChoice found = folder_choice(recipe.model.folder, section_.do_sample);
  choice_ = found.choice;
  choice_.seed = static_cast<uint64_t>(recipe.seed);
  if (found.without_effect.empty() || evaluated_.ranks.rank() != 0) return;
  reporter.warning(cat("tool_call_eval: generation_config.json's ",
                       join(found.without_effect, ", "),
                       found.without_effect.size() == 1 ? " has" : " have", " no effect here"));
}

std::vector<models::TokenIds> ToolCallEvaluation::group_from(
    size_t first, const models::TextGenerator& generator) const {
  std::vector<models::TokenIds> group;
  int64_t longest = 0;
  for (size_t i = first; i < prompts_.size(); ++i) {
    const auto count = static_cast<int64_t>(group.size()) + 1;
    longest = std::max(longest, static_cast<int64_t>(prompts_[i].ids.size()));
    if (count > 1 && (count > kMostPromptsAtOnce || count * longest > kMostTokensAtOnce)) break;
    group.push_back(prompts_[i].ids);
    if (count > 1 && !generator.takes_together(group)) {
      group.pop_back();
      break;
    }
  }
  return group;
}

Json ToolCallEvaluation::run(Reporter& reporter) {
  Json metrics = Json::object();
  if (is_left_out_) {
    metrics[name_of("_disabled_fsdp2")] = 1.0;
    return metrics;
  }
  models::TextGenerator generator(evaluated_.model, evaluated_.device,
                                  {section_.max_new_tokens, end_tokens_, choice_});
  std::atomic<size_t> num_done = 0;
  const LongWork told(&reporter, "prompting the model for tool calls", [&] {
    return cat(num_done.load(), " of ", prompts_.size(), " prompts of this rank",
               generator.keeps_keys() ? "" : ", whole texts again for every token");
  });
  models::GeneratingRanks ranks;
  bool is_ended = false;  // on all ranks alike
  ranks.any_goes_on = [&](bool goes_on) {
    const std::vector<int64_t> any =
        comm::max_over(evaluated_.ranks, {goes_on ? 1 : 0, evaluated_.is_ending() ? 1 : 0});
    is_ended = is_ended || (any[0] != 0 && any[1] != 0);
    return any[0] != 0 && !is_ended;
  };
  ranks.call = [this](const std::function<at::Tensor()>& forward) {
    evaluated_.engine.begin_micro_batch(true);
    const at::Tensor result = forward();
    evaluated_.engine.end_micro_batch();
    return result;
  };
  chat::ToolCallScores sum;
  while (ranks.any_goes_on(num_done < prompts_.size())) {
    const size_t first = num_done;
    const std::vector<models::TokenIds> group = group_from(first, generator);
    std::vector<uint64_t> numbers;
    for (size_t i = 0; i < group.size(); ++i) numbers.push_back(prompts_[first + i].number);
    const std::vector<models::TokenIds> written = generator.write_on(group, ranks, numbers);
    for (size_t i = 0; i < written.size(); ++i) {
      const std::string text = tokenizer_->decode(written[i], /*skip_special_tokens=*/false);
      sum += chat::score_tool_calls(chat::parse_tool_calls(text), prompts_[first + i].calls);
    }
    num_done += written.size();
  }
  if (is_ended) {
    if (evaluated_.ranks.rank() == 0) {
      reporter.warning("tool_call_eval: the run is to end; its tool calls are not scored");
    }
    return metrics;
  }
  std::vector<double> sums = {static_cast<double>(prompts_.size()),
                              static_cast<double>(num_skipped_)};
  for (const auto& [name, member] : chat::ToolCallScores::metrics()) sums.push_back(sum.*member);
  sums = comm::sum_over(evaluated_.ranks, std::move(sums));
  size_t next = 2;
  for (const auto& [name, member] : chat::ToolCallScores::metrics()) {
    metrics[name_of(name)] = sums[0] > 0 ? sums[next] / sums[0] : 0.0;
    ++next;
  }
  metrics[name_of("_skipped")] = sums[1];
  metrics[name_of("_count")] = sums[0];
  return metrics;
}

}  // namespace automodel::recipes
