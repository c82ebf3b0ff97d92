// Collectives between tensor-parallel and expert-parallel ranks over groups that behave as those of
// an accelerator's streams do (tests/comm/recording_group.h).
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "distributed/expert/expert_parallel.h"
#include "distributed/expert/token_exchange.h"
#include "distributed/recorded_training.h"
#include "distributed/small_llama.h"
#include "distributed/toy_model.h"

namespace automodel::distributed {
namespace {

using comm::expect_rank_threads;

using comm::expect_same_when_recorded;
using comm::Groups;
using comm::ProcessGroup;

std::vector<at::Tensor> train_llama(const DeviceMesh& mesh, const ParallelizeOptions& options) {
  SmallLlama llama;
  const auto engine = fsdp2_strategy_parallelize(llama.parallel(), mesh, options);
  fill_by_name(*engine);
  return values_of_a_step(*engine, 2, [&](int) { return llama.loss(11); });
}

TEST(StreamExchangeTest, SplitLayersGiveWhatTheyGiveOverPlainGroups) {
  using enum ActivationCheckpointingMode;
  expect_rank_threads(4, [](comm::World& world) {
    const ProcessGroup tp = world.split("tp", {{0, 1}, {2, 3}});
    const ProcessGroup dp = world.split("dp", {{0, 2}, {1, 3}});
    for (const bool sequence_parallel : {false, true}) {
      for (const auto recomputes : {kOff, kFull}) {
        expect_same_when_recorded(world, "tensor parallel", [&](const Groups& over) {
          const auto one = ProcessGroup::solo();
          const ProcessGroup parts = over(dp);
          const DeviceMesh mesh(
              {{"dp_replicate", one}, {"dp_shard_cp", parts}, {"dp_cp", parts}, {"tp", over(tp)}});
          ParallelizeOptions options;
          options.sequence_parallel = sequence_parallel;
          options.activation_checkpointing = recomputes;
          options.sharding.forward_prefetch_depth = options.sharding.backward_prefetch_depth = 1;
          return train_llama(mesh, options);
        });
      }
    }
  });
}

/// Tokens to experts and back; k experts of the eight a token, in a pattern that leaves some out.
std::vector<at::Tensor> exchange_tokens(const ExpertGroups& groups, bool has_same_tokens) {
  constexpr int64_t kTokens = 9, kDims = 4, kChosen = 2, kExperts = 8;
  const double phase = has_same_tokens ? groups.ep.rank() / 2 : groups.ep.rank();
  const auto numbers = at::arange(kTokens * kDims, at::kFloat);
  const at::Tensor x = at::sin(numbers + phase).view({kTokens, kDims}).requires_grad_();
  const at::Tensor chosen = at::arange(kTokens * kChosen, at::kLong) * 5 + int64_t(phase) * 3;
  const at::Tensor ids = at::remainder(chosen, kExperts - 2).view({kTokens, kChosen});
  const at::Tensor weights = at::cos(ids.to(at::kFloat) + phase).requires_grad_();
  const auto dispatcher = make_all_to_all_dispatcher(groups, kExperts);
  const nn::DispatchedTokens there = dispatcher->dispatch(x, ids, weights);
  const at::Tensor share = (there.weights * there.expert_ids.ge(0)).sum(1, true);
  const at::Tensor y = dispatcher->combine(at::tanh(there.tokens) * share, there);
  y.pow(2).sum().backward();
  return {there.tokens.detach(), there.expert_ids, y.detach(), x.grad(), weights.grad()};
}

TEST(StreamExchangeTest, TokensReachTheirExpertsAsOverPlainGroups) {
  expect_rank_threads(4, [](comm::World& world) {
    expect_same_when_recorded(world, "tokens of every rank", [&](const Groups& over) {
      return exchange_tokens({over(world.group()), ProcessGroup::solo()}, false);
    });
    const ProcessGroup tp = world.split("tp", {{0, 1}, {2, 3}});
    expect_same_when_recorded(world, "tokens of pairs", [&](const Groups& over) {
      return exchange_tokens({over(world.group()), over(tp)}, true);
    });
  });
}

}  // namespace
}  // namespace automodel::distributed
