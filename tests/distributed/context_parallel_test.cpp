#include "distributed/context/context_parallel.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include "comm/recorded_runs.h"
#include "support/errors.h"

namespace automodel::distributed {
namespace {

using kernels::AttentionOptions;
using kernels::AttentionResult;

/// Attention of whole sequences and what hides keys in it.
struct ContextCase {
  std::string name;
  int64_t length = 32;
  AttentionOptions options = {};
  at::ScalarType dtype = at::kFloat;
  double tolerance = 1e-6;
};

at::Tensor noise(at::IntArrayRef sizes, double phase) {
  int64_t numel = 1;
  for (const int64_t size : sizes) numel *= size;
  return (at::sin(at::arange(numel, at::kDouble).pow(2) * 0.37 + phase) * 1.5).view(sizes);
}

double distance(const at::Tensor& found, const at::Tensor& wanted) {
  const at::Tensor exact = wanted.to(at::kDouble);
  return ((found.to(at::kDouble) - exact).norm() / exact.norm()).item<double>();
}

/// q, k, v and the result's gradient, [2, S, ..] of 4 query and 2 key heads.
std::vector<at::Tensor> heads_of(const ContextCase& context_case) {
  std::vector<at::Tensor> heads = {
      noise({2, context_case.length, 4, 8}, 1), noise({2, context_case.length, 2, 8}, 2),
      noise({2, context_case.length, 2, 8}, 3), noise({2, context_case.length, 4, 8}, 4)};
  for (at::Tensor& x : heads) x = x.to(context_case.dtype);
  return heads;
}

/// {out, dq, dk, dv} in float64.
std::vector<at::Tensor> exact_results(const ContextCase& context_case) {
  const auto heads = heads_of(context_case);
  std::vector<at::Tensor> leaves;
  for (size_t i = 0; i < 3; ++i) leaves.push_back(heads[i].to(at::kDouble).requires_grad_());
  const at::Tensor out =
      kernels::causal_attention_reference(leaves[0], leaves[1], leaves[2], context_case.options)
          .out;
  out.backward(heads[3].to(at::kDouble));
  return {out.detach(), leaves[0].grad(), leaves[1].grad(), leaves[2].grad()};
}

/// Options of a rank's share.
AttentionOptions share_of(const ContextCase& context_case, const SequenceShare& share) {
  tensor::Batch batch;
  batch.input_ids = at::zeros({2, context_case.length}, at::kLong);
  batch.padding_mask = context_case.options.padding_mask;
  batch.document_ids = context_case.options.document_ids;
  const tensor::Batch part = split_batch(batch, -100, share);
  AttentionOptions options = context_case.options;
  options.padding_mask = part.padding_mask;
  options.document_ids = part.document_ids;
  options.visible_keys = part.visible_keys;
  return options;
}

/// {out, dq, dk, dv} of this rank's tokens.
std::vector<at::Tensor> split_results(const ContextCase& context_case, CpRotateMethod method,
                                      SequenceLayout layout, const comm::ProcessGroup& group) {
  const SequenceShare share{group.rank(), group.size(), layout};
  const auto core = make_context_parallel_core(group, method, layout);
  std::vector<at::Tensor> own;
  for (const at::Tensor& x : heads_of(context_case)) own.push_back(split_tokens(x, 0, share));
  for (size_t i = 0; i < 3; ++i) own[i].requires_grad_();
  const AttentionResult result =
      core->attend(own[0], own[1], own[2], share_of(context_case, share));
  result.out.backward(own[3]);
  comm::expect(result.out.scalar_type() == context_case.dtype, "dtype of the result");
  return {result.out.detach(), own[0].grad(), own[1].grad(), own[2].grad()};
}

void expect_whole(const ContextCase& context_case, CpRotateMethod method, SequenceLayout layout,
                  const comm::ProcessGroup& group) {
  const SequenceShare share{group.rank(), group.size(), layout};
  const auto found = split_results(context_case, method, layout, group);
  const auto wanted = exact_results(context_case);
  const char* const names[] = {"out", "dq", "dk", "dv"};
  for (size_t i = 0; i < wanted.size(); ++i) {
    const double off = distance(found[i], split_tokens(wanted[i], 0, share));
    comm::expect(off < context_case.tolerance,
                 cat(context_case.name, ": ", names[i], " is off by ", off));
  }
}

std::vector<ContextCase> cases() {
  const at::Tensor documents = at::arange(32, at::kLong).floor_divide(11).expand({2, 32});
  at::Tensor padding = at::zeros({2, 32}, at::kBool);
  padding[0].narrow(0, 29, 3).fill_(true);
  padding[1].narrow(0, 0, 7).fill_(true);
  const kernels::DropoutMask dropped{0.3, tensor::RandomKey(7, "probabilities")};
  return {{.name = "causal"},
          {.name = "one token a chunk", .length = 8},
          {.name = "long", .length = 160},
          {.name = "windows", .options = {.window = 3}},
          {.name = "windows over chunks", .options = {.window = 13}},
          {.name = "cap and scale", .options = {.scale = 0.7, .softcap = 3}},
          {.name = "documents", .options = {.document_ids = documents}},
          {.name = "padding", .options = {.padding_mask = padding}},
          {.name = "documents, padding, window",
           .options = {.window = 5, .padding_mask = padding, .document_ids = documents}},
          {.name = "float64", .dtype = at::kDouble, .tolerance = 1e-13},
          {.name = "bfloat16", .dtype = at::kBFloat16, .tolerance = 8e-3},
          {.name = "dropout", .options = {.dropout = {.mask = dropped}}},
          {.name = "dropout, documents, window",
           .options = {.window = 9, .dropout = {.mask = dropped}, .document_ids = documents}}};
}

TEST(ContextParallelTest, AttentionAndItsGradientsAreThoseOfTheWhole) {
  for (const int num_ranks : {2, 4}) {
    comm::expect_ranks(num_ranks, [](comm::World& world) {
      for (const ContextCase& context_case : cases()) {
        for (const auto method : {CpRotateMethod::kAllGather, CpRotateMethod::kAllToAll}) {
          expect_whole(context_case, method, SequenceLayout::kHeadTail, world.group());
        }
      }
    });
  }
}

TEST(ContextParallelTest, ContiguousSharesGiveTheSame) {
  comm::expect_ranks(2, [](comm::World& world) {
    for (const auto method : {CpRotateMethod::kAllGather, CpRotateMethod::kAllToAll}) {
      expect_whole(cases()[8], method, SequenceLayout::kContiguous, world.group());
    }
  });
}

TEST(ContextParallelTest, OverStreamsValuesAreTheSameToTheBit) {
  comm::expect_rank_threads(4, [](comm::World& world) {
    for (const ContextCase& context_case : cases()) {
      for (const auto method : {CpRotateMethod::kAllGather, CpRotateMethod::kAllToAll}) {
        comm::expect_same_when_recorded(world, context_case.name, [&](const comm::Groups& over) {
          return split_results(context_case, method, SequenceLayout::kHeadTail,
                               over(world.group()));
        });
      }
    }
  });
}

TEST(ContextParallelTest, AGroupOfOneAttendsToItsOwn) {
  at::set_num_threads(1);
  for (const auto method : {CpRotateMethod::kAllGather, CpRotateMethod::kAllToAll}) {
    expect_whole(cases()[8], method, SequenceLayout::kHeadTail, comm::ProcessGroup::solo());
  }
}

TEST(ContextParallelTest, DropoutIsRefusedWhereNoLoopsDrawIt) {
  const auto core =
      make_context_parallel_core(comm::ProcessGroup::solo(), CpRotateMethod::kAllGather);
  const at::Tensor x = at::ones({1, 2, 1, 4}, at::kDouble);
  EXPECT_EQ(
      test::error_of<UnsupportedError>(
          [&] { core->attend(x, x, x, {.dropout = {.mask = {.p = 0.1}}}); }),
      "attention dropout with cp_size > 1 is for float32 and bfloat16 on CPUs and NVIDIA GPUs");
}

TEST(ContextParallelTest, GatheredTokensAreTheWholeAndTheirGradientsAreSummed) {
  comm::expect_ranks(2, [](comm::World& world) {
    const ContextParallelSharder sharder(world.group(), -100);
    const at::Tensor x = noise({2, 7, 3}, 5);
    const at::Tensor own = sharder.shard_token_tensor(x, 0).requires_grad_();
    const at::Tensor whole = sharder.gather_token_tensor(own, 7);
    comm::expect(at::equal(whole, x), "gathered");
    const at::Tensor upstream = noise({2, 7, 3}, 6);
    const at::Tensor gradient = torch::autograd::grad({(whole * upstream).sum()}, {own})[0];
    comm::expect(at::allclose(gradient, 2 * sharder.shard_token_tensor(upstream, 0)), "gradient");
  });
}

}  // namespace
}  // namespace automodel::distributed
