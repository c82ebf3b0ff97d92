// Trains a module of one's own fully sharded over two ranks; saves, loads and goes on.
// Start one process a rank: sharded_module RANK PORT FOLDER
#include <ATen/ATen.h>

#include <cstdio>

#include "checkpoint/sharded.h"
#include "comm/world/world.h"
#include "distributed/engine/sharded_engine.h"
#include "optim/optimizer.h"

using namespace automodel;

struct Hooked : torch::nn::Module, nn::HookedModule {  // the one line in a forward: see Block
  nn::UnitHook hook;
  nn::UnitHook& unit_hook() override { return hook; }
};

struct Block final : Hooked {
  at::Tensor weight = register_parameter("weight", at::eye(64) * 0.1);
  at::Tensor forward(const at::Tensor& x) {
    return hook({x}, [this](const nn::TensorList& in) -> nn::TensorList {
      return {in[0] + at::tanh(in[0].matmul(weight))};
    })[0];
  }
};

struct Net final : Hooked {
  std::shared_ptr<Block> a = register_module("a", std::make_shared<Block>());
  std::shared_ptr<Block> b = register_module("b", std::make_shared<Block>());
  at::Tensor loss(const at::Tensor& x) {
    return hook({x}, [this](const nn::TensorList& in) -> nn::TensorList {
      return {(b->forward(a->forward(in[0])) - in[0].flip(1)).pow(2).mean()};
    })[0];
  }
};

int main(int, char** arguments) {
  const int rank = std::atoi(arguments[1]), port = std::atoi(arguments[2]);
  comm::World world({.rank = rank, .size = 2, .port = port, .hosts_store = rank == 0});
  const auto groups = distributed::ShardingGroups::of(world.group());
  Net net;
  for (const auto& block : {net.a, net.b}) distributed::fully_shard(*block, groups);
  distributed::fully_shard(net, groups);
  distributed::ShardedEngine engine(net);
  const auto adam = optim::make_adam({}, engine.trained(), engine.gradients());
  const std::vector<checkpoint::NamedShards> shards = {{"", engine.parameters()}};
  for (int step = 0; step < 20; ++step) {
    const at::Tensor loss = net.loss(at::sin(at::arange(512).view({8, 64}) * (1.0 + rank)));
    loss.backward();
    adam->step({.lr = 3e-3});
    engine.parameters_changed();
    engine.zero_gradients();
    std::printf("rank %d step %d loss %.6f\n", rank, step, loss.item<double>());
    if (step != 9) continue;  // half way: save, and go on from what was saved
    checkpoint::save_shards(arguments[3], {"model", rank, 2}, shards);
    world.group().barrier();
    if (rank == 0) checkpoint::finish_shards(arguments[3], {"model", 0, 2});
    world.group().barrier();
    checkpoint::load_shards(arguments[3], shards, {});
    engine.parameters_changed();
  }
  world.close();
}
