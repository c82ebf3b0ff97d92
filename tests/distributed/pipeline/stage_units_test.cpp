// What the executor's backwards do to the units and the replicas of real stages.
#include <gtest/gtest.h>

#include <set>

#include "comm/ranks.h"
#include "distributed/counted_group.h"
#include "distributed/pipeline/staged_model.h"
#include "distributed/toy_modules.h"

namespace automodel::distributed {
namespace {

using comm::expect;
using enum ScheduleKind;
using Texts = std::vector<std::string>;

constexpr int kMicroBatches = 3;

/// What happens to a rank's only stage in two batches, the second of which is a step's last.
struct StageRun {
  Texts first, last;                            ///< events of the units, but "forward"
  int64_t reductions = 0;                       ///< of the trees
  int64_t num_units = 0;                        ///< with parameters
  std::map<std::string, at::Tensor> gradients;  ///< this rank's, when the executor has returned
};

/// On four ranks, two a stage; stage 0 has the first two of four layers.
StageRun run_stage(comm::World& world, ScheduleKind kind, const StageEngine& make_engine) {
  const DeviceMesh mesh(world, mesh::Mesh({.pp = 2, .dp_shard = 2}));
  const Json config = untied_config("llama_default", kNumLayers);
  RankPipeline rank({.kind = kind, .dp = 2, .microbatches = kMicroBatches}, mesh, config,
                    make_engine);
  const auto batches =
      microbatches_of(rank.stages[0]->model().dims().vocab_size, 2 * kMicroBatches);
  const std::vector<tensor::Batch> own(
      batches.begin() + kMicroBatches * mesh.group("dp").rank(),
      batches.begin() + kMicroBatches * (mesh.group("dp").rank() + 1));
  Engine& engine = rank.stages[0]->engine();
  FSDPModule& root = dynamic_cast<ShardedEngine&>(engine).root();
  StageRun run;
  const auto events = [&] {
    return only(take_events(root), {"gather", "reshard", "backward", "reduce"});
  };
  root.clear_events();
  rank.executor->train(own, false);
  run.first = events();
  rank.executor->train(own, true);
  run.last = events();
  for (const FSDPModule* unit : root.tree_units()) run.num_units += !unit->parameters().empty();
  run.reductions = root.counts().reductions;
  run.gradients = gradients_of(engine);
  return run;
}

Texts of(const Texts& events, const std::string& word) {
  return only(events, {word});
}

/// What is left of a text after its last backward.
Texts after_last_backward(const Texts& events) {
  auto last = events.begin();
  for (auto it = events.begin(); it != events.end(); ++it) {
    if (it->starts_with("backward ")) last = it + 1;
  }
  return {last, events.end()};
}

void expect_texts(const Texts& found, const Texts& wanted, const std::string& what) {
  expect(found == wanted, cat(what, ":\n", join(found, "\n")));
}

/// The order of sums differs: float32's rounding of them, by the norm of each tensor.
void expect_same_gradients(const StageRun& found, const StageRun& wanted) {
  for (const auto& [name, gradient] : wanted.gradients) {
    const double off = (found.gradients.at(name) - gradient).norm().item<double>();
    expect(off <= 1e-6 * gradient.norm().item<double>(), cat(name, " is off by ", off));
  }
}

StageEngine reduced_each(bool keeps) {
  ShardingOptions options;
  options.defers_gradients = false;
  return sharded_stage(options, keeps);
}

/// The first stage's units by the one-forward-one-backward schedule.
TEST(StageUnitsTest, StayGatheredFromTheirFirstBackwardToTheEndOfTheStep) {
  comm::expect_ranks(4, [](comm::World& world) {
    const StageRun run = run_stage(world, k1F1B, sharded_stage());
    if (world.group().rank() >= 2) return;
    // Blocks are given up after their forward, but for the last one; nothing is after a backward.
    const Texts forward = {"gather root", "gather model.layers.0", "reshard model.layers.0",
                           "gather model.layers.1"};
    const Texts backward = {"backward model.layers.1", "backward root", "gather model.layers.0",
                            "backward model.layers.0"};
    const Texts again = {"reshard model.layers.0"};
    Texts wanted = forward;
    // The second forward runs before the first backward, the third between the first two.
    wanted.insert(wanted.end(), {"gather model.layers.0", "reshard model.layers.0"});
    wanted.insert(wanted.end(), backward.begin(), backward.end());
    wanted.insert(wanted.end(), again.begin(), again.end());
    wanted.insert(wanted.end(), backward.begin(), backward.end());
    wanted.insert(wanted.end(),
                  {"backward model.layers.1", "backward root", "backward model.layers.0"});
    expect_texts(run.first, wanted, "a batch that is not the step's last");
    expect_texts(after_last_backward(run.last),
                 {"reshard root", "reduce root", "reshard model.layers.0", "reduce model.layers.0",
                  "reshard model.layers.1", "reduce model.layers.1"},
                 "after the step's last backward");
    expect(of(run.last, "reduce").size() == 3 && of(run.first, "reduce").empty(), "reductions");
  });
}

TEST(StageUnitsTest, EveryScheduleReducesAndFreesOnceAStepAfterTheLastBackward) {
  for (const ScheduleKind kind : {k1F1B, kGPipe}) {
    comm::expect_ranks(4, [&](comm::World& world) {
      const StageRun run = run_stage(world, kind, sharded_stage());
      expect(of(run.first, "reduce").empty(), "a batch that is not the step's last");
      expect_texts(of(run.last, "reduce"), of(after_last_backward(run.last), "reduce"), "reduced");
      expect(run.reductions == run.num_units, cat(run.reductions, " reductions"));
    });
  }
}

/// model.backend.enable_fsdp_optimizations: as units that defer, whatever defer_fsdp_grad_sync is.
TEST(StageUnitsTest, OfAMixinAreDeferredAlways) {
  comm::expect_ranks(4, [](comm::World& world) {
    const StageRun wanted = run_stage(world, k1F1B, sharded_stage());
    for (const bool defers : {true, false}) {
      const StageRun run =
          run_stage(world, k1F1B, defers ? sharded_stage({}, true) : reduced_each(true));
      expect_texts(run.first, wanted.first, "a batch that is not the step's last");
      expect(run.reductions == run.num_units, cat(run.reductions, " reductions"));
      expect_same_gradients(run, wanted);
    }
  });
}

TEST(StageUnitsTest, ThatReduceEachMicroBatchFreeThemselvesInIt) {
  comm::expect_ranks(4, [](comm::World& world) {
    const StageRun wanted = run_stage(world, k1F1B, sharded_stage());
    const StageRun run = run_stage(world, k1F1B, reduced_each(false));
    expect(run.reductions == 2 * kMicroBatches * run.num_units, cat(run.reductions, " reductions"));
    expect(of(run.first, "reduce").size() == of(run.last, "reduce").size(), "of either batch");
    expect(of(after_last_backward(run.last), "gather").empty(), "nothing is gathered at the end");
    expect_same_gradients(run, wanted);
  });
}

/// Zero-bubble schedules: gradients of inputs and weights apart.
TEST(StageUnitsTest, WithSplitBackwardsHaveTheSameReductions) {
  comm::expect_ranks(4, [](comm::World& world) {
    const DeviceMesh mesh(world, mesh::Mesh({.pp = 2, .dp_shard = 2}));
    const Json config = untied_config("llama_default", kNumLayers);
    const auto all = microbatches_of(128, kMicroBatches);
    for (const bool defers : {true, false}) {
      RankPipeline rank({.kind = kZBVZeroBubble, .dp = 2, .microbatches = kMicroBatches}, mesh,
                        config, defers ? sharded_stage() : reduced_each(false));
      rank.executor->train(all, true);
      for (const auto& stage : rank.stages) {
        const FSDPModule& root = dynamic_cast<ShardedEngine&>(stage->engine()).root();
        int64_t num_units = 0;
        for (const FSDPModule* unit : root.tree_units()) {
          num_units += !unit->parameters().empty();
          expect(!unit->is_unsharded() || unit->parameters().empty(), unit->name());
        }
        const int64_t wanted = num_units * (defers ? 1 : kMicroBatches);
        expect(root.counts().reductions == wanted,
               cat(root.counts().reductions, " reductions, not ", wanted));
      }
    }
  });
}

TEST(StageUnitsTest, ReplicasAllReduceWithTheStepsLastBackwardOnly) {
  for (const ScheduleKind kind : {k1F1B, kInterleavedZeroBubble}) {
    comm::expect_ranks(4, [&](comm::World& world) {
      const DeviceMesh mesh(world, mesh::Mesh({.pp = 2, .dp_shard = 2}));
      const Json config = untied_config("llama_default", kNumLayers);
      const CountedGroup counted(mesh.group("dp_shard_cp"));
      const StageEngine over_counted = [&](models::CausalLM& model, const comm::ProcessGroup&) {
        return replicated_stage(model, counted.group);
      };
      RankPipeline rank({.kind = kind, .dp = 2}, mesh, config, over_counted);
      const auto all = microbatches_of(128, 16);
      const int first = 8 * mesh.group("dp").rank();
      const auto part = [&](int begin) {
        return std::vector<tensor::Batch>(all.begin() + begin, all.begin() + begin + 4);
      };
      counted.counts->clear();
      rank.executor->train(part(first), false);
      expect(counted.counts->empty(), text_of(*counted.counts));
      rank.executor->train(part(first + 4), true);
      const auto stages = static_cast<int64_t>(rank.stages.size());  // each less than a bucket
      expect((*counted.counts)["all_reduce"].calls == stages, text_of(*counted.counts));
      for (const auto& stage : rank.stages) stage->engine().reduce_gradients();
      expect((*counted.counts)["all_reduce"].calls == stages, text_of(*counted.counts));
      const auto wanted = whole_model(config, all).second;
      for (const auto& stage : rank.stages) {
        for (const auto& [name, gradient] : gradients_of(stage->engine())) {
          expect(at::allclose(gradient, wanted.at(name).flatten() / 2, 1e-5, 1e-6), name);
        }
      }
    });
  }
}

/// Memory without any data parallelism.
class AloneEngine final : public Engine {
 public:
  explicit AloneEngine(std::unique_ptr<Engine> memory)
      : Engine(memory->group()), memory_(std::move(memory)) {
    parameters_ = memory_->parameters();
    gradients_ = memory_->gradients();
  }
  HeldPart held_part() const override { return {}; }
  void begin_micro_batch(bool) override {}
  void end_micro_batch() override {}
  void zero_gradients() override { memory_->zero_gradients(); }
  void reduce_gradients() override {}
  double gradient_norm() const override { return 0; }

 private:
  std::unique_ptr<Engine> memory_;
};

TEST(StageUnitsTest, OtherEnginesGetTheBackwardAlone) {
  for (const ScheduleKind kind : {k1F1B, kZBVZeroBubble}) {
    comm::expect_ranks(2, [&](comm::World& world) {
      const DeviceMesh mesh(world, mesh::Mesh({.pp = 2}));
      const Json config = untied_config("llama_default", kNumLayers);
      RankPipeline rank({.kind = kind}, mesh, config,
                        [](models::CausalLM& model, const comm::ProcessGroup& group) {
                          return std::make_unique<AloneEngine>(replicated_stage(model, group));
                        });
      const auto all = microbatches_of(128, 4);
      rank.executor->train(all, true);
      const auto wanted = whole_model(config, all).second;
      for (const auto& stage : rank.stages) {
        for (const auto& [name, gradient] : gradients_of(stage->engine())) {
          expect(at::allclose(gradient, wanted.at(name).flatten(), 1e-5, 1e-6), name);
        }
      }
    });
  }
}

}  // namespace
}  // namespace automodel::distributed
