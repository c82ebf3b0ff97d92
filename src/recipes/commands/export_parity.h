#pragma once

#include <string>

namespace automodel::recipes {

/// Compares an exported folder (CHECKPOINT/model/consolidated) with its checkpoint:
///   - every tensor equals the checkpoint's, rounded to the folder's dtype, to the last bit;
///   - the folder's model computes the same logits as a model with those weights;
///   - its tokenizer and chat template give the same prompts and tokens as the recipe's;
///   - config.json, generation_config.json and tokenizer files exist.
/// Prints a line for each. Returns 0 when all are right, 1 otherwise. Throws UserError when the
/// folder is not an export of a checkpoint.
int run_export_parity(const std::string& folder);

}  // namespace automodel::recipes
