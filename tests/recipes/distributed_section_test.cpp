#include <gtest/gtest.h>

#include "config/load.h"
#include "recipes/recipe.h"

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

TEST(DistributedSectionTest, AutocastSaysWhatToSetInstead) {
  const auto warning_of = [](const std::string& strategy) {
    const config::Document document = config::load_text(
        cat("strategy: ", strategy, "\nautocast_dtype: bfloat16\n"), "distributed.yaml", {});
    config::Diagnostics diagnostics(document.sources);
    read_distributed(document.root, diagnostics);
    const auto warnings = diagnostics.render_all(config::Severity::kWarning);
    return warnings.size() == 1 ? warnings[0] : cat(warnings.size(), " warnings");
  };
  EXPECT_EQ(warning_of("fsdp2"),
            "distributed.yaml:2:1: warning: 'autocast_dtype' has no effect here: layers compute in "
            "mp_policy.param_dtype; set that [autocast_dtype]\n"
            "  autocast_dtype: bfloat16\n"
            "  ^");
  EXPECT_EQ(warning_of("ddp"),
            "distributed.yaml:2:1: warning: 'autocast_dtype' has no effect here: layers compute in "
            "the stored dtype; set model.torch_dtype [autocast_dtype]\n"
            "  autocast_dtype: bfloat16\n"
            "  ^");
}

}  // namespace
}  // namespace automodel::recipes
