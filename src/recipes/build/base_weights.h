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

/// The dtype that a run stores parameters in. `torch_dtype: auto` means that of the folder's first
/// floating tensor, or the one that config.json names when the weights are not on this machine.
at::ScalarType storage_dtype(const ModelRecipe& model);

/// How weights are read from a folder into this model: the name prefixes of tensors that are saved
/// unchanged or are to be drawn, and which tensor replaces an absent one.
checkpoint::LoadOptions load_options(const models::CausalLM& model,
                                     const checkpoint::HfFolder& folder);

/// What a classifier's folder lacks besides its head, so that adapters on it cannot be trained: a
/// text for the user. "" where it lacks nothing.
std::string missing_beside_adapters(const models::CausalLM& model,
                                    const checkpoint::HfFolder& folder);

/// Draws the values of the tensors for which `is_drawn` returns true, by the rules that the model's
/// parts state, keyed by the tensor's name and `seed`.
void draw_weights(const std::vector<std::shared_ptr<models::CausalLM>>& parts,
                  const std::vector<tensor::FlatShard>& parameters, int64_t seed,
                  const std::function<bool(const std::string&)>& is_drawn);

/// Reads a Hugging Face folder's weights into the parameters, except adapters and tensors whose
/// names begin with one of `left_out`. Each rank reads only what it holds; `progress` counts the
/// bytes. Returns the name prefixes of the tensors that remain to be drawn: `left_out`, and parts
/// of the model (CausalLM::drawn_if_absent) of which the folder has nothing.
std::vector<std::string> load_base_weights(const std::string& folder, const models::CausalLM& model,
                                           const std::vector<tensor::FlatShard>& parameters,
                                           const std::vector<std::string>& left_out,
                                           Reporter& reporter, ByteCounter* progress = nullptr);

}  // namespace automodel::recipes
