#pragma once

#include <c10/core/Device.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "models/causal_lm.h"
#include "models/token_choice.h"
#include "nn/cached_attention.h"

namespace automodel::models {

/// What is done around the forwards of ranks that hold a model's weights together.
struct GeneratingRanks {
  /// Whether any rank goes on; all ranks call it before each forward with whether they do.
  std::function<bool(bool goes_on)> any_goes_on = [](bool goes_on) { return goes_on; };
  /// Calls a forward, as a strategy wants it called.
  std::function<at::Tensor(const std::function<at::Tensor()>& forward)> call =
      [](const auto& forward) { return forward(); };
};

struct GenerationOptions {
  int64_t max_new_tokens = 256;
  std::vector<int64_t> end_tokens;  ///< a sequence ends behind the first of these
  TokenChoice choice = {};
};

/// The most tokens that a sequence of a model may have: those that it has learned positions of.
/// Absent: any number.
std::optional<int64_t> most_positions(const CausalLM& model);

/// Throws UnsupportedError for a model that does not write a text from left to right.
void check_writes_text(const CausalLM& model);

/// Writes on where texts end, token by token. A model whose layers need nothing of the tokens
/// before but their keys and values computes each token once; of others the whole sequences are
/// computed again for each token.
class TextGenerator final {
 public:
  /// The model is whole on this rank or a strategy gathers its weights. Until this object ends it
  /// must be in evaluation mode, with the attention core that this object gives it; then it has the
  /// local one.
  TextGenerator(CausalLM& model, at::Device device, GenerationOptions options);
  ~TextGenerator();
  TextGenerator(const TextGenerator&) = delete;
  TextGenerator& operator=(const TextGenerator&) = delete;

  /// The tokens behind each prompt, the end token among them; a sequence ends, too, where the model
  /// has no more positions. The prompts are computed at once: several only if takes_together().
  /// Each has a token at least, and at most most_positions(). Every rank of `ranks` calls it, with
  /// no prompts where it has none. `numbers`: which of all prompts these are, so that what is drawn
  /// behind one does not depend on those beside it; {}: the first ones.
  std::vector<TokenIds> write_on(const std::vector<TokenIds>& prompts, const GeneratingRanks& ranks,
                                 std::vector<uint64_t> numbers = {});

  /// Whether a forward of all these prompts, and of what is written behind them, computes each as
  /// one of it alone does. Rotations of some models depend on the longest sequence, and which of
  /// several equal scores an indexer chooses on the number of keys.
  bool takes_together(const std::vector<TokenIds>& prompts) const;
  /// Whether keys and values of the tokens before are kept, of prompts that it takes together.
  bool keeps_keys() const { return cache_ != nullptr; }

 private:
  /// What a forward has: whole sequences, whose keys are kept or not, or their newest tokens.
  enum class Pass { kWhole, kFirst, kNewest };
  /// Scores of the next token of each sequence: [n, V] on the CPU, or, where the most likely one is
  /// all that counts, that token: [n].
  at::Tensor scores(const std::vector<TokenIds>& sequences, Pass pass,
                    const GeneratingRanks& ranks);
  bool takes_most_likely() const;
  tensor::Batch whole_batch(const std::vector<TokenIds>& sequences) const;
  tensor::Batch newest_batch(const std::vector<TokenIds>& sequences) const;
  void idle(const GeneratingRanks& ranks);

  CausalLM& model_;
  at::Device device_;
  GenerationOptions options_;
  std::shared_ptr<nn::CachedAttention> cache_;  ///< null: sequences are computed again
};

}  // namespace automodel::models
