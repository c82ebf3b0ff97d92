#include "distributed/recompute/recompute.h"
#include "distributed/fsdp/flat_units.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <ATen/record_function.h>
#include <gtest/gtest.h>

#include <map>

#include "comm/ranks.h"
#include "distributed/engine/data_parallel.h"
#include "distributed/engine/sharded_engine.h"
#include "distributed/groups/sharding_groups.h"
#include "distributed/memory_ledger.h"
#include "kernels/attention/attention.h"
#include "kernels/layers/activation.h"
#include "nn/layer_list.h"
#include "nn/layers.h"
#include "nn/repeated_block.h"
#include "nn/unit_hook.h"
#include "tensor/random.h"
#include "tensor/shard_spec.h"

namespace automodel::distributed {
namespace {

using Mode = ActivationCheckpointingMode;

// B sequences of S tokens, D features in N heads of H.
constexpr int64_t kB = 2, kS = 24, kN = 2, kH = 8, kD = kN * kH;

/// How the blocks' linear layers are made.
struct LayerKind {
  const char* name;
  bool has_bias;
  bool is_transposed;
  at::ScalarType dtype;
};

/// Attention and a gated MLP with residual sums: four products and one attention.
class RecomputedBlock : public torch::nn::Module, public nn::HookedModule {
 public:
  explicit RecomputedBlock(const LayerKind& kind) {
    const auto linear = [&](const char* name, int64_t in, int64_t out) {
      return register_module(
          name, std::make_shared<nn::Linear>(
                    nn::LinearOptions{in, out, kind.has_bias, kind.is_transposed}, kind.dtype));
    };
    qkv_ = linear("qkv", kD, 3 * kD);
    o_ = linear("o", kD, kD);
    gate_up_ = linear("gate_up", kD, 8 * kD);
    down_ = linear("down", 4 * kD, kD);
  }

  nn::UnitHook& unit_hook() override { return hook_; }

  at::Tensor forward(const at::Tensor& x_BSD) {
    return hook_({x_BSD},
                 [this](const nn::TensorList& in) { return nn::TensorList{run(in[0])}; })[0];
  }

 private:
  at::Tensor run(const at::Tensor& x_BSD) const {
    const auto heads = qkv_->forward(x_BSD).view({kB, kS, 3 * kN, kH}).split(kN, 2);
    const at::Tensor out = kernels::causal_attention(heads[0], heads[1], heads[2], {}).out;
    const at::Tensor residual = x_BSD + o_->forward(out.reshape({kB, kS, kD}));
    return residual + down_->forward(kernels::gated_activation(gate_up_->forward(residual),
                                                               kernels::Activation::kSilu));
  }

  nn::UnitHook hook_;
  std::shared_ptr<nn::Linear> qkv_, o_, gate_up_, down_;
};

class TwiceRunBlock final : public RecomputedBlock, public nn::RepeatedBlock {
 public:
  using RecomputedBlock::RecomputedBlock;
};

/// Three blocks between an input and an output scale, which belong to the root.
class RecomputedModel final : public torch::nn::Module, public nn::HookedModule {
 public:
  explicit RecomputedModel(const LayerKind& kind, int num_runs = 1, bool is_marked = false)
      : kind_(kind), num_runs_(num_runs) {
    scale_ = register_parameter("scale", tensor::placeholder({kD}, kind.dtype));
    auto layers = register_module("layers", std::make_shared<nn::LayerList>());
    for (const char* name : {"a", "b", "c"}) {
      std::shared_ptr<RecomputedBlock> block;
      if (is_marked) {
        block = std::make_shared<TwiceRunBlock>(kind);
      } else {
        block = std::make_shared<RecomputedBlock>(kind);
      }
      blocks_.push_back(layers->register_module(name, block));
    }
  }

  nn::UnitHook& unit_hook() override { return hook_; }

  at::Tensor loss(int64_t number) {
    const at::Tensor x = at::sin(at::arange(kB * kS * kD, at::kFloat) + double(number));
    return hook_({x.view({kB, kS, kD}).to(kind_.dtype)},
                 [this](const nn::TensorList& in) { return nn::TensorList{run(in[0])}; })[0];
  }

  static nn::ParallelPlan plan() {
    nn::ParallelPlan plan;
    plan.blocks = {"layers.a", "layers.b", "layers.c"};
    return plan;
  }

