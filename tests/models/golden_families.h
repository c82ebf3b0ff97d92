#pragma once

#include <string>
#include <vector>

namespace automodel::test {

/// Every model of tests/golden that reads a text.
inline std::vector<std::string> golden_families() {
  return {"llama_default",
          "llama_llama3_tied",
          "llama_linear_biases",
          "llama_yarn_head_dim",
          "llama_dynamic_padding",
          "qwen2_tied",
          "qwen2_window",
          "qwen3_tied",
          "qwen3_bias_window_yarn",
          "mistral_window",
          "mistral_full",
          "phi3_default",
          "phi3_longrope_short",
          "phi3_longrope_long_partial",
          "gemma",
          "gemma2",
          "gemma3_text",
          "gpt2",
          "gpt2_inner_untied",
          "olmo2",
          "olmo2_bias_tied",
          "granite",
          "granite_biases",
          "qwen3_moe",
          "qwen3_moe_padding",
          "mixtral",
          "glm4_moe",
          "glm4_moe_groups",
          "deepseek_v3",
          "deepseek_v3_plain_queries",
          "gpt_oss"};
}

}  // namespace automodel::test
