#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

namespace automodel::models {

using TokenIds = std::vector<int64_t>;

/// How the next token is chosen by a model's scores. Names, meanings and the order in which they
/// act are those of transformers' GenerationConfig.
struct TokenChoice {
  bool does_sample = false;       ///< draw by probability; false: the most likely token
  double repetition_penalty = 1;  ///< what makes tokens less likely that the text has; acts always
  // The rest act where tokens are drawn.
  double temperature = 1;
  int64_t top_k = 0;  ///< only the so many most likely tokens; 0: all
  double top_p = 1;   ///< only the fewest most likely tokens that have this probability together
  double min_p = 0;   ///< only tokens that have this share of the most likely one's probability
  uint64_t seed = 42;
};

/// The probabilities that tokens are drawn with behind `text`: float32 [V], zero for those that
/// never are. `logits`: [V], any floating dtype, on the CPU.
at::Tensor token_probabilities(const at::Tensor& logits, const TokenIds& text,
                               const TokenChoice& choice);

/// The next token behind `text`. What is drawn depends on the seed, the length of the text, and
/// `number`, which tells texts of one seed apart, and on nothing else. `logits`: as above.
int64_t choose_token(const at::Tensor& logits, const TokenIds& text, const TokenChoice& choice,
                     uint64_t number);

}  // namespace automodel::models
