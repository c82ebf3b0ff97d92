#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <c10/core/ScalarType.h>

#include "checkpoint/hf_folder.h"
#include "core/reporter.h"
#include "models/causal_lm.h"
#include "recipes/read/recipe.h"

namespace automodel::recipes {

/// dtype of the first floating tensor of a Hugging Face folder, as `torch_dtype: auto` means.
std::optional<at::ScalarType> checkpoint_dtype(const std::string& folder);

/// The dtype that a run stores parameters in; without weights here, the one config.json names.
at::ScalarType storage_dtype(const ModelPlan& model);

/// How a model's folders are read: what it keeps as it came, and what stands in for what.
checkpoint::LoadOptions load_options(const models::CausalLM& model);

/// Draws the values of those tensors that `is_drawn` names, by the rules that the parts of a model
/// state, keyed by the tensor's name and `seed`.
void draw_weights(const std::vector<std::shared_ptr<models::CausalLM>>& parts,
                  const std::vector<tensor::FlatShard>& parameters, int64_t seed,
                  const std::function<bool(const std::string&)>& is_drawn);

/// Reads a Hugging Face folder's weights into the parameters, adapters left alone, but for tensors
/// whose names begin with one of `left_out`; each rank reads what it holds, and `progress` counts
/// it.
void load_base_weights(const std::string& folder, const models::CausalLM& model,
                       const std::vector<tensor::FlatShard>& parameters,
                       const std::vector<std::string>& left_out, Reporter& reporter,
                       ByteCounter* progress = nullptr);

}  // namespace automodel::recipes
