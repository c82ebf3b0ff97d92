#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "chat/tool_calls.h"
#include "comm/groups/process_group.h"
#include "core/json.h"
#include "core/reporter.h"
#include "distributed/engine/engine.h"
#include "models/causal_lm.h"
#include "models/text_generator.h"
#include "models/token_choice.h"
#include "recipes/read/recipe.h"
#include "tokenizers/tokenizer.h"

namespace automodel::recipes {

/// What a session evaluates.
struct EvaluatedModel {
  models::CausalLM& model;
  distributed::Engine& engine;
  comm::ProcessGroup ranks;  ///< those that share the work, and perhaps the model's weights
  at::Device device;
  std::function<bool()> is_ending = [] { return false; };  ///< whether the run is to save and end
};

/// How well the model calls tools: the section `tool_call_eval` of a recipe. The prompts are spread
/// over the ranks, whatever the strategy.
class ToolCallEvaluation final {
 public:
  /// Reads this rank's prompts, if the strategy is one under which they are asked; `recipe` has the
  /// section. A prompt that the chat template refuses or that is too long is skipped, with a
  /// warning. Every rank calls it. Throws UserError for data that are no traces, and
  /// UnsupportedError for a model that writes no text.
  ToolCallEvaluation(const Recipe& recipe, EvaluatedModel evaluated, Reporter& reporter);

  /// The means of the scores and how many prompts they are of, by upstream's names
  /// ("tool_call/name_correct"), or "tool_call/_disabled_fsdp2" alone; none where some rank's run
  /// is to end before all is written. Every rank calls it, with the model in evaluation mode.
  Json run(Reporter& reporter);

 private:
  struct Prompt {
    models::TokenIds ids;
    Json calls;
    uint64_t number = 0;  ///< among those of all ranks
  };
  /// The next prompts, from the one at `first` on, that are computed at once.
  std::vector<models::TokenIds> group_from(size_t first,
                                           const models::TextGenerator& generator) const;
  void read_prompts(const Recipe& recipe, Reporter& reporter);
  void choose_tokens(const Recipe& recipe, Reporter& reporter);

  /// A metric's name in records.
  std::string name_of(std::string_view metric) const;

  EvaluatedModel evaluated_;
  ToolCallEvalSection section_;
  std::unique_ptr<const tokenizers::Tokenizer> tokenizer_;
  std::vector<int64_t> end_tokens_;
  models::TokenChoice choice_;
  std::vector<Prompt> prompts_;
  int64_t num_skipped_ = 0;  ///< of this rank
  bool is_left_out_;         ///< under this strategy
};

}  // namespace automodel::recipes
