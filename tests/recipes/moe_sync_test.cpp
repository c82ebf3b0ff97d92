#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "config/load.h"
#include "distributed/engine/sharded_engine.h"
#include "distributed/recorded_training.h"
#include "distributed/strategies/parallelizer.h"
#include "distributed/toy_modules.h"
#include "models/catalog.h"
#include "recipes/build/build_engine.h"
#include "recipes/build/pipeline_request.h"
#include "recipes/build/tp_request.h"
#include "recipes/engine_values.h"
#include "recipes/passes/pipeline_pass.h"
#include "recipes/read/read_recipe.h"

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
  const auto& counts = dynamic_cast<const distributed::ShardedEngine&>(*engine).counts();
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

using distributed::only;
using distributed::take_events;
using Texts = std::vector<std::string>;

/// The smoke recipe of a mixture in float32 with changes, as a run reads it.
struct ReadRecipe {
  explicit ReadRecipe(Texts overrides) {
    overrides.push_back(cat("--model.config.pretrained_model_name_or_path=",
                            test::source_file("configs/tiny/qwen3_moe")));
    document =
        config::load_recipe(test::source_file("recipes/smoke/tiny_qwen3_moe.yaml"), overrides);
    config::Diagnostics diagnostics(document.sources);
    recipe = read_recipe(document.root, diagnostics);
  }
  config::Document document;
  Recipe recipe;
};

constexpr const char* kKept = "--model.backend.enable_fsdp_optimizations=true";
constexpr const char* kNotKept = "--model.backend.enable_fsdp_optimizations=false";
constexpr const char* kReducedEach = "--distributed.defer_fsdp_grad_sync=false";

/// What a rank of a recipe's model or first stage does in a step.
struct MoeRun {
  std::vector<Texts> batches;  ///< events of the units, of each of three batches
  double loss = 0;
  at::Tensor gradients;  ///< this rank's ranges
};

/// This rank's model or stages and what passes batches through them.
struct MoeRank {
  MoeRank(const Recipe& recipe, distributed::DeviceMesh ranks) : mesh(std::move(ranks)) {
    const EnginePlace place{at::kCPU, nullptr, &reporter};
    const auto whole = models::build_causal_lm(recipe.model.hf_config, at::kFloat);
    if (mesh.size("pp") == 1) {
      built.parts = {whole};
      engine = build_engine(recipe, *whole, mesh, place);
      pass = training::make_plain_pass(
          *engine, [whole](const tensor::Batch& batch, double divisor, int64_t, int64_t) {
            return whole->loss(batch, divisor, -100);
          });
    } else {
      const PipelineRequest request = pipeline_request(recipe, *whole);
      built = build_pipeline(recipe, request, at::kFloat, mesh, place);
      pass = make_pipeline_pass(recipe, request, built, mesh, place, {});
    }
    for (const auto& part : built.parts) part->train();
  }

  distributed::Engine& all() { return engine ? *engine : *built.engine; }
  distributed::FSDPModule& root() {
    distributed::Engine& own = engine ? *engine : built.engine->stage(0);
    return dynamic_cast<distributed::ShardedEngine&>(own).root();
  }

  SilentReporter reporter;
  distributed::DeviceMesh mesh;
  BuiltPipeline built;
  std::unique_ptr<distributed::Engine> engine;
  std::unique_ptr<training::BatchPass> pass;
};

distributed::DeviceMesh ranks_of(const Recipe& recipe, comm::World& world) {
  return {world, mesh::Mesh(mesh_of(recipe, world.group().size())),
          static_cast<int>(recipe.distributed.sizes.ep_size.value_or(1))};
}

/// A step of a recipe on the ranks of a mesh.
MoeRun run_on(const Recipe& recipe, const distributed::DeviceMesh& mesh) {
  MoeRank rank(recipe, mesh);
  fill_by_name(rank.all());
  rank.all().parameters_changed();
  MoeRun run;
  rank.root().clear_events();
  for (int i = 0; i < kMoeMicroBatches; ++i) {
    tensor::Batch batch;
    batch.input_ids =
        at::remainder(at::arange(24).pow(2) * 7 + 100 * i + rank.mesh.group("dp").rank(), 2048);
    batch.input_ids = batch.input_ids.view({2, 12});
    batch.labels = at::remainder(batch.input_ids * 5 + 1, 2048);
    run.loss += rank.pass->train(batch, 10.0, {0, i, i + 1 == kMoeMicroBatches});
    run.batches.push_back(
        only(take_events(rank.root()), {"gather", "reshard", "backward", "reduce"}));
  }
  rank.all().reduce_gradients();
  rank.pass->finish(10.0);
  run.loss = rank.pass->known_everywhere(run.loss);
  std::vector<at::Tensor> ranges;
  for (const tensor::FlatShard& shard : rank.all().gradients()) {
    ranges.push_back(shard.buffer.clone());
  }
  run.gradients = at::cat(ranges);
  return run;
}

MoeRun run_recipe(const Texts& overrides, comm::World& world) {
  const ReadRecipe read(overrides);
  return run_on(read.recipe, ranks_of(read.recipe, world));
}

void expect_same_numbers(const std::string& name, const MoeRun& found, const MoeRun& wanted) {
  comm::expect(std::abs(found.loss - wanted.loss) < 1e-6 * std::abs(wanted.loss),
               cat(name, ": loss ", found.loss, " instead of ", wanted.loss));
  const double off =
      distance(found.gradients, wanted.gradients, wanted.gradients.norm().item<double>());
  comm::expect(off < 1e-6, cat(name, ": gradients are off by ", off));
}

