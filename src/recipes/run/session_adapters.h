#pragma once

#include <memory>
#include <string>
#include <vector>

#include "checkpoint/tensor_source.h"
#include "core/checksum.h"
#include "core/reporter.h"
#include "distributed/engine/engine.h"
#include "models/causal_lm.h"
#include "recipes/read/recipe.h"

namespace automodel::recipes {

/// Gives the adapters of a fresh run their values, once the base model has its own: drawn, or those
/// of peft.adapter_name_or_path; the lengths of DoRA are those of the base's rows. `parts` are this
/// rank's stages. Called by every rank.
void start_adapters(const Recipe& recipe,
                    const std::vector<std::shared_ptr<models::CausalLM>>& parts,
                    distributed::Engine& engine, Reporter& reporter);

/// Writes the adapters of a checkpoint as Hugging Face PEFT reads them. One rank.
std::vector<FileRecord> export_adapters(const Recipe& recipe, const models::CausalLM& model,
                                        const checkpoint::TensorSource& source,
                                        const std::string& folder);

}  // namespace automodel::recipes
