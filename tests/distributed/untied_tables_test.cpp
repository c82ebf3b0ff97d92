// Embedding and head that are units of their own.

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "comm/ranks.h"
#include "distributed/engine/data_parallel.h"
#include "distributed/engine/sharded_engine.h"
#include "distributed/groups/sharding_groups.h"
#include "distributed/model_classes.h"
#include "distributed/plan/memory_plan.h"
#include "distributed/small_llama.h"
#include "distributed/strategies/nvfsdp_options.h"
#include "distributed/toy_model.h"

namespace automodel::distributed {
namespace {

using comm::expect;
using comm::expect_ranks;
using comm::ProcessGroup;
using Texts = std::vector<std::string>;

const Texts kUntied = {"", "model.embed_tokens", "model.layers.0", "model.layers.1", "lm_head"};
const Texts kTied = {"", "model.layers.0", "model.layers.1"};

/// A model sharded as the strategy does, over a group of one.
struct ShardedLlama {
  explicit ShardedLlama(const ShardingOptions& options = {},
                        const std::vector<std::pair<std::string, Json>>& changes = {},
                        const std::string& frozen = "")
      : llama(changes) {
    if (!frozen.empty()) at::Tensor(llama.parameter(frozen)).set_requires_grad(false);
    engine = std::make_unique<ShardedEngine>(
        *llama.model, llama.facts.keys, ShardingGroups::of(ProcessGroup::solo()), options,
        UnitChoices{untied_tables(*llama.model, llama.facts.plan)});
    fill_by_name(*engine);
  }

  Texts units() const {
    Texts names;
    for (const FSDPModule* unit : engine->root().tree_units()) names.push_back(unit->name());
    return names;
  }

