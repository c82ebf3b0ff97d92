#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace automodel::recipes {

struct GenerateOptions {
  std::vector<std::string> prompts;
  bool is_raw = false;  ///< prompts are texts to write on; else messages, if there is a template
  int64_t max_new_tokens = 256;
  bool is_on_device = false;  ///< the first CUDA device, in place of the CPU
};

/// `automodel generate`: prints what the model of a Hugging Face folder, or of a checkpoint that
/// has one, writes behind each prompt, in float32 and with the most likely token each time. Returns
/// the exit status. Throws UserError for a folder that holds no model, and for one that writes no
/// text.
int run_generate_command(const std::string& model, const GenerateOptions& options);

}  // namespace automodel::recipes
