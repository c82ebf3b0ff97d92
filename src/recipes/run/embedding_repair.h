#pragma once

#include <vector>

#include "core/reporter.h"
#include "models/causal_lm.h"
#include "recipes/read/recipe.h"
#include "tensor/shard_spec.h"

namespace automodel::recipes {

/// Does what the `embedding_row_repair` section asks for, after the base's weights were read. A row
/// of the embedding that is not finite or not longer than `min_norm` is replaced by the head's row,
/// scaled to the root mean square of the other rows' lengths, as upstream does. Every rank looks at
/// the whole table in the folder, so all find the same rows without communication, and each writes
/// what it holds. Does nothing without the section. Throws InputError when more than `max_rows`
/// rows are wrong, or when a row of the head that is needed is wrong too.
void repair_embedding_rows(const Recipe& recipe, const models::CausalLM& model,
                           const std::vector<tensor::FlatShard>& parameters, Reporter& reporter);

}  // namespace automodel::recipes
