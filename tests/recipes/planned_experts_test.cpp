// Plans of models whose experts lie on several ranks, against what engines hold and send.
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <utility>

#include "comm/ranks.h"
#include "distributed/counted_group.h"
#include "distributed/plan/memory_plan.h"
#include "distributed/strategies/parallelizer.h"
#include "models/catalog.h"
#include "models/diffusion_gemma/diffusion_model.h"
#include "recipes/build/build_engine.h"
#include "recipes/build/rank_model.h"
#include "recipes/passes/block_diffusion.h"
#include "support/program.h"

namespace automodel::recipes {
namespace {

using distributed::CallCount;
using distributed::CountedGroup;
using distributed::DeviceMesh;
using distributed::MemoryPlan;

constexpr int64_t kPlannedSequences = 2;
constexpr int64_t kPlannedLength = 96;

/// How a recipe spreads a mixture, and its micro-batches.
struct PlannedSpread {
  const char* name;
  mesh::MeshSizes sizes;
  int ep = 2;
  bool recomputes = false;
  bool reshards = false;
  bool defers = true;
  bool is_narrow = false;
  int num_micro_batches = 1;
  bool is_diffusion = false;
  bool is_kept = false;  ///< enable_fsdp_optimizations
};

std::shared_ptr<models::CausalLM> build_planned(const PlannedSpread& spread) {
  const char* family = spread.is_diffusion ? "diffusion_gemma" : "qwen3_moe";
  const Json config =
      Json::parse_file(test::source_file(cat("configs/tiny/", family, "/config.json")));
  auto model = models::build_causal_lm(config, at::kFloat);
  model->train();
  return model;
}

Recipe recipe_of(const PlannedSpread& spread) {
  Recipe recipe;
  distributed::DistributedSetup& setup = recipe.distributed;
  setup.sizes.ep_size = spread.ep;
  setup.sizes.tp_size = spread.sizes.tp;
  setup.fsdp2.defer_fsdp_grad_sync = spread.defers;
  recipe.model.enables_fsdp_optimizations = spread.is_kept;
  setup.fsdp2.mp_policy = distributed::MixedPrecisionPolicy{
      .param_dtype = spread.is_narrow ? "bfloat16" : "float32", .reduce_dtype = "float32"};
  setup.moe = distributed::MoEParallelizerConfig{.reshard_after_forward = spread.reshards};
  if (spread.recomputes) {
    setup.fsdp2.activation_checkpointing = distributed::ActivationCheckpointingMode::kFull;
  }
  return recipe;
}

MemoryPlan plan_of_spread(const PlannedSpread& spread) {
  const Recipe recipe = recipe_of(spread);
  auto options = distributed::memory_options(recipe.distributed, spread.sizes);
  options.num_micro_batches = spread.num_micro_batches;
  options.num_passes = spread.is_diffusion ? 2 : 1;
  options.num_graphless_passes = spread.is_diffusion ? 1 : 0;
  options.keeps_after_backward = spread.is_kept;
  const auto model = build_planned(spread);
  const nn::ParallelPlan parts = model->parallel_plan();
  options.experts.modules = parts.expert_modules;
  nn::ActivationShape shape{.num_sequences = kPlannedSequences,
                            .sequence_length = kPlannedLength,
                            .element_size = spread.is_narrow ? 2 : 4};
  const RankSplit split = split_for_a_rank(recipe, spread.sizes, *model);
  count_parts(recipe, spread.sizes, parts, split, shape);
  options.tables = distributed::untied_tables(*model, parts);
  return plan_memory(
      distributed::flat_parameters(*model, parts, options.tables, options.experts.modules), options,
      model->activation_sizes(shape));
}

/// The mesh's groups that a plan counts collectives of.
struct CountedMesh {
  explicit CountedMesh(const DeviceMesh& mesh)
      : parts(mesh.group("dp_shard_cp")),
        replicas(mesh.group("dp_replicate")),
        ep(group_or_solo(mesh, "ep")),
        ep_shard(group_or_solo(mesh, "ep_shard")),
        groups(all_groups(mesh)) {}

  static comm::ProcessGroup group_or_solo(const DeviceMesh& mesh, const std::string& name) {
    return mesh.has(name) ? mesh.group(name) : comm::ProcessGroup::solo();
  }

  std::map<std::string, comm::ProcessGroup> all_groups(const DeviceMesh& mesh) const {
    std::map<std::string, comm::ProcessGroup> all = {{"dp_replicate", replicas.group},
                                                     {"dp_shard_cp", parts.group}};
    for (const char* name : {"dp_cp", "dp", "tp"}) all.emplace(name, mesh.group(name));
    if (!mesh.has("ep")) return all;
    all.emplace("ep", ep.group);
    all.emplace("ep_shard", ep_shard.group);
    return all;
  }

