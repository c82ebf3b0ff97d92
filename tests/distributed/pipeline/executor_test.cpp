#include "distributed/pipeline/executor.h"

#include <gtest/gtest.h>

#include "comm/recorded_runs.h"
#include "distributed/groups/device_mesh.h"
#include "distributed/pipeline/pipeline_engine.h"
#include "distributed/pipeline/simulation.h"
#include "distributed/pipeline/staged_model.h"

namespace automodel::distributed {
namespace {

using comm::expect;
using enum ScheduleKind;

bool is_near(const at::Tensor& found, const at::Tensor& wanted) {
  return at::allclose(found, wanted, 1e-5, 1e-6);
}

/// Gradients of a rank against its part of the whole model's.
void expect_gradients(const RankPipeline& rank, const std::map<std::string, at::Tensor>& wanted,
                      double scale) {
  for (const auto& stage : rank.stages) {
    for (const tensor::FlatShard& shard : stage->engine().gradients()) {
      for (const tensor::FlatSegment& segment : shard.segments) {
        const at::Tensor whole = wanted.at(segment.fqn).flatten() * scale;
        const at::Tensor part = whole.narrow(0, segment.spec.flat_begin, segment.spec.numel());
        expect(is_near(shard.view(segment), part), cat("gradient of ", segment.fqn));
      }
    }
  }
}

void expect_counts(const PipelineCase& what, const RankPipeline& rank, int pp_rank) {
  const Simulation wanted = simulate(rank.schedule);
  const PipelineCounts& counts = rank.executor->counts();
  int64_t sends = 0, receives = 0;
  for (const PipelineAction& action : rank.schedule.actions[static_cast<size_t>(pp_rank)]) {
    const int stages = rank.schedule.shape.num_stages();
    const auto is_elsewhere = [&](int stage) {
      return stage >= 0 && stage < stages &&
             rank.schedule.rank_of_stage[static_cast<size_t>(stage)] != pp_rank;
    };
    if (action.op == PipelineOp::kBackwardWeight) continue;
    const bool is_forward = action.op == PipelineOp::kForward;
    sends += is_elsewhere(action.stage + (is_forward ? 1 : -1)) ? 1 : 0;
    receives += is_elsewhere(action.stage + (is_forward ? -1 : 1)) ? 1 : 0;
  }
  expect(counts.sends == sends && counts.receives == receives,
         cat("sent ", counts.sends, ", received ", counts.receives));
  expect(counts.peak_in_flight == wanted.peak_in_flight[static_cast<size_t>(pp_rank)],
         cat("peak ", counts.peak_in_flight));
  const int64_t runs = static_cast<int64_t>(rank.stages.size()) * what.microbatches;
  expect(counts.forwards == runs && counts.backwards == runs, "runs");
  const bool splits_backward = what.kind == ScheduleKind::kInterleavedZeroBubble ||
                               what.kind == ScheduleKind::kZBVZeroBubble;
  expect(counts.weight_backwards == (splits_backward ? runs : 0), "weight backwards");
}

void run_case(const PipelineCase& what) {
  SCOPED_TRACE(cat(schedule_name(what.kind), " pp ", what.pp, " dp ", what.dp));
  comm::expect_ranks(what.pp * what.dp, [&](comm::World& world) {
    const DeviceMesh mesh(world, mesh::Mesh({.pp = what.pp, .dp_shard = what.dp}));
    const Json config = untied_config("llama_default", kNumLayers);
    RankPipeline rank(what, mesh, config);
    const int64_t vocab_size = rank.stages[0]->model().dims().vocab_size;
    const auto all = microbatches_of(vocab_size, what.microbatches * what.dp);
    const int dp_rank = mesh.group("dp").rank();
    const std::vector<tensor::Batch> own(all.begin() + dp_rank * what.microbatches,
                                         all.begin() + (dp_rank + 1) * what.microbatches);
    const auto [loss, wanted] = whole_model(config, all);
    const double own_loss = rank.executor->from_last_stage(rank.executor->train(own, true));
    for (const auto& stage : rank.stages) stage->engine().reduce_gradients();
    expect_gradients(rank, wanted, 1.0 / what.dp);
    expect_counts(what, rank, mesh.group("pp").rank());
    if (what.dp == 1) expect(std::abs(own_loss / loss - 1) < 1e-6, cat("loss ", own_loss));
    if (what.dp > 1) {
      for (const auto& stage : rank.stages) {
        const auto& sharded = dynamic_cast<ShardedEngine&>(stage->engine());
        const auto units = static_cast<int64_t>(sharded.root().tree_units().size());
        int64_t with_parameters = 0;
        for (const FSDPModule* unit : sharded.root().tree_units()) {
          with_parameters += unit->parameters().empty() ? 0 : 1;
        }
        expect(sharded.counts().reductions == with_parameters,
               cat(sharded.counts().reductions, " reductions of ", units, " units"));
      }
    }
  });
}

TEST(PipelineExecutorTest, GradientsAndCountsAreThoseOfTheWholeModelAndTheSchedule) {
  for (const ScheduleKind kind :
       {kGPipe, k1F1B, kInterleaved1F1B, kLoopedBFS, kInterleavedZeroBubble, kZBVZeroBubble}) {
    run_case({.kind = kind});
  }
}

TEST(PipelineExecutorTest, ShardedStagesReduceOnceAStep) {
  for (const ScheduleKind kind :
       {k1F1B, kInterleaved1F1B, kInterleavedZeroBubble, kZBVZeroBubble}) {
    run_case({.kind = kind, .dp = 2});
  }
}

TEST(PipelineExecutorTest, FourRanksAndFewMicrobatches) {
  run_case({.kind = k1F1B, .pp = 4});
  run_case({.kind = kGPipe, .pp = 4, .microbatches = 2});
}

/// A batch of another size than the schedule's adds its gradients as the others do.
TEST(PipelineExecutorTest, BatchesOfAnyNumberOfMicrobatchesAddUp) {
  for (const ScheduleKind kind : {k1F1B, kInterleaved1F1B, kZBVZeroBubble}) {
    SCOPED_TRACE(schedule_name(kind));
    comm::expect_ranks(2, [&](comm::World& world) {
      const DeviceMesh mesh(world, mesh::Mesh({.pp = 2}));
      const Json config = untied_config("llama_default", kNumLayers);
      RankPipeline rank({.kind = kind}, mesh, config);
      const auto all = microbatches_of(rank.stages[0]->model().dims().vocab_size, 8);
      const auto part = [&](int begin, int end) {
        return std::vector<tensor::Batch>(all.begin() + begin, all.begin() + end);
      };
      rank.executor->train(part(0, 4), false);
      rank.executor->train(part(4, 5), false);
      rank.executor->train(part(5, 8), true);
      expect_gradients(rank, whole_model(config, all).second, 1);
    });
  }
}

TEST(PipelineExecutorTest, EvaluationGivesTheWholeModelsLoss) {
  for (const ScheduleKind kind : {k1F1B, kInterleavedZeroBubble, kZBVZeroBubble}) {
    comm::expect_ranks(2, [&](comm::World& world) {
      const DeviceMesh mesh(world, mesh::Mesh({.pp = 2}));
      const Json config = untied_config("llama_default", kNumLayers);
      RankPipeline rank({.kind = kind}, mesh, config);
      const auto all = microbatches_of(rank.stages[0]->model().dims().vocab_size, 3);
      const double loss = rank.executor->from_last_stage(rank.executor->evaluate(all));
      expect(std::abs(loss / whole_model(config, all).first - 1) < 1e-6, cat("loss ", loss));
    });
  }
}

TEST(PipelineExecutorTest, OverStreamsValuesAreTheSameToTheBit) {
  for (const ScheduleKind kind :
       {kGPipe, k1F1B, kInterleaved1F1B, kLoopedBFS, kInterleavedZeroBubble, kZBVZeroBubble}) {
    comm::expect_rank_threads(4, [&](comm::World& world) {
      const DeviceMesh plain(world, mesh::Mesh({.pp = 2, .dp_shard = 2}));
      comm::expect_same_when_recorded(
          world, std::string(schedule_name(kind)), [&](const comm::Groups& over) {
            std::map<std::string, comm::ProcessGroup> groups;
            for (const char* axis : {"pp", "dp_shard_cp"})
              groups.emplace(axis, over(plain.group(axis)));
            const Json config = untied_config("llama_default", kNumLayers);
            RankPipeline rank({.kind = kind, .dp = 2}, DeviceMesh(groups), config);
            const auto all = microbatches_of(rank.stages[0]->model().dims().vocab_size, 4);
            std::vector<at::Tensor> values = {
                at::scalar_tensor(rank.executor->train(all, true), at::kDouble)};
            for (const auto& stage : rank.stages) {
              stage->engine().reduce_gradients();
              for (const tensor::FlatShard& shard : stage->engine().gradients()) {
                values.push_back(shard.buffer.clone());
              }
            }
            return values;
          });
    });
  }
}

TEST(PipelineEngineTest, TheNormIsOfAllStages) {
  comm::expect_ranks(2, [](comm::World& world) {
    const DeviceMesh mesh(world, mesh::Mesh({.pp = 2}));
    const Json config = untied_config("llama_default", kNumLayers);
    const auto modules =
        split_into_stages(models::build_causal_lm(config, at::kFloat)->parallel_plan(), 4);
    const comm::ProcessGroup& pp = mesh.group("pp");
    std::vector<std::unique_ptr<Engine>> engines;
    std::vector<std::shared_ptr<models::CausalLM>> parts;
    for (const int stage : {pp.rank(), pp.rank() + 2}) {
      parts.push_back(models::build_causal_lm(config, at::kFloat));
      parts.back()->keep_stage(modules[static_cast<size_t>(stage)]);
      engines.push_back(std::make_unique<DataParallel>(
          *parts.back(), parts.back()->parallel_plan(), parts.back()->key_map(),
          comm::ProcessGroup::solo(), DataParallelOptions{}));
      engines.back()->keep_gradients();
    }
    PipelineEngine engine(std::move(engines), pp);
    int64_t numel = 0;
    for (const auto& item : models::build_causal_lm(config, at::kFloat)->named_parameters()) {
      numel += item.value().numel();
    }
    expect(engine.num_parameters() == numel, cat(engine.num_parameters()));
    for (const tensor::FlatShard& shard : engine.gradients()) {
      for (const tensor::FlatSegment& segment : shard.segments) shard.view(segment).fill_(2);
    }
    expect(std::abs(engine.gradient_norm() - 2 * std::sqrt(numel)) < 1e-6, "norm");
    expect(engine.held_part().count == 2 && engine.held_part().index == pp.rank(), "part");
    expect(engine.non_finite(ValuesOf::kGradients).empty(), "all is finite");
    const tensor::FlatShard& shard = engine.gradients().back();  // of the second stage of the rank
    if (pp.rank() == 1) shard.view(shard.segments[0]).fill_(NAN);
    const std::vector<std::string> names = engine.non_finite(ValuesOf::kGradients);
    expect(names.size() == 1, "the tensor is named on every stage's ranks");
  });
}

}  // namespace
}  // namespace automodel::distributed
