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
#include "recipes/run/checkpoint_writer.h"

namespace automodel::recipes {

/// Gives the adapters of a fresh run their first values, after the base model has its weights:
/// random ones, or those of peft.adapter_name_or_path. DoRA's magnitudes are the lengths of the
/// base's rows. `parts` are this rank's stages. Every rank calls it.
void start_adapters(const Recipe& recipe,
                    const std::vector<std::shared_ptr<models::CausalLM>>& parts,
                    distributed::Engine& engine, Reporter& reporter);

/// Writes a checkpoint's adapters in the format of Hugging Face PEFT. One rank calls it.
std::vector<FileRecord> export_adapters(const Recipe& recipe, const CheckpointContents& contents,
                                        const checkpoint::TensorSource& source,
                                        const std::string& folder);

}  // namespace automodel::recipes
