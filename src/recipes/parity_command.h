#pragma once

#include <string>

namespace automodel::recipes {

/// Largest differences that `automodel parity` accepts.
struct ParityTolerances {
  double logits = 1e-4;  ///< absolute
  double loss = 1e-5;    ///< relative
  double grad = 1e-3;    ///< relative, L2 of each tensor
};

/// Runs the model of a Hugging Face folder on a reference file's input_ids and labels, compares
/// logits, loss, every gradient and the losses of AdamW steps (whichever the file holds) and prints
/// the worst differences. Returns 0 when all are inside the tolerances, 1 otherwise.
int run_parity_command(const std::string& model_folder, const std::string& reference,
                       const ParityTolerances& tolerances);

}  // namespace automodel::recipes
