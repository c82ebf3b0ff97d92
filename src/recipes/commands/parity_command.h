#pragma once

#include <string>

namespace automodel::recipes {

/// The largest differences that `automodel parity` accepts, and which kernels it runs.
struct ParityOptions {
  double logits = 1e-4;           ///< absolute
  double loss = 1e-5;             ///< relative
  double grad = 1e-3;             ///< relative, L2 of each tensor
  bool takes_plain_path = false;  ///< without kernels of our own
  bool is_on_device = false;      ///< the first CUDA device, not the CPU
};

/// Runs the model of a Hugging Face folder on a reference file's input_ids and labels. Compares
/// those of logits, loss, gradients and losses of AdamW steps that the file holds, and prints the
/// worst differences. Returns 0 when all are within the tolerances, 1 otherwise. Throws
/// UnsupportedError where a device is wanted and there is none.
int run_parity_command(const std::string& model_folder, const std::string& reference,
                       const ParityOptions& options);

}  // namespace automodel::recipes
