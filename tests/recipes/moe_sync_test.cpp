#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "comm/ranks.h"
#include "distributed/fully_sharded.h"
#include "distributed/parallelizer.h"
#include "models/catalog.h"
#include "recipes/engine_values.h"
#include "recipes/tp_request.h"

namespace automodel::recipes {
namespace {

constexpr int kMoeMicroBatches = 3;

struct MoeStep {
  at::Tensor gradients;  ///< this rank's ranges
  int64_t gathers = 0;
  int64_t reductions = 0;
};

/// Three micro-batches of a golden model on all ranks.
MoeStep train_sharded(const std::string& golden, bool enables_fsdp_optimizations,
                      comm::World& world) {
  const auto model = models::build_causal_lm(
      Json::parse_file(test::source_file(cat("tests/golden/", golden, "/config.json"))),
      at::kFloat);
  model->train();
  const distributed::ParallelModel parallel{*model, tp_model(*model), {}, {}};
  const distributed::DeviceMesh mesh(world, mesh::Mesh({.dp_shard = world.group().size()}));
  distributed::ParallelizeOptions options;
  options.mp_policy.emplace().param_dtype = "float32";
  options.enable_fsdp_optimizations = enables_fsdp_optimizations;
  options.sharding.reshard_after_forward = false;
  const auto engine = distributed::fsdp2_strategy_parallelize(parallel, mesh, options);
  fill_by_name(*engine);
  engine->parameters_changed();
  for (int i = 0; i < kMoeMicroBatches; ++i) {
    engine->begin_micro_batch(i + 1 == kMoeMicroBatches);
    tensor::Batch batch;
    batch.input_ids = at::remainder(at::arange(24).pow(2) * 7 + 100 * i + world.group().rank(),
                                    model->dims().vocab_size);
    batch.input_ids = batch.input_ids.view({2, 12});
    batch.labels = at::remainder(batch.input_ids * 5 + 1, model->dims().vocab_size);
    model->loss(batch, 10.0, -100).backward();
    engine->end_micro_batch();
  }
  engine->reduce_gradients();
  std::vector<at::Tensor> ranges;
  for (const tensor::FlatShard& shard : engine->gradients()) ranges.push_back(shard.buffer.clone());
  const auto& counts = dynamic_cast<const distributed::FullySharded&>(*engine).counts();
  return {at::cat(ranges), counts.gathers, counts.reductions};
}

/// backend.enable_fsdp_optimizations: a model with experts is gathered once a step, others are not
/// touched.
TEST(MoeSyncTest, OnlyModelsWithExpertsKeepTheirUnitsBetweenMicroBatches) {
  comm::expect_ranks(2, [](comm::World& world) {
    for (const auto& [golden, is_moe] : {std::pair{"qwen3_moe", true}, {"qwen3_tied", false}}) {
      const MoeStep plain = train_sharded(golden, false, world);
      const MoeStep kept = train_sharded(golden, true, world);
      comm::expect(kept.reductions == plain.reductions, cat(golden, ": reductions"));
      const int64_t expected = is_moe ? plain.gathers / kMoeMicroBatches : plain.gathers;
      comm::expect(kept.gathers == expected,
                   cat(golden, ": ", kept.gathers, " gathers, without ", plain.gathers));
      const double off =
          distance(kept.gradients, plain.gradients, plain.gradients.norm().item<double>());
      comm::expect(off < 1e-6, cat(golden, ": gradients are off by ", off));
    }
  });
}

}  // namespace
}  // namespace automodel::recipes
