// Layers whose checkpoints join what upstream keeps apart: Ling's query_key_value.
#include <gtest/gtest.h>

#include "core/json.h"
#include "core/text.h"
#include "models/catalog.h"
#include "models/causal_lm.h"
#include "peft/apply_lora.h"
#include "support/temporary_directory.h"

namespace automodel::peft {
namespace {

PeftChoice chosen(const PeftConfig& config) {
  const std::string file = test::source_file("tests/golden/bailing_moe_v2/config.json");
  return choose_modules(*models::build_causal_lm(Json::parse_file(file), at::kFloat), config);
}

std::string modules_of_first_layer(const PeftConfig& config) {
  std::vector<std::string> names;
  const std::string layer = "model.layers.0.";
  for (const auto& module : chosen(config).modules) {
    if (module.name.starts_with(layer)) names.push_back(module.name.substr(layer.size()));
  }
  return join(names, " ");
}

std::string findings_of(const PeftConfig& config) {
  std::vector<std::string> texts;
  for (const PeftFinding& finding : chosen(config).findings) {
    texts.push_back(cat(finding.key, ": ", finding.text));
  }
  return join(texts, "\n");
}

TEST(JoinedLayers, UpstreamsPatternsMeanTheWhole) {
  EXPECT_EQ(modules_of_first_layer({.target_modules = {"*_proj"}}),
            "attention.query_key_value attention.dense mlp.gate_proj mlp.up_proj mlp.down_proj");
  EXPECT_EQ(modules_of_first_layer({.target_modules = {"*.q_proj", "*.k_proj", "*.v_proj"}}),
            "attention.query_key_value");
  EXPECT_EQ(modules_of_first_layer({.target_modules = {"*.query_key_value"}}),
            "attention.query_key_value");
  EXPECT_EQ(modules_of_first_layer({.exclude_modules = {"*.mlp.*", "*.o_proj"}}),
            "attention.query_key_value");
}

TEST(JoinedLayers, PatternsOfAPartAreRefused) {
  const std::string text =
      ": the model's checkpoints have one tensor, model.layers.0.attention.query_key_value, for "
      "all "
      "of its parts, so they get adapters together or not at all; model.layers.0.self_attn.";
  EXPECT_EQ(findings_of({.target_modules = {"*.q_proj", "*.v_proj"}}),
            cat("target_modules", text, "k_proj is left out"));
  EXPECT_EQ(findings_of({.exclude_modules = {"*.v_proj"}}),
            cat("exclude_modules", text, "v_proj is left out"));
  EXPECT_EQ(findings_of({.target_modules = {"*_proj"}}), "");
}

}  // namespace
}  // namespace automodel::peft