  tensor::KeyMap keys() const { return own_names(*this); }

 private:
  at::Tensor run(const at::Tensor& x_BSD) const {
    at::Tensor hidden = x_BSD * scale_;
    for (int run = 0; run < num_runs_; ++run) {
      if (run > 0) hidden = hidden / hidden.detach().abs().max();  // the blocks have no norms
      for (const auto& block : blocks_) hidden = block->forward(hidden);
    }
    return (hidden * scale_).pow(2).mean();
  }

  nn::UnitHook hook_;
  LayerKind kind_;
  int num_runs_;  // of the blocks
  at::Tensor scale_;
  std::vector<std::shared_ptr<RecomputedBlock>> blocks_;
};

constexpr LayerKind kPlainLayers = {"Plain", false, false, at::kFloat};

/// A model whose parameters have memory and values, recomputing as `mode` says.
struct Trained {
  explicit Trained(Mode mode, const LayerKind& kind = kPlainLayers) : model(kind) {
    at::set_num_threads(1);
    recompute_blocks(model, RecomputedModel::plan(), mode);
    engine = std::make_unique<DataParallel>(model, RecomputedModel::plan(), model.keys(),
                                            comm::ProcessGroup::solo(), DataParallelOptions{});
    initialise(*engine);
  }

  static void initialise(const Engine& engine) {
    for (const tensor::FlatShard& shard : engine.parameters()) {
      for (const tensor::FlatSegment& segment : shard.segments) {
        tensor::fill_initial_values(shard.view(segment), segment.spec,
                                    tensor::InitRule::normal(0.1, 0.3),
                                    tensor::RandomKey(7, segment.fqn));
      }
    }
  }

  RecomputedModel model;
  std::unique_ptr<Engine> engine;
};

/// name -> gradient after a step of `num_micro_batches`.
std::map<std::string, at::Tensor> step_gradients(Engine& engine, RecomputedModel& model,
                                                 int num_micro_batches) {
  for (int i = 0; i < num_micro_batches; ++i) {
    engine.begin_micro_batch(i + 1 == num_micro_batches);
    model.loss(i).backward();
    engine.end_micro_batch();
  }
  engine.reduce_gradients();
  std::map<std::string, at::Tensor> gradients;
  for (const tensor::FlatShard& shard : engine.gradients()) {
    for (const tensor::FlatSegment& segment : shard.segments) {
      gradients[segment.fqn] = shard.view(segment).clone();
    }
  }
  return gradients;
}

void expect_same_bits(const std::map<std::string, at::Tensor>& found,
                      const std::map<std::string, at::Tensor>& wanted) {
  ASSERT_EQ(found.size(), wanted.size());
  for (const auto& [name, gradient] : wanted) {
    EXPECT_TRUE(at::equal(found.at(name), gradient)) << name;
    EXPECT_GT(gradient.abs().sum().item<float>(), 0) << name;
  }
}

class RecomputeLayersTest : public testing::TestWithParam<LayerKind> {};

TEST_P(RecomputeLayersTest, LossAndGradientsAreThoseOfPlainTrainingToTheBit) {
  Trained plain(Mode::kOff, GetParam());
  const double loss = plain.model.loss(0).item<double>();
  const auto wanted = step_gradients(*plain.engine, plain.model, 2);
  for (const Mode mode : {Mode::kFull, Mode::kSelective}) {
    SCOPED_TRACE(enum_name(mode));
    Trained other(mode, GetParam());
    EXPECT_EQ(other.model.loss(0).item<double>(), loss);
    expect_same_bits(step_gradients(*other.engine, other.model, 2), wanted);
  }
}

INSTANTIATE_TEST_SUITE_P(Kinds, RecomputeLayersTest,
                         testing::Values(kPlainLayers, LayerKind{"Bias", true, false, at::kFloat},
                                         LayerKind{"Transposed", true, true, at::kFloat},
                                         LayerKind{"Bfloat16", true, false, at::kBFloat16}),
                         [](const auto& info) { return info.param.name; });

/// This rank's gradients of three micro-batches whose loss runs the blocks twice.
std::map<std::string, at::Tensor> gradients_of_repeated_blocks(Mode mode,
                                                               const comm::ProcessGroup& ranks) {
  at::set_num_threads(1);
  RecomputedModel model(kPlainLayers, 2, true);
  recompute_blocks(model, RecomputedModel::plan(), mode);
  ShardedEngine engine(model, model.keys(), ShardingGroups::of(ranks), {});
  Trained::initialise(engine);
  return step_gradients(engine, model, 3);
}

TEST(RecomputeTest, BlocksThatALossRunsTwiceHaveTheBitsOfPlainTraining) {
  const comm::ProcessGroup solo = comm::ProcessGroup::solo();
  const auto plain = gradients_of_repeated_blocks(Mode::kOff, solo);
  for (const Mode mode : {Mode::kFull, Mode::kSelective}) {
    SCOPED_TRACE(enum_name(mode));
    expect_same_bits(gradients_of_repeated_blocks(mode, solo), plain);
  }
}

TEST(RecomputeTest, BlocksThatALossRunsTwiceHaveTheBitsOfPlainTrainingOnTwoRanks) {
  comm::expect_ranks(2, [](comm::World& world) {
    const auto plain = gradients_of_repeated_blocks(Mode::kOff, world.group());
    for (const Mode mode : {Mode::kFull, Mode::kSelective}) {
      for (const auto& [name, found] : gradients_of_repeated_blocks(mode, world.group())) {
        comm::expect(at::equal(found, plain.at(name)), cat(name, ", ", enum_name(mode)));
      }
    }
  });
}

/// Plain training of repeated blocks, against autograd's own sums.
TEST(RecomputeTest, RunsThatAreDifferentiatedApartHaveTheSameGradients) {
  const auto gradients = [](bool is_marked) {
    const nn::ParallelPlan plan = RecomputedModel::plan();
    RecomputedModel model(kPlainLayers, 2, is_marked);
    EXPECT_EQ(recompute_blocks(model, plan, Mode::kOff), 0);
    DataParallel engine(model, plan, model.keys(), comm::ProcessGroup::solo(), {});
    Trained::initialise(engine);
    return step_gradients(engine, model, 2);
  };
  const auto apart = gradients(true);
  for (const auto& [name, wanted] : gradients(false)) {
    const double error = (apart.at(name) - wanted).norm().item<double>();
    EXPECT_LE(error, 1e-5 * wanted.norm().item<double>()) << name;  // sums of float32 in two orders
  }
}

/// Calls by operator, of this thread while it lives.
class CallCounts final {
 public:
  CallCounts() {
    counts().clear();
    handle_ = at::addThreadLocalCallback(at::RecordFunctionCallback(
        [](const at::RecordFunction& function) -> std::unique_ptr<at::ObserverContext> {
          counts()[function.name()] += 1;
          return nullptr;
        }));
  }
  ~CallCounts() { at::removeCallback(handle_); }

