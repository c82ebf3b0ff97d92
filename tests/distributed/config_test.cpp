#include "distributed/settings/distributed_config.h"

#include <gtest/gtest.h>

#include "support/errors.h"

namespace automodel::distributed {
namespace {

std::string first_text(const DistributedSetup& setup, int64_t world_size) {
  const auto findings = check_setup(setup, world_size);
  return findings.empty() ? "" : findings[0].key + ": " + findings[0].text;
}

TEST(DistributedConfigTest, Fsdp2DefaultsAreTheDocumented) {
  const FSDP2Config config;
  EXPECT_FALSE(config.sequence_parallel);
  EXPECT_FALSE(config.tp_plan);
  EXPECT_TRUE(config.defer_fsdp_grad_sync);
  EXPECT_EQ(config.backend, "nccl");
  EXPECT_FALSE(config.enable_fsdp2_prefetch);
  EXPECT_EQ(config.fsdp2_backward_prefetch_depth, 2);
  EXPECT_EQ(config.fsdp2_forward_prefetch_depth, 1);
}

TEST(DistributedConfigTest, MegatronDefaultsAreTheDocumented) {
  const MegatronFSDPConfig config;
  EXPECT_EQ(config.zero_dp_strategy, 3);
  EXPECT_TRUE(config.overlap_grad_reduce);
  EXPECT_TRUE(config.overlap_param_gather);
  EXPECT_TRUE(config.check_for_nan_in_grad);
  EXPECT_FALSE(config.grad_reduce_in_fp32);
  EXPECT_EQ(config.activation_checkpointing, ActivationCheckpointingMode::kOff);
}

TEST(DistributedConfigTest, SizesThatDoNotMultiplyAreNamed) {
  DistributedSetup setup;
  setup.sizes.tp_size = 3;
  EXPECT_EQ(first_text(setup, 4),
            "tp_size: world_size (4) must be divisible by (tp_size * cp_size * pp_size) "
            "(3 * 1 * 1 = 3)");
}

TEST(DistributedConfigTest, AWrongDataParallelSizeIsNamed) {
  DistributedSetup setup;
  setup.sizes.dp_size = 3;
  EXPECT_EQ(
      first_text(setup, 4),
      "dp_size: dp_size 3 does not fit: 4 ranks / (tp 1 * cp 1 * pp 1) = 4; set it to that or "
      "to none");
}

TEST(DistributedConfigTest, DdpRefusesTheOtherAxes) {
  DistributedSetup setup;
  setup.strategy = Strategy::kDdp;
  setup.sizes.tp_size = 2;
  EXPECT_EQ(first_text(setup, 2), "tp_size: ddp does not support tensor parallelism");
}

TEST(DistributedConfigTest, MegatronRefusesPipelineAndSequenceParallelism) {
  DistributedSetup setup;
  setup.strategy = Strategy::kMegatronFsdp;
  setup.megatron_fsdp.sequence_parallel = true;
  EXPECT_EQ(first_text(setup, 1),
            "sequence_parallel: megatron_fsdp does not yet support sequence_parallel");
}

TEST(DistributedConfigTest, ReplicasMustBeFewerThanDataParallelRanks) {
  DistributedSetup setup;
  setup.sizes.dp_replicate_size = 2;
  EXPECT_EQ(
      first_text(setup, 2),
      "dp_replicate_size: dp_replicate_size=2 must be less than dp_size=2 since DDP usecase is "
      "not supported by FSDP2");
}

TEST(DistributedConfigTest, MegatronRefusesSelectiveActivationCheckpointing) {
  DistributedSetup setup;
  setup.strategy = Strategy::kMegatronFsdp;
  setup.megatron_fsdp.activation_checkpointing = ActivationCheckpointingMode::kSelective;
  EXPECT_EQ(first_text(setup, 1),
            "activation_checkpointing: selective activation checkpointing is supported only for "
            "FSDP2 and DDP configs.");
}

using Scope = std::vector<std::string>;

TEST(NormalizeActivationCheckpointingScope, NothingIsAll) {
  EXPECT_EQ(normalize_activation_checkpointing_scope({}), Scope({"all"}));
  EXPECT_EQ(normalize_activation_checkpointing_scope({""}), Scope({"all"}));
  EXPECT_EQ(normalize_activation_checkpointing_scope({" , "}), Scope({"all"}));
}

TEST(NormalizeActivationCheckpointingScope, DefaultAndAutoAreAll) {
  EXPECT_EQ(normalize_activation_checkpointing_scope({"default"}), Scope({"all"}));
  EXPECT_EQ(normalize_activation_checkpointing_scope({"AUTO", "all"}), Scope({"all"}));
}

TEST(NormalizeActivationCheckpointingScope, CommasAndPlusSignsSeparate) {
  EXPECT_EQ(normalize_activation_checkpointing_scope({"Vision+Audio, language", "vision"}),
            Scope({"vision", "audio", "language"}));
}

TEST(NormalizeActivationCheckpointingScope, OthersAreRefused) {
  EXPECT_EQ(
      test::error_of<UserError>([] { normalize_activation_checkpointing_scope({"Text-Only"}); }),
      "activation_checkpointing_scope must use only: all, audio, language, multimodal, "
      "vision. Got 'text_only'.");
}

TEST(NormalizeActivationCheckpointingScope, AllStandsAlone) {
  EXPECT_EQ(
      test::error_of<UserError>([] { normalize_activation_checkpointing_scope({"auto,vision"}); }),
      "activation_checkpointing_scope='all' cannot be combined with other scopes.");
}

TEST(DistributedConfigTest, AValidSetupHasNoFindings) {
  DistributedSetup setup;
  setup.sizes.tp_size = 2;
  EXPECT_EQ(first_text(setup, 8), "");
  EXPECT_EQ(data_parallel_size(setup, 8), 4);
}

}  // namespace
}  // namespace automodel::distributed
