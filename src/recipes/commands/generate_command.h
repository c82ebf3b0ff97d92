#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace automodel::recipes {

struct GenerateOptions {
  std::vector<std::string> prompts;
  bool is_raw = false;  ///< prompts are texts to write on; else messages, if there is a template
  int64_t max_new_tokens = 256;
  std::string base = {};     ///< the model under an adapter; "": the one that the adapter names
  bool does_sample = false;  ///< tokens are drawn; these in place of the folder's own values:
  std::optional<double> temperature = std::nullopt;
  std::optional<int64_t> top_k = std::nullopt;
  std::optional<double> top_p = std::nullopt;
  std::optional<int64_t> seed = std::nullopt;  ///< of what is drawn; 42 without
  bool is_on_device = false;                   ///< the first CUDA device, in place of the CPU
};

/// `automodel generate`: prints what the model of a Hugging Face folder or name, of an adapter's
/// folder, or of a checkpoint that has one of these, writes behind each prompt, in float32. Returns
/// the exit status. Throws UserError for a folder that holds no model, and for one that writes no
/// text.
int run_generate_command(const std::string& model, const GenerateOptions& options);

}  // namespace automodel::recipes
