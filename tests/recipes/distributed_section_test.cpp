#include <gtest/gtest.h>

#include "config/load.h"
#include "recipes/read/read_distributed.h"
#include "recipes/read/recipe.h"

namespace automodel::recipes {
namespace {

using Mode = distributed::ActivationCheckpointingMode;
using Scope = std::vector<std::string>;

/// The setup of a `distributed` section's text, which must be right.
distributed::DistributedSetup read_setup(const std::string& text) {
  const config::Document document = config::load_text(text, "distributed.yaml", {});
  config::Diagnostics diagnostics(document.sources);
  const distributed::DistributedSetup setup = read_distributed(document.root, diagnostics);
  EXPECT_TRUE(diagnostics.render_all(config::Severity::kError).empty()) << text;
  return setup;
}

TEST(DistributedSectionTest, EverySpellingOfActivationCheckpointingIsRead) {
  const auto modes_are = [](Mode mode, const Scope& spellings) {
    for (const char* strategy : {"fsdp2", "megatron_fsdp", "ddp"}) {
      if (mode == Mode::kSelective && std::string_view(strategy) == "megatron_fsdp") continue;
      for (const std::string& spelling : spellings) {
        const auto setup =
            read_setup(cat("strategy: ", strategy, "\nactivation_checkpointing: ", spelling, "\n"));
        EXPECT_EQ(distributed::activation_checkpointing_mode(setup), mode) << spelling;
      }
    }
  };
  modes_are(Mode::kOff, {"false", "off", "none", "disabled", "no", "null", "'False'", "'OFF'"});
  modes_are(Mode::kFull, {"true", "on", "full", "enabled", "yes", "'True'", "Full"});
  modes_are(Mode::kSelective, {"selective", "Selective"});
}

TEST(DistributedSectionTest, ActivationCheckpointingScopeIsNormalised) {
  const auto scope_of = [](const std::string& value) {
    return distributed::activation_checkpointing_scope(
        read_setup(cat("strategy: ddp\nactivation_checkpointing_scope: ", value, "\n")));
  };
  EXPECT_EQ(scope_of("null"), Scope({"all"}));
  EXPECT_EQ(scope_of("default"), Scope({"all"}));
  EXPECT_EQ(scope_of("[]"), Scope({"all"}));
  EXPECT_EQ(scope_of("Language"), Scope({"language"}));
  EXPECT_EQ(scope_of("[vision+audio, vision]"), Scope({"vision", "audio"}));
  EXPECT_EQ(read_setup("strategy: fsdp2\nactivation_checkpointing_scope: [language]\n")
                .fsdp2.activation_checkpointing_scope,
            Scope({"language"}));
}

TEST(DistributedSectionTest, AWrittenPolicyCastsWhatItNames) {
  const auto policy_of = [](const std::string& text) {
    return distributed::mixed_precision_policy(read_setup(text)).value();
  };
  const auto param_only = policy_of("mp_policy: {param_dtype: float16}\n");
  EXPECT_EQ(param_only.param_dtype, "float16");
  EXPECT_FALSE(param_only.reduce_dtype.has_value());
  EXPECT_FALSE(param_only.output_dtype.has_value());
  EXPECT_TRUE(param_only.cast_forward_inputs);
  const auto empty = policy_of("mp_policy: {}\n");
  EXPECT_FALSE(empty.param_dtype.has_value());
  EXPECT_TRUE(empty.cast_forward_inputs);
  const auto null = policy_of("mp_policy: {param_dtype: null, reduce_dtype: bfloat16}\n");
  EXPECT_FALSE(null.param_dtype.has_value());
  EXPECT_EQ(null.reduce_dtype, "bfloat16");
  const auto absent = policy_of("strategy: fsdp2\n");
  EXPECT_EQ(absent.param_dtype, "bfloat16");
  EXPECT_EQ(absent.reduce_dtype, "float32");
  EXPECT_FALSE(absent.cast_forward_inputs);
  const auto of_experts =
      policy_of("ep_size: 2\nmp_policy: {}\nmoe: {mp_policy: {output_dtype: float32}}\n");
  EXPECT_FALSE(of_experts.param_dtype.has_value());
  EXPECT_EQ(of_experts.output_dtype, "float32");
  EXPECT_FALSE(distributed::mixed_precision_policy(read_setup("strategy: ddp\n")).has_value());
}

}  // namespace
}  // namespace automodel::recipes
