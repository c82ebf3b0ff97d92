#pragma once

#include <string>
#include <vector>

#include "config/diagnostic.h"
#include "config/node.h"
#include "recipes/read/recipe.h"

namespace automodel::recipes {

/// Top-level keys and sections of distillation.
const std::vector<std::string>& distillation_keys();

/// Reads them into recipe.distillation where the recipe's class distils; elsewhere they are unknown
/// keys (part of read_recipe). The other sections were read before.
void read_distillation(const config::Node& root, Recipe& recipe, config::Diagnostics& diagnostics);

/// The teacher as a recipe of its own, for all that builds, checks, plans or loads a model: the
/// student's mesh and strategy, or those of its own ranks, and nothing that trains. Its pipeline is
/// split by its own layers. Its root has the section `model` where the recipe has `teacher_model`
/// (and `distributed` where it has `teacher_distributed`), and places stay. `recipe` distils.
Recipe teacher_recipe(const Recipe& recipe);

/// How a run's ranks are dealt: the student's come first.
struct RankShares {
  int64_t student = 0;
  int64_t teacher = 0;  ///< 0: it is on the student's ranks
};

/// The ranks of the student and of the teacher in a run of `world_size` ranks. On ranks of their
/// own, each has as many as its mesh says, whatever the world's size.
RankShares rank_shares(const Recipe& recipe, int64_t world_size);

}  // namespace automodel::recipes