void expect_texts(const std::string& name, const Texts& found, const Texts& wanted) {
  comm::expect(found == wanted, cat(name, ":\n", join(found, "\n")));
}

Texts collectives_of(const Texts& events) {
  return only(events, {"gather", "reshard", "reduce"});
}

TEST(MoeSyncTest, TheRecipesKeyKeepsUnitsGatheredBetweenTheMicroBatchesOfAStep) {
  comm::expect_ranks(2, [](comm::World& world) {
    const MoeRun plain = run_recipe({kNotKept}, world);
    const MoeRun kept = run_recipe({kKept}, world);
    expect_same_numbers("kept", kept, plain);
    expect_texts("without the key", collectives_of(plain.batches[1]),
                 {"gather root", "gather model.embed_tokens", "reshard model.embed_tokens",
                  "gather model.layers.0", "reshard model.layers.0", "gather model.layers.1",
                  "gather lm_head", "reshard lm_head", "reshard model.layers.1",
                  "gather model.layers.0", "reshard model.layers.0", "reshard root"});
    expect_texts("with the key", collectives_of(kept.batches[1]),
                 {"gather model.embed_tokens", "reshard model.embed_tokens",
                  "reshard model.layers.0", "gather model.layers.0"});
    for (const char* word : {"reduce", "reshard"}) {
      expect_texts("the last one", only(kept.batches[2], {word}), only(plain.batches[2], {word}));
    }
  });
}

/// Stages defer with the key and without it; each unit reduces and frees after its last backward.
void expect_deferred(const std::string& name, const MoeRun& run, size_t num_units) {
  for (int i = 0; i + 1 < kMoeMicroBatches; ++i) {
    comm::expect(only(run.batches[static_cast<size_t>(i)], {"reduce"}).empty(),
                 cat(name, ": batch ", i, " reduces"));
  }
  const Texts& last = run.batches.back();
  const auto end = std::find_if(last.rbegin(), last.rend(), [](const std::string& event) {
                     return event.starts_with("backward ");
                   }).base();
  const Texts after(end, last.end());
  expect_texts(name, only(last, {"reduce"}), only(after, {"reduce"}));
  comm::expect(only(after, {"reduce"}).size() == num_units, cat(name, ":\n", join(after, "\n")));
}

TEST(MoeSyncTest, UnderPipelineParallelismTheKeyDefersToTheLastBackwardOfEachStage) {
  comm::expect_ranks(4, [](comm::World& world) {
    const Texts staged = {"--distributed.pp_size=2", "--distributed.pipeline.pp_schedule=1f1b",
                          "--distributed.pipeline.pp_microbatch_size=1"};
    const auto with = [&](Texts more) {
      more.insert(more.end(), staged.begin(), staged.end());
      return run_recipe(more, world);
    };
    // The first stage's embedding and layer; the last one's layer, norm and head.
    const size_t num_units = world.group().rank() < 2 ? 2 : 3;
    const MoeRun plain = with({kNotKept});
    const MoeRun kept = with({kKept});
    expect_deferred("without the key", plain, num_units);
    expect_deferred("with the key", kept, num_units);
    expect_same_numbers("kept", kept, plain);
    // Without it defer_fsdp_grad_sync decides.
    const MoeRun each = with({kNotKept, kReducedEach});
    comm::expect(only(each.batches[0], {"reduce"}).size() == 2 * num_units,
                 join(each.batches[0], "\n"));
    expect_deferred("with both keys", with({kKept, kReducedEach}), num_units);
    expect_same_numbers("reduced each", each, plain);
  });
}

TEST(MoeSyncTest, ExpertsOfTheirOwnAreDeferredWithTheirStage) {
  comm::expect_ranks(4, [](comm::World& world) {
    const Texts staged = {"--distributed.pp_size=2", "--distributed.pipeline.pp_schedule=1f1b",
                          "--distributed.pipeline.pp_microbatch_size=1", "--distributed.ep_size=2",
                          "--model.config.router_aux_loss_coef=0"};
    const auto with = [&](const char* key) {
      Texts all = staged;
      all.emplace_back(key);
      return run_recipe(all, world);
    };
    const MoeRun plain = with(kNotKept);
    const MoeRun kept = with(kKept);
    const bool is_first = world.group().rank() < 2;
    expect_deferred("with the key", kept, is_first ? 3 : 4);
    const std::string experts = cat("reduce model.layers.", is_first ? 0 : 1, ".mlp.experts");
    const Texts reduced = only(kept.batches.back(), {"reduce"});
    comm::expect(std::count(reduced.begin(), reduced.end(), experts) == 1, join(reduced, "\n"));
    expect_same_numbers("kept", kept, plain);
  });
}

TEST(MoeSyncTest, DeferredStagesWithExpertsOfTheirOwnTrainAsOverPlainGroups) {
  comm::expect_rank_threads(4, [](comm::World& world) {
    for (const char* key : {kNotKept, kKept}) {
      const ReadRecipe read({"--distributed.pp_size=2", "--distributed.pipeline.pp_schedule=1f1b",
                             "--distributed.pipeline.pp_microbatch_size=1",
                             "--distributed.ep_size=2", key});
      const distributed::DeviceMesh mesh = ranks_of(read.recipe, world);
      comm::expect_same_when_recorded(world, key, [&](const comm::Groups& over) {
        const MoeRun run = run_on(read.recipe, distributed::mesh_over(mesh, over));
        return std::vector{at::scalar_tensor(run.loss, at::kDouble), run.gradients};
      });
    }
  });
}

}  // namespace
}  // namespace automodel::recipes
