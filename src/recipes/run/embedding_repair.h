#pragma once

#include <vector>

#include "core/reporter.h"
#include "models/causal_lm.h"
#include "recipes/read/recipe.h"
#include "tensor/shard_spec.h"

namespace automodel::recipes {

/// The `embedding_row_repair` section, after the base's weights were read: rows of the embedding
/// that are not finite or not longer than `min_norm` get the direction of the head's rows and the
/// root mean square of the other rows' lengths, as upstream's do. What is wrong is seen in the
/// folder, so every rank finds the same without asking others, and writes what it holds. Does
/// nothing without the section. InputError where more than `max_rows` rows are wrong, or their
/// rows of the head are too.
void repair_embedding_rows(const Recipe& recipe, const models::CausalLM& model,
                           const std::vector<tensor::FlatShard>& parameters, Reporter& reporter);

}  // namespace automodel::recipes
