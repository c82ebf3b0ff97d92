#pragma once

#include <ATen/ATen.h>

#include <memory>
#include <string>
#include <vector>

#include "distributed/engine/moe_fsdp_mixin.h"
#include "distributed/groups/sharding_groups.h"
#include "distributed/toy_modules.h"

namespace automodel::distributed {

/// x + tanh(x w), of 6 features.
class LinearToy : public HookedToy {
 public:
  explicit LinearToy(double phase) { weight_ = make("weight", {6, 6}, phase); }

 protected:
  at::Tensor run(const at::Tensor& x) override { return x + at::tanh(x.matmul(weight_)); }

 private:
  at::Tensor weight_;
};

/// What lies between a block and its experts; no unit.
class ExpertsHolder final : public torch::nn::Module {
 public:
  explicit ExpertsHolder(double phase)
      : experts(register_module("experts", std::make_shared<LinearToy>(phase))) {}

  std::shared_ptr<LinearToy> experts;
};

/// A weight of its own, then mlp.experts (or moe.experts).
class MoeBlockToy final : public LinearToy {
 public:
  MoeBlockToy(double phase, const std::string& holder)
      : LinearToy(phase),
        holder_(register_module(holder, std::make_shared<ExpertsHolder>(phase + 2))) {}

  LinearToy& experts() { return *holder_->experts; }

 protected:
  at::Tensor run(const at::Tensor& x) override {
    return holder_->experts->forward(LinearToy::run(x));
  }

 private:
  std::shared_ptr<ExpertsHolder> holder_;
};

/// embed_tokens and layers: block 0 with mlp.experts, block 1 with moe.experts.
class MoeInnerToy final : public LinearToy {
 public:
  MoeInnerToy() : LinearToy(0.5) {
    embed_tokens = register_module("embed_tokens", std::make_shared<LinearToy>(1.5));
    auto layers = register_module("layers", std::make_shared<nn::LayerList>());
    int number = 0;
    for (const char* holder : {"mlp", "moe"}) {
      blocks.push_back(layers->register_module(
          std::to_string(number), std::make_shared<MoeBlockToy>(3.0 + number, holder)));
      number += 1;
    }
  }

  std::shared_ptr<LinearToy> embed_tokens;
  std::vector<std::shared_ptr<MoeBlockToy>> blocks;

 protected:
  at::Tensor run(const at::Tensor& x) override {
    at::Tensor hidden = LinearToy::run(embed_tokens->forward(x));
    for (const auto& block : blocks) hidden = block->forward(hidden);
    return hidden;
  }
};

/// What of a toy is a unit beside experts, blocks, embedding, head and the inner model.
struct MoeToyOptions {
  bool enables_optimizations = true;
  bool wraps_outer_model = false;
  bool has_towers = false;
  bool has_mtp = false;
};

/// model, lm_head, and what the options add: audio_tower, visual (holding a unit, none itself),
/// mtp.
class MoeToy final : public HookedToy, public MoEFSDPSyncMixin {
 public:
  explicit MoeToy(const MoeToyOptions& options = {}) : options_(options) {
    model = register_module("model", std::make_shared<MoeInnerToy>());
    lm_head = register_module("lm_head", std::make_shared<LinearToy>(7.5));
    if (options.has_towers) {
      audio_tower = register_module("audio_tower", std::make_shared<LinearToy>(8.5));
      visual = register_module("visual", std::make_shared<ExpertsHolder>(9.5));
    }
    if (options.has_mtp) {
      mtp = register_module("mtp", std::make_shared<MoeInnerToy>());
    }
  }

  /// Units from the inside out.
  void shard(const ShardingGroups& groups, const ShardingOptions& options = {}) {
    for (MoeInnerToy* inner : {model.get(), mtp.get()}) {
      if (inner == nullptr) continue;
      for (const auto& block : inner->blocks) {
        fully_shard(block->experts(), groups, options);
        fully_shard(*block, groups, options);
      }
    }
    fully_shard(*model->embed_tokens, groups, options);
    fully_shard(*lm_head, groups, options);
    if (options_.has_towers) {
      fully_shard(*audio_tower, groups, options);
      fully_shard(*visual->experts, groups, options);
    }
    fully_shard(*model, groups, options);
    if (options_.wraps_outer_model) fully_shard(*this, groups, options);
  }

  at::Tensor loss(const at::Tensor& x) { return forward(x).pow(2).mean(); }
  torch::nn::Module& synced_module() override { return *this; }

  std::shared_ptr<MoeInnerToy> model;
  std::shared_ptr<LinearToy> lm_head;
  std::shared_ptr<LinearToy> audio_tower;
  std::shared_ptr<ExpertsHolder> visual;
  std::shared_ptr<MoeInnerToy> mtp;

 protected:
  at::Tensor run(const at::Tensor& x) override { return lm_head->forward(model->forward(x)); }
  bool enables_fsdp_optimizations() const override { return options_.enables_optimizations; }

 private:
  MoeToyOptions options_;
};

}  // namespace automodel::distributed