  SmallLlama llama;
  std::unique_ptr<ShardedEngine> engine;
};

TEST(UntiedTablesTest, AreUnitsOfTheirOwn) {
  const ShardedLlama sharded;
  EXPECT_EQ(sharded.units(), kUntied);
  const auto units = sharded.engine->root().tree_units();
  EXPECT_EQ(units[0]->parameters()[0].numel, 32);  // the last norm
  EXPECT_EQ(units[1]->options().reshard_after_forward, true);
  EXPECT_EQ(units[4]->options().reshard_after_forward, false);
}

TEST(UntiedTablesTest, ATiedTableStaysInTheRoot) {
  EXPECT_EQ(ShardedLlama({}, {{"tie_word_embeddings", Json(true)}}).units(), kTied);
}

TEST(UntiedTablesTest, AFrozenTableStaysInTheRoot) {
  Texts without_embedding = kUntied;
  std::erase(without_embedding, "model.embed_tokens");
  EXPECT_EQ(ShardedLlama({}, {}, "model.embed_tokens.weight").units(), without_embedding);
  Texts without_head = kUntied;
  std::erase(without_head, "lm_head");
  EXPECT_EQ(ShardedLlama({}, {}, "lm_head.weight").units(), without_head);
}

TEST(UntiedTablesTest, Fsdp2MakesThemAndMegatronFsdpDoesNot) {
  expect_ranks(2, [](comm::World& world) {
    const auto names = [](Engine& engine) {
      Texts found;
      for (const FSDPModule* unit : sharded(engine).root().tree_units()) {
        found.push_back(unit->name());
      }
      return found;
    };
    SmallLlama one, other;
    SilentReporter reporter;
    expect(
        names(*fsdp2_strategy_parallelize(one.parallel(), data_mesh(world.group()), {})) == kUntied,
        "fsdp2");
    const NvfsdpOptions layers = nvfsdp_options({}, other.facts.architecture, model_classes());
    expect(names(*nvfsdp_strategy_parallelize(other.parallel(), data_mesh(world.group()), layers,
                                              reporter)) == kTied,
           "megatron_fsdp");
  });
}

TEST(UntiedTablesTest, TheEmbeddingIsGatheredOnceAndTheHeadIsKeptUntilItsBackward) {
  ShardedLlama sharded;
  sharded.engine->root().clear_events();
  norm_of_micro_batches(sharded.llama, *sharded.engine);
  Texts found;
  for (const std::string& event : take_events(sharded.engine->root())) {
    for (const char* unit : {" model.embed_tokens", " lm_head"}) {
      if (event.ends_with(unit) && !event.starts_with("unsharded")) found.push_back(event);
    }
  }
  EXPECT_EQ(found, (Texts{"gather model.embed_tokens", "forward model.embed_tokens",
                          "reshard model.embed_tokens", "gather lm_head", "forward lm_head",
                          "backward lm_head", "reshard lm_head", "reduce lm_head",
                          "reduced lm_head", "backward model.embed_tokens",
                          "reduce model.embed_tokens", "reduced model.embed_tokens"}));
}

TEST(UntiedTablesTest, GradientsAreThoseOfTheWholeModel) {
  SmallLlama whole;
  DataParallel plain(*whole.model, whole.facts.plan, whole.facts.keys, ProcessGroup::solo(), {});
  fill_by_name(plain);
  norm_of_micro_batches(whole, plain, 3);
  using Choice = std::optional<bool>;
  for (const Choice& reshards : {Choice(), Choice(true), Choice(false)}) {
    for (const bool defers : {false, true}) {
      ShardingOptions options;
      options.reshard_after_forward = reshards;
      options.defers_gradients = defers;
      ShardedLlama sharded(options);
      norm_of_micro_batches(sharded.llama, *sharded.engine, 3);
      for (const tensor::FlatShard& shard : sharded.engine->gradients()) {
        for (const tensor::FlatSegment& segment : shard.segments) {
          if (segment.fqn != "model.embed_tokens.weight" && segment.fqn != "lm_head.weight")
            continue;
          const at::Tensor wanted = whole.parameter(segment.fqn).grad().flatten();
          EXPECT_TRUE(at::allclose(shard.view(segment), wanted, 2e-6, 1e-7)) << segment.fqn;
        }
      }
    }
  }
}

TEST(UntiedTablesTest, AnOutputDtypeDoesNotRoundTheLoss) {
  ShardingOptions options;
  options.param_dtype = at::kBFloat16;
  options.output_dtype = at::kBFloat16;
  ShardedLlama rounded(options);
  EXPECT_EQ(rounded.llama.loss().scalar_type(), at::kFloat);
  // A tied head is the root's, whose output is the loss too.
  SmallLlama tied({{"tie_word_embeddings", true}});
  ShardedEngine engine(*tied.model, tied.facts.keys, ShardingGroups::of(ProcessGroup::solo()),
                       options);
  EXPECT_EQ(tied.loss().scalar_type(), at::kFloat);
}

TEST(UntiedTablesTest, ThePlanCountsTheirCollectives) {
  for (const int64_t micro_batches : {1, 3}) {
    for (const bool defers : {false, true}) {
      ShardingOptions options;
      options.defers_gradients = defers;
      ShardedLlama sharded(options);
      norm_of_micro_batches(sharded.llama, *sharded.engine, static_cast<int>(micro_batches));
      SmallLlama planned;
      MemoryOptions memory;
      memory.sharding = options;
      memory.num_parts = 2;  // over one nothing is gathered, which these counts do not know
      memory.num_micro_batches = micro_batches;
      memory.tables = untied_tables(*planned.model, planned.facts.plan);
      const MemoryPlan plan = plan_memory(
          flat_parameters(*planned.model, planned.facts.plan, memory.tables), memory, {});
      const ShardingCounts& counts = sharded.engine->counts();
      EXPECT_EQ(plan.per_step.num_gathers, counts.gathers);
      EXPECT_EQ(plan.per_step.gathered_bytes, counts.gathered_bytes);
      EXPECT_EQ(plan.per_step.num_reductions, counts.reductions);
      EXPECT_EQ(plan.per_step.reduced_bytes, counts.reduced_bytes);
      EXPECT_EQ(plan.units.size(), 5U);
    }
  }
}

}  // namespace
}  // namespace automodel::distributed
