#pragma once

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include "core/json.h"
#include "models/causal_lm.h"
#include "models/token_choice.h"

namespace automodel::test {

/// A golden family that writes many different tokens.
inline constexpr const char* kWritingFamily = "cohere_biases";

inline models::TokenIds ids_of(const Json& ids) {
  models::TokenIds all;
  for (const Json& id : ids.as_array()) all.push_back(id.as_int());
  return all;
}

/// Logits of the last of `ids` by a forward of all of them: [V].
inline at::Tensor last_logits(models::CausalLM& model, const models::TokenIds& ids) {
  const at::NoGradGuard no_grad;
  tensor::Batch batch;
  batch.input_ids = at::tensor(ids, at::kLong).unsqueeze(0);
  const at::Tensor hidden = model.hidden_states(batch);
  return model.logits(hidden.narrow(1, batch.sequence_length() - 1, 1)).flatten();
}

}  // namespace automodel::test