  void clear() const {
    for (const CountedGroup* group : {&parts, &replicas, &ep, &ep_shard}) group->counts->clear();
  }

  CountedGroup parts, replicas, ep, ep_shard;
  DeviceMesh groups;
};

/// The second half of every text is its response, all of it one block.
at::Tensor diffusion_loss(models::CausalLM& model, tensor::Batch batch) {
  batch.labels.narrow(1, 0, kPlannedLength / 2).fill_(-100);
  const BlockDiffusionOptions options{.vocab_size = model.dims().vocab_size,
                                      .block_size = kPlannedLength / 2};
  return dynamic_cast<models::diffusion_gemma::DiffusionGemmaModel&>(model)
      .block_diffusion_loss(make_block_diffusion_batch(batch, {}, options, -100), {}, -100)
      .total;
}

at::Tensor loss_of(models::CausalLM& model, const tensor::Batch& batch) {
  const bool is_diffusion = model.architecture().starts_with("DiffusionGemma");
  return is_diffusion ? diffusion_loss(model, batch) : model.loss(batch, 1.0, -100);
}

void step_of(models::CausalLM& model, distributed::Engine& engine, int64_t num_micro_batches) {
  engine.zero_gradients();
  engine.parameters_changed();
  tensor::Batch batch;
  batch.input_ids = at::remainder(at::arange(kPlannedSequences * kPlannedLength).pow(2) * 7 + 3,
                                  model.dims().vocab_size)
                        .view({kPlannedSequences, kPlannedLength});
  batch.labels = batch.input_ids.clone();
  for (int64_t i = 0; i < num_micro_batches; ++i) {
    engine.begin_micro_batch(i + 1 == num_micro_batches);
    loss_of(model, batch).backward();
    engine.end_micro_batch();
  }
  engine.reduce_gradients();
}

void expect_count(const std::string& what, const CountedGroup& group, const char* collective,
                  const CallCount& planned) {
  if (group.group.size() == 1) {
    comm::expect(planned == CallCount{}, cat(what, ": nobody to send to"));
    return;
  }
  const auto found = group.counts->find(collective);
  const CallCount counted = found == group.counts->end() ? CallCount{} : found->second;
  comm::expect(counted == planned, cat(what, ": ", collective, " ", planned.calls, " of ",
                                       planned.bytes, " bytes, not ", text_of(*group.counts)));
}

int64_t bytes_of(const std::vector<tensor::FlatShard>& shards) {
  int64_t bytes = 0;
  for (const tensor::FlatShard& shard : shards) bytes += int64_t(shard.buffer.nbytes());
  return bytes;
}

void expect_as_planned(comm::World& world, const PlannedSpread& spread) {
  at::set_num_threads(1);
  const Recipe recipe = recipe_of(spread);
  const MemoryPlan plan = plan_of_spread(spread);
  const CountedMesh mesh(DeviceMesh(world, mesh::Mesh(spread.sizes), spread.ep));
  const auto model = build_planned(spread);
  SilentReporter reporter;
  const auto engine = build_engine(recipe, *model, mesh.groups, {at::kCPU, nullptr, &reporter});
  at::manual_seed(world.group().rank());
  for (const tensor::FlatShard& shard : engine->parameters()) {
    at::Tensor(shard.buffer).normal_(0, 0.2);  // routers choose as if by chance
  }
  const std::string name = spread.name;
  comm::expect(plan.gradients == bytes_of(engine->gradients()) || spread.is_narrow,
               cat(name, ": gradients ", plan.gradients, " not ", bytes_of(engine->gradients())));
  comm::expect(plan.optimizer == 2 * bytes_of(engine->trained()),
               cat(name, ": optimizer ", plan.optimizer));
  if (!spread.is_narrow) {
    comm::expect(
        plan.parameters == bytes_of(engine->parameters()),
        cat(name, ": parameters ", plan.parameters, " not ", bytes_of(engine->parameters())));
  }
  mesh.clear();
  step_of(*model, *engine, spread.num_micro_batches);
  distributed::StepCollectives step = plan.per_step;
  if (spread.ep == 1) {  // experts are gathered and reduced over the same ranks as all else
    step.num_gathers += std::exchange(step.num_expert_gathers, 0);
    step.gathered_bytes += std::exchange(step.expert_gathered_bytes, 0);
    step.num_reductions += std::exchange(step.num_expert_reductions, 0);
    step.reduced_bytes += std::exchange(step.expert_reduced_bytes, 0);
  }
  expect_count(name, mesh.parts, "all_gather", {step.num_gathers, step.gathered_bytes});
  expect_count(name, mesh.parts, "reduce_scatter", {step.num_reductions, step.reduced_bytes});
  expect_count(name, mesh.replicas, "all_reduce",
               {step.num_replica_reductions, step.replica_reduced_bytes});
  expect_count(name, mesh.ep_shard, "all_gather",
               {step.num_expert_gathers, step.expert_gathered_bytes});
  expect_count(name, mesh.ep_shard, "reduce_scatter",
               {step.num_expert_reductions, step.expert_reduced_bytes});
  const CallCount sent = (*mesh.ep.counts)["all_to_all"];
  comm::expect(sent.calls == step.num_exchanges,
               cat(name, ": ", step.num_exchanges, " exchanges, not ", sent.calls));
  if (spread.is_diffusion) return;  // canvases are planned as long as their texts
  // Which rank gets more than others is chance.
  at::Tensor all_sent = at::tensor({double(sent.bytes)}, at::kDouble);
  world.group().all_reduce(all_sent, comm::ReduceOp::kAvg);
  const double share = double(step.exchanged_bytes) / all_sent.item<double>();
  comm::expect(std::abs(share - 1) < 0.1, cat(name, ": bytes of exchanges are ", share));
}

void expect_all_as_planned(int num_ranks, const std::vector<PlannedSpread>& spreads) {
  comm::expect_ranks(num_ranks, [&](comm::World& world) {
    for (const PlannedSpread& spread : spreads) expect_as_planned(world, spread);
  });
}

PlannedSpread diffusion(const char* name, int ep, PlannedSpread spread) {
  spread.name = name;
  spread.ep = ep;
  spread.is_diffusion = true;
  return spread;
}

TEST(PlannedExpertsTest, StateAndCollectivesOfLayersThatRunThreeTimes) {
  const mesh::MeshSizes two{.dp_shard = 2};
  const PlannedSpread plain{"", two};
  const PlannedSpread eager{"", two, 1, false, false, false, false, 3};
  const PlannedSpread recomputed{"", two, 1, true, false, true, false, 2};
  const PlannedSpread narrow{"", two, 1, false, false, true, true, 2};
  expect_all_as_planned(2,
                        {diffusion("plain", 1, plain), diffusion("reduced each time", 1, eager),
                         diffusion("recomputed", 1, recomputed), diffusion("bfloat16", 1, narrow),
                         diffusion("ep2", 2, plain), diffusion("ep2, recomputed", 2, recomputed)});
  const PlannedSpread on_four{"", {.dp_shard = 4}, 1, false, false, true, false, 2};
  const PlannedSpread given_up{"", {.dp_shard = 4}, 1, true, true, true, false, 2};
  expect_all_as_planned(4, {diffusion("ep2 x ep_shard2", 2, on_four),
                            diffusion("the same, recomputed and given up", 2, given_up)});
}

TEST(PlannedExpertsTest, StateAndCollectivesOfTwoRanks) {
  const mesh::MeshSizes two{.dp_shard = 2};
  expect_all_as_planned(2, {{"ep2", two},
                            {"ep2, three micro-batches", two, 2, false, false, true, false, 3},
                            {"ep2, reduced each time", two, 2, false, false, false, false, 3},
                            {"ep2, recomputed", two, 2, true, false, true, false, 2},
                            {"ep2, given up after forward", two, 2, false, true, true, false, 2},
                            {"ep2 in bfloat16", two, 2, false, false, true, true, 2},
                            {"tp2 x ep2", {.tp = 2}},
                            {"tp2 x ep2, recomputed", {.tp = 2}, 2, true, false, true, false, 2}});
}

TEST(PlannedExpertsTest, StateAndCollectivesOfUnitsThatStayGathered) {
  PlannedSpread kept{"kept", {.dp_shard = 2}, 2, false, true, true, false, 3};
  kept.is_kept = true;
  PlannedSpread each = kept;
  each.name = "kept, reduced each time";
  each.defers = false;
  PlannedSpread twice = diffusion("kept, two passes", 1, kept);
  expect_all_as_planned(2, {kept, each, twice});
  kept.sizes = {.dp_shard = 4};
  expect_all_as_planned(4, {kept});
}

TEST(PlannedExpertsTest, StateAndCollectivesOfFourRanks) {
  const mesh::MeshSizes four{.dp_shard = 4};
  expect_all_as_planned(4,
                        {{"ep2 x ep_shard2", four},
                         {"the same, three micro-batches", four, 2, false, false, true, false, 3},
                         {"the same, reduced each time", four, 2, false, false, false, false, 3},
                         {"the same, recomputed", four, 2, true, false, true, false, 2},
                         {"the same, given up after forward", four, 2, false, true, true, false, 2},
                         {"the same, recomputed and given up", four, 2, true, true, true, false, 2},
                         {"the same in bfloat16", four, 2, false, true, true, true, 2},
                         {"ep4", four, 4},
                         {"ep2 over replicas", {.dp_replicate = 2, .dp_shard = 2}},
                         {"tp2 x ep2", {.dp_shard = 2, .tp = 2}},
                         {"tp2 x ep4", {.dp_shard = 2, .tp = 2}, 4}});
}

}  // namespace
}  // namespace automodel::recipes
