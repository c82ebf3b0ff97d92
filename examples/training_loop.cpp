// A training loop of one's own: micro-batches, clipping, a learning-rate schedule and validation,
// over replicas or fully sharded. Losses are the same on any number of ranks, up to rounding.
// Start one process a rank: training_loop RANK RANKS PORT ddp|fsdp2
#include <ATen/ATen.h>

#include <algorithm>
#include <cstdio>
#include <string_view>

#include "comm/groups/sums.h"
#include "comm/world/world.h"
#include "distributed/engine/data_parallel.h"
#include "distributed/engine/sharded_engine.h"
#include "nn/layer_list.h"
#include "nn/mlp.h"
#include "optim/lr_schedule.h"
#include "optim/optimizer.h"
#include "tensor/random.h"

using namespace automodel;

constexpr int kNumSteps = 60;

struct Hooked : torch::nn::Module, nn::HookedModule {
  nn::UnitHook hook;
  nn::UnitHook& unit_hook() override { return hook; }
};

struct Block final : Hooked {
  std::shared_ptr<nn::RmsNorm> norm = register_module(
      "norm", std::make_shared<nn::RmsNorm>(32, kernels::NormOptions{}, at::kFloat));
  std::shared_ptr<nn::Mlp> mlp = register_module(
      "mlp", std::make_shared<nn::Mlp>(nn::MlpOptions{.dim = 32, .inner_dim = 64}, at::kFloat));
  at::Tensor forward(const at::Tensor& x) {
    return hook({x}, [this](const nn::TensorList& in) -> nn::TensorList {
      return {in[0] + mlp->forward(norm->forward(in[0]))};
    })[0];
  }
};

struct Net final : Hooked {
  std::shared_ptr<nn::LayerList> layers =
      register_module("layers", std::make_shared<nn::LayerList>());
  std::vector<std::shared_ptr<Block>> blocks;
  Net() {
    for (int i = 0; i < 3; ++i) {
      blocks.push_back(layers->register_module(std::to_string(i), std::make_shared<Block>()));
    }
  }
  /// Sum of squared errors divided by `divisor`: a scalar with a graph.
  at::Tensor loss(const at::Tensor& rows, double divisor) {
    return hook({rows}, [this, divisor](const nn::TensorList& in) -> nn::TensorList {
      at::Tensor x = in[0];
      for (const auto& block : blocks) x = block->forward(x);
      return {(x - in[0].roll(1, 1)).pow(2).sum() / divisor};
    })[0];
  }
};

/// 4 rows of numbers. A step has 4 micro-batches, which its ranks share.
at::Tensor rows_of(int step, int micro_batch) {
  const at::Tensor place = at::arange(4 * 32, at::kDouble).view({4, 32});
  return at::sin(place * place * (0.37 + 0.11 * (4 * step + micro_batch))).to(at::kFloat);
}

std::unique_ptr<distributed::Engine> make_engine(Net& net, const comm::ProcessGroup& ranks,
                                                 bool is_sharded) {
  const tensor::KeyMap names = distributed::own_names(net);
  if (is_sharded) {  // the elements of layer lists become units, then the whole
    return std::make_unique<distributed::ShardedEngine>(
        net, names, distributed::ShardingGroups::of(ranks), distributed::ShardingOptions{});
  }
  nn::ParallelPlan plan;  // replicas take the units from the plan
  for (size_t i = 0; i < net.blocks.size(); ++i) plan.blocks.push_back(cat("layers.", i));
  return std::make_unique<distributed::DataParallel>(net, plan, names, ranks,
                                                     distributed::DataParallelOptions{});
}

/// Numbers keyed by a tensor's name and an element's place: the same on any number of ranks.
void draw_weights(distributed::Engine& engine) {
  for (const tensor::FlatShard& shard : engine.parameters()) {
    for (const tensor::FlatSegment& part : shard.segments) {
      const bool is_norm = part.fqn.ends_with("norm.weight");
      const auto rule = is_norm ? tensor::InitRule::constant(1) : tensor::InitRule::normal(0, 0.1);
      tensor::fill_initial_values(shard.view(part), part.spec, rule, {/*seed=*/7, part.fqn});
    }
  }
  engine.parameters_changed();
}

int main(int, char** arguments) {
  const int rank = std::atoi(arguments[1]), size = std::atoi(arguments[2]);
  comm::World world(
      {.rank = rank, .size = size, .port = std::atoi(arguments[3]), .hosts_store = rank == 0});
  const comm::ProcessGroup ranks = world.group();
  Net net;
  const auto engine = make_engine(net, ranks, std::string_view(arguments[4]) == "fsdp2");
  draw_weights(*engine);
  const auto adam =
      optim::make_adam({.is_decoupled = true}, engine->trained(), engine->gradients());
  const optim::LrSchedule schedule({.lr_decay_style = "cosine", .lr_warmup_steps = 5}, 1e-2, 0.01,
                                   kNumSteps);
  for (int step = 0; step < kNumSteps; ++step) {
    // A reduction averages over the ranks: with this divisor, the mean over all rows of the step.
    const double divisor = 16.0 * 32 / size;
    double loss = 0;
    for (int i = rank; i < 4; i += size) {
      engine->begin_micro_batch(/*is_last=*/i + size >= 4);
      const at::Tensor part = net.loss(rows_of(step, i), divisor);
      part.backward();
      engine->end_micro_batch();
      loss += part.item<double>() / size;
    }
    engine->reduce_gradients();
    loss = comm::sum_over(ranks, loss);
    const double norm = engine->gradient_norm();
    adam->step({.lr = schedule.lr(step),
                .weight_decay = schedule.weight_decay(step),
                .grad_scale = std::min(1.0, 1.0 / (norm + 1e-6))});
    engine->parameters_changed();
    engine->zero_gradients();
    if (rank == 0) std::printf("step %d norm %.4f loss %.6f\n", step, norm, loss);
  }
  at::NoGradGuard no_grad;  // validation: rows that no step has seen, the same on every rank
  engine->begin_micro_batch(true);
  const double loss = net.loss(rows_of(kNumSteps, 0), 4.0 * 32).item<double>();
  engine->end_micro_batch();
  if (rank == 0) std::printf("validation loss %.6f\n", loss);
  world.close();
}
