#include <gtest/gtest.h>

#include "config/load.h"
#include "core/file.h"
#include "core/text.h"
#include "recipes/check/check_run.h"
#include "recipes/read/read_distributed.h"
#include "recipes/read/read_recipe.h"
#include "recipes/read/recipe.h"
#include "support/program.h"

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

TEST(DistributedSectionTest, TheBackendCountsWhereTheEnvironmentHasNone) {
  const auto backend_of = [](const std::string& text) {
    const config::Document document = config::load_text(text, "recipe.yaml", {});
    config::Diagnostics diagnostics(document.sources);
    return read_recipe(document.root, diagnostics).dist_env.backend;
  };
  EXPECT_EQ(backend_of("distributed: {strategy: ddp}\n"), "nccl");
  EXPECT_EQ(backend_of("distributed: {strategy: ddp, backend: gloo}\n"), "gloo");
  EXPECT_EQ(backend_of("dist_env: {timeout_minutes: 5}\ndistributed: {backend: gloo}\n"), "gloo");
  EXPECT_EQ(backend_of("dist_env: {backend: nccl}\ndistributed: {backend: gloo}\n"), "nccl");
}

/// Warnings and errors of check for a recipe on some ranks.
std::vector<config::Finding> findings_of(const std::string& section, int64_t world_size) {
  std::string text = read_file(test::source_file("tests/recipes/base.yaml"));
  text = replace_all(text, "ROOT/", test::source_file(""));
  text = replace_all(text, "distributed:\n  strategy: ddp\n",
                     cat("distributed:\n  ", replace_all(section, "\n", "\n  "), "\n"));
  text = replace_all(text, "global_batch_size: 4", "global_batch_size: 8");
  const config::Document document = config::load_text(text, "recipe.yaml", {});
  config::Diagnostics diagnostics(document.sources);
  check_run(read_recipe(document.root, diagnostics), {.world_size = world_size}, diagnostics);
  std::vector<config::Finding> found = diagnostics.findings();
  std::erase_if(found, [](const auto& one) { return one.severity == config::Severity::kNote; });
  return found;
}

/// Their texts, a line each.
std::string told(const std::string& section, int64_t world_size) {
  std::string texts;
  for (const config::Finding& finding : findings_of(section, world_size)) {
    texts += finding.text + "\n";
  }
  return texts;
}

TEST(DistributedSectionTest, WhatShardingLeavesWithoutEffectIsToldOf) {
  const std::string zero3 = "strategy: megatron_fsdp\n";
  const std::string offloaded =
      "offload_policy has no effect on a CPU, whose memory parameters are in: without nccl as "
      "backend a run trains there\n";
  const std::string gathered =
      "overlap_param_gather: false has no effect where parameters are sharded (zero_dp_strategy "
      "3): the next unit's are gathered ahead\n";
  EXPECT_EQ(told(zero3 + "overlap_grad_reduce: false", 2),
            "overlap_grad_reduce: false has no effect where gradients or parameters are sharded "
            "(zero_dp_strategy 2 and 3): a unit's are reduced as soon as they are there\n");
  EXPECT_EQ(told(zero3 + "overlap_param_gather: false", 2),
            "overlap_param_gather: false has no effect where parameters are sharded "
            "(zero_dp_strategy 3): the next unit's are gathered ahead\n");
  EXPECT_EQ(told(zero3 + "overlap_grad_reduce: false\noverlap_param_gather: false\n"
                         "zero_dp_strategy: 1",
                 2),
            "");
  EXPECT_EQ(told(zero3 + "overlap_grad_reduce: false\noverlap_param_gather: false", 1), "");
  EXPECT_EQ(told("strategy: fsdp2\noffload_policy: {}", 2), offloaded);
  EXPECT_EQ(told("strategy: fsdp2\ncp_size: 2\noffload_policy: {}", 2), offloaded);
  EXPECT_EQ(told("strategy: fsdp2\ntp_size: 2\noffload_policy: {}", 2),
            "offload_policy has no effect on one data-parallel rank: it holds everything, nothing "
            "is sharded\n");
  EXPECT_EQ(told(zero3 + "cp_size: 2\noverlap_param_gather: false", 2), gathered);
}

TEST(DistributedSectionTest, KeysOfAnotherStrategySayWhoseTheyAre) {
  EXPECT_EQ(told("strategy: fsdp2\nzero_dp_strategy: 2", 1),
            "'zero_dp_strategy' is a key of megatron_fsdp, and the strategy is fsdp2\n");
  EXPECT_EQ(told("strategy: ddp\nautocast_dtype: bfloat16\ntp_plan: null", 1),
            "'tp_plan' is a key of fsdp2, and the strategy is ddp\n");
  EXPECT_EQ(told("strategy: fsdp2\nnvfsdp_unit_modules: []", 1),
            "'megatron_fsdp_unit_modules' is a key of megatron_fsdp, and the strategy is fsdp2\n");
  EXPECT_EQ(told("strategy: fsdp2\ndata_parallel_sharding_strategy: optim", 1),
            "'data_parallel_sharding_strategy' is a key of megatron_fsdp, and the strategy is "
            "fsdp2\n");
}

TEST(DistributedSectionTest, NamesOfOneSettingClash) {
  EXPECT_EQ(told("strategy: megatron_fsdp\nzero_dp_strategy: 1\n"
                 "data_parallel_sharding_strategy: optim",
                 1),
            "this says by a name what zero_dp_strategy says by a number\n");
  EXPECT_EQ(told("strategy: megatron_fsdp\nnccl_ub: false\ninit_nvfsdp_with_meta_device: false\n"
                 "init_fsdp_with_meta_device: false",
                 1),
            "'init_nvfsdp_with_meta_device' is an older name of 'init_fsdp_with_meta_device'\n");
}

TEST(DistributedSectionTest, NullKeysDoNotClash) {
  EXPECT_EQ(told("strategy: megatron_fsdp\nzero_dp_strategy: null\n"
                 "data_parallel_sharding_strategy: optim\nnvfsdp_unit_modules: null\n"
                 "megatron_fsdp_unit_modules: []",
                 1),
            "");
}

TEST(DistributedSectionTest, MistakesUnderNvfsdpsNamesStandAtThem) {
  const std::string text = told(
      "strategy: megatron_fsdp\nzero_dp_strategy: 0\n"
      "init_nvfsdp_with_meta_device: true",
      2);
  EXPECT_EQ(text,
            "init_fsdp_with_meta_device needs zero_dp_strategy 1, 2 or 3\n"
            "init_fsdp_with_meta_device changes nothing here: models never have memory before they "
            "are sharded here\n");
  constexpr int kLineOfSection = 13;  // of base.yaml: "strategy", a line for each key
  for (const config::Finding& finding : findings_of("strategy: megatron_fsdp\nzero_dp_strategy: 0\n"
                                                    "init_nvfsdp_with_meta_device: true",
                                                    2)) {
    EXPECT_EQ(finding.position.line, kLineOfSection + 2);
  }
}

}  // namespace
}  // namespace automodel::recipes