  int64_t attentions() const { return counts()["automodel::causal_attention"]; }
  int64_t products() const { return counts()["automodel::product"]; }

 private:
  static std::map<std::string, int64_t>& counts() {
    static thread_local std::map<std::string, int64_t> counts;  // callbacks are plain functions
    return counts;
  }

  at::CallbackHandle handle_;
};

struct Computed {
  int64_t attentions, products;
};

Computed computed_in_a_step(Mode mode) {
  Trained trained(mode);
  const CallCounts counts;
  trained.model.loss(0).backward();
  return {counts.attentions(), counts.products()};
}

TEST(RecomputeTest, SelectiveComputesAttentionOnceAndFullTwice) {
  EXPECT_EQ(computed_in_a_step(Mode::kOff).attentions, 3);
  EXPECT_EQ(computed_in_a_step(Mode::kSelective).attentions, 3);
  EXPECT_EQ(computed_in_a_step(Mode::kFull).attentions, 6);
}

TEST(RecomputeTest, SelectiveComputesEverySecondProductAgain) {
  // A block has four products in forward and eight in backward.
  EXPECT_EQ(computed_in_a_step(Mode::kOff).products, 3 * 12);
  EXPECT_EQ(computed_in_a_step(Mode::kSelective).products, 3 * (12 + 2));
  EXPECT_EQ(computed_in_a_step(Mode::kFull).products, 3 * (12 + 4));
}

int64_t bytes_between_forward_and_backward(Mode mode) {
  Trained trained(mode);
  const test::MemoryLedger ledger;
  const at::Tensor loss = trained.model.loss(0);
  const int64_t held = ledger.held();
  loss.backward();
  return held;
}

TEST(RecomputeTest, FullKeepsInputsAndSelectiveKeepsItsResultsBesides) {
  const int64_t off = bytes_between_forward_and_backward(Mode::kOff);
  const int64_t selective = bytes_between_forward_and_backward(Mode::kSelective);
  const int64_t full = bytes_between_forward_and_backward(Mode::kFull);
  // Kept are the first of the four products (3 D a token) and the third (8 D), and attention's
  // output (D) and log-sum-exp (N).
  const int64_t kept_of_a_block = kB * kS * ((3 + 8 + 1) * kD + kN) * 4;
  EXPECT_EQ(selective - full, 3 * kept_of_a_block);
  EXPECT_GT(off, selective);
  RecordProperty("off", std::to_string(off));
  RecordProperty("selective", std::to_string(selective));
  RecordProperty("full", std::to_string(full));
}

TEST(RecomputeTest, WhatAForwardKeptIsFreedByItsBackward) {
  for (const Mode mode : {Mode::kFull, Mode::kSelective}) {
    Trained trained(mode);
    trained.engine->keep_gradients();
    const test::MemoryLedger ledger;
    const at::Tensor loss = trained.model.loss(0);
    loss.backward();
    EXPECT_LE(ledger.held(), kB * kS * kD * 4) << enum_name(mode);  // the graph of the root
  }
}

TEST(RecomputeTest, ForwardsWithoutGradientsKeepNothing) {
  Trained trained(Mode::kSelective);
  const test::MemoryLedger ledger;
  const at::NoGradGuard no_grad;
  const at::Tensor loss = trained.model.loss(0);
  EXPECT_LE(ledger.held(), 64);  // the loss itself
}

TEST(RecomputeTest, OffAndBlocksWithoutTrainedParametersAreLeftAlone) {
  RecomputedModel model(kPlainLayers);
  const nn::ParallelPlan plan = RecomputedModel::plan();
  EXPECT_EQ(recompute_blocks(model, plan, Mode::kOff), 0);
  for (const auto& item : model.named_parameters()) {
    if (item.key().starts_with("layers.b.")) at::Tensor(item.value()).set_requires_grad(false);
  }
  EXPECT_EQ(recompute_blocks(model, plan, Mode::kSelective), 2);
}

/// A block's own backward runs inside the step's; that must not end the step's for the engine.
TEST(RecomputeTest, ShardedParametersAreThereWhenABlockIsRecomputed) {
  Trained plain(Mode::kOff);
  const auto wanted = step_gradients(*plain.engine, plain.model, 3);
  for (const Mode mode : {Mode::kFull, Mode::kSelective}) {
    for (const bool defers : {true, false}) {
      SCOPED_TRACE(cat(enum_name(mode), defers ? ", deferred" : ", eager"));
      RecomputedModel model(kPlainLayers);
      recompute_blocks(model, RecomputedModel::plan(), mode);
      ShardingOptions options;
      options.defers_gradients = defers;
      ShardedEngine engine(model, model.keys(), ShardingGroups::of(comm::ProcessGroup::solo()),
                           options);
      Trained::initialise(engine);
      const auto found = step_gradients(engine, model, 3);
      // Sums over micro-batches are taken in another order when each is reduced.
      for (const auto& [name, gradient] : wanted) {
        EXPECT_TRUE(at::allclose(found.at(name), gradient, 1e-5, 1e-6)) << name;
      }
      EXPECT_EQ(engine.counts().reductions, (defers ? 1 : 3) * 4);  // three blocks and the root
      EXPECT_EQ(engine.counts().gathers, 3 * (1 + 2 + 2 + 1));
    }
  }
}

TEST(GetLmAcLayers, AreThePlansBlocksInForwardOrder) {
  RecomputedModel model(kPlainLayers);
  const auto layers = get_lm_ac_layers(model, RecomputedModel::plan());
  ASSERT_EQ(layers.size(), 3u);
  const auto children = model.children()[0]->children();
  for (size_t i = 0; i < layers.size(); ++i) EXPECT_EQ(layers[i], children[i].get());
}

TEST(GetLmAcLayers, AreNoneForAModelWithoutLayers) {
  RecomputedModel model(kPlainLayers);
  EXPECT_TRUE(get_lm_ac_layers(model, nn::ParallelPlan()).empty());
}

}  // namespace
}  // namespace automodel::distributed
