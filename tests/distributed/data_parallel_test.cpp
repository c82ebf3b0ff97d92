#include "distributed/engine/data_parallel.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "comm/ranks.h"
#include "distributed/counted_group.h"
#include "distributed/toy_model.h"

namespace automodel::distributed {
namespace {

using comm::expect;
using comm::expect_ranks;
using comm::ProcessGroup;

/// Replicas of a ToyNet: three blocks of 30, 5 and 30 elements on borders of 16 and a root of 6.
constexpr int64_t kGradientBytes = 4 * (3 * (32 + 16 + 32) + 16);

void fill_as(const ToyNet& values, ToyNet& net) {
  const at::NoGradGuard no_grad;
  for (const auto& item : values.named_parameters()) {
    net.named_parameters()[item.key()].copy_(item.value());
  }
}

/// Whole gradients after a step of `num_micro` micro-batches, by name.
std::map<std::string, at::Tensor> step_gradients(ToyNet& net, Engine& engine, int first,
                                                 int num_micro) {
  for (int i = 0; i < num_micro; ++i) {
    engine.begin_micro_batch(i + 1 == num_micro);
    net.loss(toy_input(first + i)).backward();
    engine.end_micro_batch();
  }
  engine.reduce_gradients();
  std::map<std::string, at::Tensor> gradients;
  for (const auto& item : net.named_parameters()) gradients[item.key()] = item.value().grad();
  return gradients;
}

/// Gradients of one module that sees what all ranks see, averaged.
std::map<std::string, at::Tensor> averaged_gradients(int num_ranks, int num_micro) {
  ToyNet net;
  for (int i = 0; i < num_ranks * num_micro; ++i) (net.loss(toy_input(i)) / num_ranks).backward();
  std::map<std::string, at::Tensor> gradients;
  for (const auto& item : net.named_parameters()) gradients[item.key()] = item.value().grad();
  return gradients;
}

TEST(DataParallelTest, ValuesAreThoseOfTheFirstRank) {
  for (const int num_ranks : {1, 2}) {
    expect_ranks(num_ranks, [](comm::World& world) {
      const ToyNet values;
      ToyModel toy;
      if (world.group().rank() > 0) {
        const at::NoGradGuard no_grad;
        for (const at::Tensor& parameter : toy.net.parameters()) at::Tensor(parameter).mul_(2);
      }
      const DataParallel engine(toy.net, toy.facts.plan, toy.facts.keys, world.group(), {});
      for (const auto& item : toy.net.named_parameters()) {
        expect(at::equal(item.value(), values.named_parameters()[item.key()]), item.key());
      }
    });
  }
}

TEST(DataParallelTest, ZeroGradOfTheModuleTakesNothingOff) {
  for (const int num_ranks : {1, 2}) {
    const auto wanted = averaged_gradients(num_ranks, 1);
    expect_ranks(num_ranks, [&](comm::World& world) {
      ToyModel toy;
      DataParallel engine(toy.net, toy.facts.plan, toy.facts.keys, world.group(), {});
      toy.net.zero_grad();
      step_gradients(toy.net, engine, world.group().rank(), 1);
      engine.zero_gradients();
      toy.net.zero_grad();
      const auto found = step_gradients(toy.net, engine, world.group().rank(), 1);
      const double norm = engine.gradient_norm();
      expect(norm > 0, cat("norm ", norm));
      for (const auto& [name, gradient] : wanted) {
        expect(at::allclose(found.at(name), gradient, 1e-5, 1e-7), name);
      }
    });
  }
}

TEST(DataParallelTest, GradientsAreAveragedAndReplicasStayEqual) {
  for (const int num_ranks : {2, 4}) {
    for (const int num_micro : {1, 3}) {
      const auto wanted = averaged_gradients(num_ranks, num_micro);
      expect_ranks(num_ranks, [&](comm::World& world) {
        ToyModel toy;
        const ToyNet values;
        DataParallel engine(toy.net, toy.facts.plan, toy.facts.keys, world.group(), {});
        fill_as(values, toy.net);
        const int first = world.group().rank() * num_micro;
        const auto found = step_gradients(toy.net, engine, first, num_micro);
        for (const auto& [name, gradient] : wanted) {
          expect(at::allclose(found.at(name), gradient, 2e-6, 1e-8), name);
          at::Tensor smallest = found.at(name).clone(), largest = smallest.clone();
          world.group().all_reduce(smallest, comm::ReduceOp::kMin);
          world.group().all_reduce(largest, comm::ReduceOp::kMax);
          expect(at::equal(smallest, largest), cat(name, " differs between replicas"));
        }
      });
    }
  }
}

CallCounts calls_of_a_step(const ProcessGroup& group, const DataParallelOptions& options,
                           int num_micro) {
  const CountedGroup counted(group);
  ToyModel toy;
  DataParallel engine(toy.net, toy.facts.plan, toy.facts.keys, counted.group, options);
  counted.counts->clear();  // of the values that replicas begin with
  step_gradients(toy.net, engine, 0, num_micro);
  return *counted.counts;
}

TEST(DataParallelTest, ABucketIsOneAllReduce) {
  expect_ranks(2, [](comm::World& world) {
    for (const int num_micro : {1, 3}) {  // the last micro-batch's backward reduces, once
      const CallCounts one = calls_of_a_step(world.group(), {}, num_micro);
      expect(one == CallCounts{{"all_reduce", {1, kGradientBytes}}}, text_of(one));
      DataParallelOptions options;
      options.first_bucket_bytes = 128;
      options.bucket_bytes = 512;
      const CallCounts several = calls_of_a_step(world.group(), options, num_micro);
      expect(several == CallCounts{{"all_reduce", {3, kGradientBytes}}}, text_of(several));
    }
  });
}

TEST(DataParallelTest, BucketsAreStartedWhileTheLastBackwardRuns) {
  expect_ranks(2, [](comm::World& world) {
    const CountedGroup counted(world.group());
    ToyModel toy;
    DataParallelOptions options;
    options.first_bucket_bytes = 128;  // of the last block
    options.bucket_bytes = 512;        // the rest of it and of the one before
    DataParallel engine(toy.net, toy.facts.plan, toy.facts.keys, counted.group, options);
    const auto backward = [&](bool is_last) {
      engine.begin_micro_batch(is_last);
      toy.net.loss(toy_input(0)).backward();
      engine.end_micro_batch();
      return (*counted.counts)["all_reduce"].calls;
    };
    for (int64_t step = 0; step < 2; ++step) {
      expect(backward(false) == 3 * step, "a bucket of gradients that are not the step's last");
      const int64_t started = backward(true);
      expect(started == 3 * step + 2, cat(started, " buckets in the last backward"));
      engine.reduce_gradients();  // the bucket with the root's
      expect((*counted.counts)["all_reduce"].calls == 3 * step + 3, "buckets at the end");
      engine.zero_gradients();
    }
  });
}

TEST(DataParallelTest, AUnitThatRunsSeveralTimesIsReducedAfterItsLastBackward) {
  ToyNet plain;
  (plain.loss(toy_input(0)) + plain.loss(toy_input(1))).backward();
  expect_ranks(2, [&](comm::World& world) {
    ToyModel toy;
    DataParallel engine(toy.net, toy.facts.plan, toy.facts.keys, world.group(),
                        {.first_bucket_bytes = 64, .bucket_bytes = 64});
    fill_as(plain, toy.net);
    engine.begin_micro_batch(true);
    (toy.net.loss(toy_input(0)) + toy.net.loss(toy_input(1))).backward();
    engine.end_micro_batch();
    engine.reduce_gradients();
    for (const auto& item : plain.named_parameters()) {
      const at::Tensor found = toy.net.named_parameters()[item.key()].grad();
      expect(at::allclose(found, item.value().grad(), 2e-6, 1e-8), item.key());
    }
  });
}

TEST(DataParallelTest, AForwardBehindAReducedBackwardIsABug) {
  expect_ranks(2, [](comm::World& world) {
    ToyModel toy;
    DataParallel engine(toy.net, toy.facts.plan, toy.facts.keys, world.group(), {});
    engine.begin_micro_batch(true);
    toy.net.loss(toy_input(0)).backward();
    std::string text;
    try {
      toy.net.loss(toy_input(0));
    } catch (const InternalError& error) {
      text = error.what();
    }
    expect(text.find("a forward follows a backward") != std::string::npos, text);
    engine.reduce_gradients();
  });
}

TEST(DataParallelTest, EveryAllReduceIsTraced) {
  class Names final : public TraceSink {
   public:
    void record(const TraceEvent& event) override { texts.emplace_back(event.name); }
    std::vector<std::string> texts;
  };
  expect_ranks(2, [](comm::World& world) {
    Names names;
    ToyModel toy;
    DataParallel engine(toy.net, toy.facts.plan, toy.facts.keys, world.group(),
                        {.first_bucket_bytes = 128, .bucket_bytes = 512, .trace = &names});
    step_gradients(toy.net, engine, 0, 1);
    const std::vector<std::string> wanted = {"all_reduce 128 B", "all_reduce 512 B",
                                             "all_reduce 384 B"};
    expect(names.texts == wanted, join(names.texts, ", "));
  });
}

TEST(DataParallelTest, OneRankSendsNothing) {
  EXPECT_EQ(calls_of_a_step(ProcessGroup::solo(), {}, 2), CallCounts{});
}

/// The parameters whose gradients have memory, without the blocks' other two.
std::vector<std::string> with_gradients(const ToyNet& net) {
  std::vector<std::string> names;
  for (const auto& item : net.named_parameters()) {
    const bool is_named = item.key() == "scale" || item.key().ends_with(".in");
    if (is_named && item.value().grad().storage().nbytes() > 0) names.push_back(item.key());
  }
  return names;
}

const std::vector<std::string> kAllOfToy = {"scale", "layers.0.in", "layers.1.in", "layers.2.in"};

TEST(DataParallelTest, OneRanksGradientsHaveMemoryFromTheirUnitsBackwardOn) {
  ToyNet plain;
  (plain.loss(toy_input(0)) + plain.loss(toy_input(1))).backward();
  ToyModel toy;
  DataParallel engine(toy.net, toy.facts.plan, toy.facts.keys, ProcessGroup::solo(), {});
  fill_as(plain, toy.net);
  const at::Tensor watched = toy.net.named_parameters()["layers.1.in"];
  std::vector<std::vector<std::string>> seen;
  watched.register_hook([&](const at::Tensor&) { seen.push_back(with_gradients(toy.net)); });
  for (int step = 0; step < 2; ++step) {
    seen.clear();
    for (int i = 0; i < 2; ++i) {
      engine.begin_micro_batch(i == 1);
      const at::Tensor loss = toy.net.loss(toy_input(i));
      if (i == 0) {
        EXPECT_EQ(with_gradients(toy.net), std::vector<std::string>{});
      }
      loss.backward();
      engine.end_micro_batch();
    }
    engine.reduce_gradients();
    const std::vector<std::string> without_the_first = {"scale", "layers.1.in", "layers.2.in"};
    EXPECT_EQ(seen, (std::vector<std::vector<std::string>>{without_the_first, kAllOfToy}));
    for (const auto& item : plain.named_parameters()) {
      const at::Tensor found = toy.net.named_parameters()[item.key()].grad();
      EXPECT_TRUE(at::allclose(found, item.value().grad(), 2e-6, 1e-8)) << item.key();
    }
    engine.zero_gradients();
    EXPECT_EQ(with_gradients(toy.net), std::vector<std::string>{});
  }
  try {
    engine.gradients()[0].buffer.sum();
    FAIL() << "gradients without memory were read";
  } catch (const c10::Error& error) {
    EXPECT_NE(std::string(error.what()).find("only from backward until"), std::string::npos);
  }
}

TEST(DataParallelTest, GradientsOfUnitsThatAStepDoesNotUseAreZero) {
  ToyModel toy;
  DataParallel engine(toy.net, toy.facts.plan, toy.facts.keys, ProcessGroup::solo(), {});
  engine.reduce_gradients();
  EXPECT_EQ(with_gradients(toy.net), kAllOfToy);
  EXPECT_EQ(engine.gradient_norm(), 0);
}

TEST(DataParallelTest, KeptGradientsStayInTheirPlace) {
  ToyModel toy;
  DataParallel engine(toy.net, toy.facts.plan, toy.facts.keys, ProcessGroup::solo(), {});
  fill_as(ToyNet(), toy.net);
  engine.keep_gradients();
  const at::Tensor gradient = toy.net.named_parameters()["layers.1.in"].grad();
  const void* const place = gradient.const_data_ptr();
  step_gradients(toy.net, engine, 0, 1);
  EXPECT_GT(gradient.abs().sum().item<float>(), 0);
  engine.zero_gradients();
  EXPECT_EQ(gradient.const_data_ptr(), place);
  EXPECT_EQ(engine.gradient_norm(), 0);
}

}  // namespace
}  // namespace automodel::distributed
