// Adapters over groups that behave as those of an accelerator's streams do and keep NCCL's rules
// (tests/comm/recording_group.h, nccl_rules.h).
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "distributed/recorded_training.h"
#include "distributed/strategies/parallelizer.h"
#include "peft/apply_lora.h"
#include "recipes/build/build_engine.h"
#include "recipes/engine_values.h"
#include "recipes/section_recipe.h"

namespace automodel::recipes {
namespace {

/// Two micro-batches of a Llama with adapters.
std::vector<at::Tensor> train_adapters(const distributed::DeviceMesh& mesh,
                                       const peft::PeftConfig& adapters, bool sequence_parallel) {
  const auto model = golden_model("llama_default");
  peft::apply_lora(*model, adapters, at::kFloat);
  model->train();
  distributed::ParallelizeOptions options;
  options.mp_policy.emplace().param_dtype = "float32";
  options.sequence_parallel = sequence_parallel;
  const auto engine =
      distributed::fsdp2_strategy_parallelize(parallel_model(*model), mesh, options);
  fill_by_name(*engine);
  return distributed::values_of_a_step(*engine, 2, [&](int number) {
    model->set_dropout_context({5, 3, number});
    tensor::Batch batch;
    batch.input_ids = at::remainder(at::arange(24).pow(2) * 7 + 3 + number, 128).view({2, 12});
    batch.labels = at::remainder(batch.input_ids * 5 + 1, 128);
    return model->loss(batch, 10.0, -100);
  });
}

TEST(RecordedAdaptersTest, OverSplitLayersTheyTrainAsOverPlainGroups) {
  comm::expect_rank_threads(4, [](comm::World& world) {
    const distributed::DeviceMesh mesh(world, mesh::Mesh({.dp_shard = 2, .tp = 2}));
    for (const bool sequence_parallel : {false, true}) {
      for (const bool use_dora : {false, true}) {
        const std::string name = cat("dora ", use_dora, ", sequences split ", sequence_parallel);
        comm::expect_same_when_recorded(world, name, [&](const comm::Groups& over) {
          peft::PeftConfig adapters;
          adapters.dim = 4;
          adapters.use_dora = use_dora;
          adapters.match_all_linear = use_dora;  // the head too, which takes no dropout
          adapters.dropout = use_dora ? 0 : 0.25;
          return train_adapters(distributed::mesh_over(mesh, over), adapters, sequence_parallel);
        });
      }
    }
  });
}

}  // namespace
}  // namespace automodel::recipes
