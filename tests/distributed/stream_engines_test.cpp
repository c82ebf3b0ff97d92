// Whole engines over groups that behave as those of an accelerator's streams do and keep NCCL's
// rules (tests/comm/recording_group.h, nccl_rules.h): values are those of plain groups to the bit.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "distributed/context/context_parallel.h"
#include "distributed/model_classes.h"
#include "distributed/recorded_training.h"
#include "distributed/small_llama.h"
#include "distributed/toy_model.h"

namespace automodel::distributed {
namespace {

using comm::expect_rank_threads;
using comm::expect_same_when_recorded;
using comm::Groups;

/// Two micro-batches of a mixture of experts; every rank has other tokens.
std::vector<at::Tensor> train_mixture(const DeviceMesh& mesh, ParallelizeOptions options) {
  options.mp_policy = MixedPrecisionPolicy{.param_dtype = {}, .reduce_dtype = {}};
  SmallLlama moe({{"num_experts", Json(8)}}, at::kFloat, "qwen3_moe");
  const auto engine = fsdp2_strategy_parallelize(moe.parallel(), mesh, options);
  fill_by_name(*engine);
  const int rank = mesh.group("dp").rank();
  return values_of_a_step(*engine, 2, [&](int number) { return moe.loss(9 + rank + number); });
}

TEST(StreamEnginesTest, ExpertsOnSeveralRanksTrainAsOverPlainGroups) {
  expect_rank_threads(4, [](comm::World& world) {
    const DeviceMesh shared(world, mesh::Mesh({.dp_shard = 4}), 2);  // ep 2 times ep_shard 2
    const DeviceMesh replicas(world, mesh::Mesh({.dp_replicate = 2, .dp_shard = 2}), 2);
    const DeviceMesh split(world, mesh::Mesh({.dp_shard = 2, .tp = 2}), 4);
    const std::pair<const char*, const DeviceMesh*> meshes[] = {
        {"experts that two ranks share", &shared},
        {"replicas", &replicas},
        {"layers split over pairs", &split}};
    for (const auto& [name, mesh] : meshes) {
      for (const bool keeps : {false, true}) {
        expect_same_when_recorded(world, cat(name, ", kept ", keeps), [&](const Groups& over) {
          ParallelizeOptions options;
          options.enable_fsdp_optimizations = keeps;
          return train_mixture(mesh_over(*mesh, over), options);
        });
      }
    }
  });
}

TEST(StreamEnginesTest, MixturesKeptBetweenMicroBatchesTrainAsOverPlainGroups) {
  expect_rank_threads(2, [](comm::World& world) {
    const DeviceMesh mesh(world, mesh::Mesh({.dp_shard = 2}));
    for (const bool reshards : {false, true}) {
      expect_same_when_recorded(world, cat("resharding ", reshards), [&](const Groups& over) {
        ParallelizeOptions options;
        options.enable_fsdp_optimizations = true;
        options.sharding.reshard_after_forward = reshards;
        return train_mixture(mesh_over(mesh, over), options);
      });
    }
  });
}

/// A Llama under Megatron-FSDP; context-parallel ranks have parts of one batch.
std::vector<at::Tensor> train_megatron(const DeviceMesh& mesh, const std::string& placements) {
  SmallLlama llama;
  NvfsdpOptions options = nvfsdp_options({}, llama.facts.architecture, model_classes());
  options.data_parallel_sharding_strategy = placements;
  ParallelModel parallel = llama.parallel();
  parallel.set_attention_core = [&](std::shared_ptr<nn::AttentionCore> core) {
    llama.model->set_attention_core(std::move(core));
  };
  SilentReporter reporter;
  const auto engine = nvfsdp_strategy_parallelize(parallel, mesh, options, reporter);
  fill_by_name(*engine);
  const ContextParallelSharder sharder(mesh.group("cp"), -100);
  const int reader = mesh.group("dp").rank();
  return values_of_a_step(*engine, 2, [&](int number) {
    tensor::Batch batch;
    batch.input_ids =
        at::remainder(at::arange(24).pow(2) * 7 + 3 + number + 5 * reader, 128).view({2, 12});
    batch.labels = at::remainder(batch.input_ids * 5 + 1, 128);
    return llama.model->loss(sharder.shard(batch), 10.0, -100);
  });
}

TEST(StreamEnginesTest, MegatronFsdpWithSplitLayersAndSequencesTrainsAsOverPlainGroups) {
  expect_rank_threads(4, [](comm::World& world) {
    const DeviceMesh layers(world, mesh::Mesh({.dp_shard = 2, .tp = 2}));
    const DeviceMesh sequences(world, mesh::Mesh({.dp_shard = 2, .cp = 2}));
    const std::pair<const char*, const DeviceMesh*> meshes[] = {{"layers", &layers},
                                                                {"sequences", &sequences}};
    for (const auto& [name, mesh] : meshes) {
      for (const char* placements : {"no_shard", "optim", "optim_grads", "optim_grads_params"}) {
        expect_same_when_recorded(world, cat(name, ", ", placements), [&](const Groups& over) {
          return train_megatron(mesh_over(*mesh, over), placements);
        });
      }
    }
  });
}

}  // namespace
}  // namespace automodel::distributed
