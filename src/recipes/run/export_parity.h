#pragma once

#include <string>

namespace automodel::recipes {

/// Holds an exported folder (CHECKPOINT/model/consolidated) against the checkpoint that it lies in:
///   - every tensor is the checkpoint's, rounded to the dtype in the folder, to the last bit;
///   - the folder's model gives the logits of a model with those weights;
///   - its tokenizer and chat template write the prompts and tokens that the recipe's do;
///   - config.json, generation_config.json and tokenizer files are there.
/// Prints a line for each. Returns 0 when all of it holds, 1 otherwise. Throws UserError when the
/// folder is no export of a checkpoint here.
int run_export_parity(const std::string& folder);

}  // namespace automodel::recipes
