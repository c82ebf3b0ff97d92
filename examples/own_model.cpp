// A language model of one's own under fully_shard: units, mixed precision, one reduction for two
// micro-batches, whole weights to read at the end.
// Start one process a rank: own_model RANK RANKS PORT
#include <ATen/ATen.h>

#include <cstdio>

#include "comm/groups/sums.h"
#include "comm/world/world.h"
#include "distributed/engine/sharded_engine.h"
#include "kernels/layers/rope.h"
#include "kernels/loss/cross_entropy.h"
#include "nn/attention_core.h"
#include "nn/mlp.h"
#include "nn/rope_tables.h"
#include "optim/optimizer.h"
#include "tensor/random.h"

using namespace automodel;

// B sequences of S tokens, D hidden features, N heads of H, V tokens in the vocabulary.
constexpr int64_t kD = 64, kN = 4, kH = 16, kV = 61;

struct Hooked : torch::nn::Module, nn::HookedModule {
  nn::UnitHook hook;
  nn::UnitHook& unit_hook() override { return hook; }
};

struct Block final : Hooked {
  template <typename Layer, typename Options>
  std::shared_ptr<Layer> add(const char* name, const Options& options) {
    return register_module(name, std::make_shared<Layer>(options, at::kFloat));
  }
  std::shared_ptr<nn::RmsNorm> add_norm(const char* name) {
    return register_module(name,
                           std::make_shared<nn::RmsNorm>(kD, kernels::NormOptions{}, at::kFloat));
  }
  std::shared_ptr<nn::RmsNorm> attention_norm = add_norm("attention_norm");
  std::shared_ptr<nn::Linear> qkv = add<nn::Linear>("qkv", nn::LinearOptions{kD, 3 * kD});
  std::shared_ptr<nn::Linear> out = add<nn::Linear>("out", nn::LinearOptions{kD, kD});
  std::shared_ptr<nn::RmsNorm> mlp_norm = add_norm("mlp_norm");
  std::shared_ptr<nn::Mlp> mlp = add<nn::Mlp>("mlp", nn::MlpOptions{kD, 2 * kD});
  std::shared_ptr<nn::AttentionCore> core = nn::make_local_attention_core();

  /// x [B, S, D] to [B, S, D]. All of it goes through the hook, which gathers and frees weights.
  at::Tensor forward(const at::Tensor& x, const kernels::RopeTable& rope) {
    return hook({x}, [this, rope](const nn::TensorList& in) -> nn::TensorList {
      kernels::QkvOptions heads{.num_heads = kN, .num_kv_heads = kN, .head_dim = kH};
      heads.rope = rope;
      const kernels::Qkv split =
          kernels::split_norm_rotate(qkv->forward(attention_norm->forward(in[0])), heads);
      const at::Tensor seen = core->attend(split.q, split.k, split.v, {}).out;  // [B, S, N, H]
      const auto [sum, normed] = mlp_norm->add(out->forward(seen.flatten(2)), in[0]);
      return {sum + mlp->forward(normed)};
    })[0];
  }
};

struct Model final : Hooked {
  std::shared_ptr<nn::Embedding> embedding = register_module(
      "embedding", std::make_shared<nn::Embedding>(nn::EmbeddingOptions{kV, kD}, at::kFloat));
  std::vector<std::shared_ptr<Block>> blocks;
  nn::RopeTables rope{{.rotary_dim = kH, .max_positions = 64}};
  Model() {
    for (int i = 0; i < 3; ++i) {
      blocks.push_back(register_module(cat("block", i), std::make_shared<Block>()));
    }
  }
  /// ids and labels [B, S]: mean cross-entropy; the head is the embedding, its logits never exist.
  at::Tensor loss(const at::Tensor& ids, const at::Tensor& labels) {
    return hook({}, [this, ids, labels](const nn::TensorList&) -> nn::TensorList {
      at::Tensor x = embedding->forward(ids);
      for (const auto& block : blocks) x = block->forward(x, rope.table(ids.size(1), at::kCPU));
      kernels::CrossEntropyOptions options{.divisor = static_cast<double>(labels.numel())};
      return {kernels::linear_cross_entropy(x.flatten(0, 1), embedding->weight(), labels.flatten(),
                                            options)};
    })[0];
  }
};

int main(int, char** arguments) {
  const int rank = std::atoi(arguments[1]), size = std::atoi(arguments[2]);
  comm::World world(
      {.rank = rank, .size = size, .port = std::atoi(arguments[3]), .hosts_store = rank == 0});
  const auto groups = distributed::ShardingGroups::of(world.group());
  const distributed::ShardingOptions precision{.param_dtype = at::kBFloat16,
                                               .reduce_dtype = at::kFloat};
  Model model;
  for (const auto& block : model.blocks) distributed::fully_shard(*block, groups, precision);
  distributed::FSDPModule& root = distributed::fully_shard(model, groups, precision);
  distributed::fsdp_module(*model.blocks.back())->set_reshard_after_forward(false);

  distributed::ShardedEngine engine(model);
  for (const tensor::FlatShard& shard : engine.parameters()) {
    for (const tensor::FlatSegment& part : shard.segments) {
      const auto rule = part.fqn.ends_with("norm.weight") ? tensor::InitRule::constant(1)
                                                          : tensor::InitRule::normal(0, 0.05);
      tensor::fill_initial_values(shard.view(part), part.spec, rule, {/*seed=*/3, part.fqn});
    }
  }
  engine.parameters_changed();
  const auto adam = optim::make_adam({}, engine.trained(), engine.gradients());
  for (int step = 0; step < 40; ++step) {
    double loss = 0;
    for (int micro_batch = 0; micro_batch < 2; ++micro_batch) {
      root.set_requires_gradient_sync(micro_batch == 1);
      // The token behind x is 5 x + 3 modulo V; every rank has its own sequences.
      std::vector<at::Tensor> tokens{(at::arange(8) * 7 + step * 16 + micro_batch * 8 + rank) % kV};
      while (tokens.size() < 17) tokens.push_back((tokens.back() * 5 + 3) % kV);
      const at::Tensor ids = at::stack(tokens, 1);  // [8, 17]
      const at::Tensor part =
          model.loss(ids.slice(1, 0, 16).contiguous(), ids.slice(1, 1).contiguous());
      (part / 2).backward();
      loss += part.item<double>() / 2;
    }
    adam->step({.lr = 3e-3});
    engine.parameters_changed();
    engine.zero_gradients();
    loss = comm::sum_over(world.group(), loss) / size;
    if (rank == 0) std::printf("step %d loss %.6f\n", step, loss);
  }
  const distributed::ShardingCounts& counts = root.counts();
  double norm = 0;  // whole weights may be read in here, and forwards would gather nothing
  distributed::unshard_fsdp2_model(model,
                                   [&] { norm = model.embedding->weight().norm().item<double>(); });
  if (rank == 0) {
    std::printf("gathers %ld, reductions %ld, norm of the embedding %.4f\n",
                static_cast<long>(counts.gathers), static_cast<long>(counts.reductions), norm);
  }
  world.close();
}
