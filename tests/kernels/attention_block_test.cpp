#include "kernels/attention/attention_block.h"

#include <functional>
#include <memory>

#include "kernels/attention/visible_keys.h"
#include "kernels/differentiation.h"
#include "kernels/host_kernels.h"
#include "support/allocation_counter.h"

namespace automodel::kernels {
namespace {

// Whole sequences put together from blocks, against causal_attention_reference.

struct BlockCase {
  AttentionOptions options;
  std::vector<int64_t> queries;  ///< lengths of the runs of queries
  std::vector<int64_t> keys;
};

Tensors heads(int64_t length, at::ScalarType dtype) {
  Numbers numbers(6);
  Tensors out = {numbers.normal({2, length, 4, 16}) * 2, numbers.normal({2, length, 2, 16}),
                 numbers.normal({2, length, 2, 16}), numbers.normal({2, length, 4, 16})};
  for (at::Tensor& x : out) x = x.to(dtype);
  return out;
}

AttentionBlock block_of(const BlockCase& block_case, int64_t first_query, int64_t num_queries,
                        int64_t first_key) {
  AttentionBlock block;
  block.scale = 0.25;
  block.window = block_case.options.window;
  block.softcap = block_case.options.softcap;
  block.first_query = first_query;
  block.first_key = first_key;
  const auto visible =
      visible_keys(block_case.options.padding_mask, block_case.options.document_ids);
  if (visible->defined()) block.visible_keys = visible->narrow(1, first_query, num_queries);
  return block;
}

/// Calls body(block, queries, keys) for every pair of runs, the later keys first.
template <typename Body>
void for_each_block(const BlockCase& block_case, int64_t length, const Body& body) {
  int64_t first_query = 0;
  for (const int64_t num_queries : block_case.queries) {
    int64_t end_key = length;
    for (auto num_keys = block_case.keys.rbegin(); num_keys != block_case.keys.rend(); ++num_keys) {
      AttentionBlock block = block_of(block_case, first_query, num_queries, end_key - *num_keys);
      block.adds = end_key != length;
      body(block, num_queries, *num_keys);
      end_key -= *num_keys;
    }
    first_query += num_queries;
  }
}

/// {out, dq, dk, dv, lse} from blocks.
Tensors from_blocks(const BlockCase& block_case, const Tensors& in) {
  const int64_t length = in[0].size(1);
  AttentionResult whole{at::full_like(in[0], 7), at::full({2, 4, length}, 7.0, in[0].options())};
  Qkv d{at::zeros_like(in[0]), at::zeros_like(in[1]), at::zeros_like(in[2])};
  const auto qkv_of = [&](const Qkv& x, const AttentionBlock& block, int64_t queries,
                          int64_t keys) {
    return Qkv{x.q.narrow(1, block.first_query, queries), x.k.narrow(1, block.first_key, keys),
               x.v.narrow(1, block.first_key, keys)};
  };
  const auto result_of = [&](const AttentionBlock& block, int64_t queries) {
    return AttentionResult{whole.out.narrow(1, block.first_query, queries),
                           whole.lse.narrow(2, block.first_query, queries)};
  };
  for_each_block(block_case, length,
                 [&](const AttentionBlock& block, int64_t queries, int64_t keys) {
                   AttentionResult result = result_of(block, queries);
                   attend_block(block, qkv_of({in[0], in[1], in[2]}, block, queries, keys), result);
                 });
  for_each_block(block_case, length,
                 [&](const AttentionBlock& block, int64_t queries, int64_t keys) {
                   Qkv part = qkv_of(d, block, queries, keys);
                   attend_block_backward(block, qkv_of({in[0], in[1], in[2]}, block, queries, keys),
                                         result_of(block, queries),
                                         in[3].narrow(1, block.first_query, queries), part);
                 });
  return {whole.out, d.q, d.k, d.v, whole.lse};
}

Tensors from_reference(AttentionOptions options, const Tensors& in) {
  options.scale = 0.25;
  Tensors leaves;
  for (size_t i = 0; i < 3; ++i) leaves.push_back(in[i].detach().clone().requires_grad_());
  const AttentionResult result =
      causal_attention_reference(leaves[0], leaves[1], leaves[2], options);
  result.out.backward(in[3]);
  return {result.out.detach(), leaves[0].grad(), leaves[1].grad(), leaves[2].grad(),
          result.lse.detach()};
}

void expect_whole(const BlockCase& block_case, int64_t length) {
  at::set_num_threads(1);
  const Tensors exact = from_reference(block_case.options, heads(length, at::kDouble));
  const char* const names[] = {"out", "dq", "dk", "dv"};
  for (const at::ScalarType dtype : {at::kFloat, at::kDouble}) {
    const Tensors found = from_blocks(block_case, heads(length, dtype));
    for (size_t i = 0; i < 4; ++i) {
      EXPECT_LE(relative_error(found[i], exact[i]), dtype == at::kFloat ? 1e-6 : 1e-13)
          << names[i] << " " << dtype;
    }
  }
}

TEST(AttentionBlock, BlocksOfAnyShapeMakeTheWhole) {
  const std::vector<std::vector<int64_t>> cuts = {{70}, {35, 35}, {1, 69}, {20, 30, 20}};
  for (const auto& queries : cuts) {
    for (const auto& keys : cuts) expect_whole({{}, queries, keys}, 70);
  }
  expect_whole({{}, {65, 65, 70}, {100, 100}}, 200);
}

TEST(AttentionBlock, WindowsAndCapsReachOverBlocks) {
  expect_whole({{.window = 25, .softcap = 5}, {35, 35}, {20, 50}}, 70);
  expect_whole({{.window = 3}, {35, 35}, {35, 35}}, 70);
}

TEST(AttentionBlock, DocumentsAndPaddingReachOverBlocks) {
  const at::Tensor ids = at::arange(70, at::kLong).floor_divide(25).expand({2, 70});
  at::Tensor padding = at::zeros({2, 70}, at::kBool);
  padding[0].narrow(0, 0, 5).fill_(true);
  padding[1].narrow(0, 60, 10).fill_(true);
  expect_whole({{.document_ids = ids}, {35, 35}, {20, 50}}, 70);
  expect_whole({{.padding_mask = padding}, {35, 35}, {20, 50}}, 70);
  expect_whole({{.padding_mask = padding, .document_ids = ids}, {10, 60}, {40, 30}}, 70);
}

TEST(AttentionBlock, QueriesThatHaveSeenNothingHaveZerosAndMinusInfinity) {
  const Tensors in = heads(4, at::kFloat);
  AttentionResult result{at::full_like(in[0], 7), at::full({2, 4, 4}, 7.0)};
  attend_block({.first_query = 0, .first_key = 4}, {in[0], in[1], in[2]}, result);
  EXPECT_TRUE(result.out.eq(0).all().item<bool>());
  EXPECT_TRUE(result.lse.isneginf().all().item<bool>());
}

TEST(AttentionBlock, SaysWhichBlocksHaveNothingToSee) {
  EXPECT_TRUE(has_visible_pair({.first_query = 4, .first_key = 0}, 4, 4));
  EXPECT_TRUE(has_visible_pair({.first_query = 4, .first_key = 4}, 4, 4));
  EXPECT_FALSE(has_visible_pair({.first_query = 4, .first_key = 8}, 4, 4));
  EXPECT_TRUE(has_visible_pair({.window = 2, .first_query = 4, .first_key = 0}, 4, 4));
  EXPECT_FALSE(has_visible_pair({.window = 1, .first_query = 4, .first_key = 0}, 4, 4));
}

TEST(VisibleKeys, AreTheRunsOfDocumentsWithoutTheirPadding) {
  const at::Tensor ids = at::tensor({5, 5, 5, 2, 2, 9}, at::kLong).unsqueeze(0);
  const at::Tensor padding = at::tensor({0, 0, 1, 1, 0, 1}, at::kLong).to(at::kBool).unsqueeze(0);
  const at::Tensor wanted =
      at::tensor({0, 2, 0, 2, 0, 2, 4, 5, 4, 5, 5, 5}, at::kLong).view({1, 6, 2});
  // A document of nothing but padding has an empty run.
  const at::Tensor found = *visible_keys(padding, ids);
  EXPECT_TRUE(at::equal(found.narrow(1, 0, 5), wanted.narrow(1, 0, 5)));
  EXPECT_GE(found[0][5][0].item<int64_t>(), found[0][5][1].item<int64_t>());
}

TEST(VisibleKeys, AreNoRunsWhereADocumentBeginsAgainOrHasPaddingInside) {
  EXPECT_FALSE(visible_keys({}, at::tensor({1, 2, 1}, at::kLong).unsqueeze(0)).has_value());
  EXPECT_FALSE(
      visible_keys(at::tensor({0, 1, 0}, at::kLong).to(at::kBool).unsqueeze(0), {}).has_value());
  EXPECT_FALSE(visible_keys({}, {})->defined());
}

// Where ATen's operations compute: what devices run, here in dtypes that have no loops.

/// {out, lse, dq, dk, dv} of one block whose scores are `max_scores` at a time.
Tensors in_pieces(AttentionBlock block, const Tensors& in, int64_t max_scores) {
  block.max_scores = max_scores;
  const Qkv qkv{in[0], in[1], in[2]};
  AttentionResult result{at::full_like(in[0], 0.5),
                         at::full({2, 4, in[0].size(1)}, 1.5, in[0].options())};
  attend_block(block, qkv, result);
  Qkv d{at::zeros_like(in[0]), at::zeros_like(in[1]), at::zeros_like(in[2])};
  attend_block_backward(block, qkv, result, in[3], d);
  return {result.out, result.lse, d.q, d.k, d.v};
}

TEST(AttentionPieces, GiveWhatAllQueriesAtOnceGive) {
  constexpr int64_t kLength = 70;
  const Tensors in = heads(kLength, at::kDouble);
  const at::Tensor padding = at::arange(kLength, at::kLong).ge(50).expand({2, kLength});
  std::vector<AttentionBlock> blocks(6);
  blocks[1].window = 9;
  blocks[2].softcap = 3;
  blocks[3].visible_keys = *visible_keys(padding, {});
  blocks[4].adds = true;
  blocks[5].first_query = 30;
  for (size_t i = 0; i < blocks.size(); ++i) {
    blocks[i].scale = 0.25;
    const Tensors whole = in_pieces(blocks[i], in, AttentionBlock::kMaxScores);
    // 16 queries at least, and 25: the last piece is shorter.
    for (const int64_t max_scores : {int64_t{1}, 2 * 4 * kLength * 25}) {
      const Tensors pieces = in_pieces(blocks[i], in, max_scores);
      for (size_t tensor = 0; tensor < whole.size(); ++tensor) {
        EXPECT_TRUE(at::allclose(pieces[tensor], whole[tensor], 1e-12, 1e-13))
            << "block " << i << " tensor " << tensor;
      }
    }
  }
}

TEST(AttentionPieces, HoldNoMoreScoresThanTheyMay) {
  EXPECT_EQ(num_queries_at_once(1000, 100, 2500), 25);
  EXPECT_EQ(num_queries_at_once(1000, 100, 1), 16);
  EXPECT_EQ(num_queries_at_once(1000, 100, 1 << 20), 1000);
  EXPECT_EQ(num_queries_at_once(5, 100, 1), 5);
  constexpr int64_t kLength = 600;
  const Tensors in = heads(kLength, at::kDouble);
  AttentionBlock block;
  const auto peak_of = [&](int64_t max_scores) {
    const auto counter = std::make_shared<test::AllocationCounter>();
    const c10::DebugInfoGuard guard(c10::DebugInfoKind::PROFILER_STATE, counter);
    in_pieces(block, in, max_scores);
    return counter->peak();
  };
  constexpr int64_t kWholeScores = 2 * 4 * kLength * kLength * 8;
  EXPECT_GT(peak_of(AttentionBlock::kMaxScores), 2 * kWholeScores);
  EXPECT_LT(peak_of(2 * 4 * kLength * 16), kWholeScores / 2);
}

TEST(CausalAttentionByBlocks, IsAsCloseAsWholeScoresInEveryDtype) {
  using Path = std::function<at::Tensor(const Tensors&, const AttentionOptions&)>;
  const Path reference = [](const Tensors& in, const AttentionOptions& options) {
    return causal_attention_reference(in[0], in[1], in[2], options).out;
  };
  const Path blocks = [](const Tensors& in, const AttentionOptions& options) {
    return causal_attention_by_blocks(in[0], in[1], in[2], options)->out;
  };
  Tensors in = heads(70, at::kFloat);
  in[3] = Numbers(8).normal({4});  // sinks
  const at::Tensor padding = at::arange(70, at::kLong).ge(60).expand({2, 70});
  for (const AttentionOptions& options :
       {AttentionOptions{}, AttentionOptions{.window = 9}, AttentionOptions{.softcap = 4},
        AttentionOptions{.padding_mask = padding}}) {
    for (const bool has_sinks : {false, true}) {
      const auto with = [&](const Path& path) {
        return [&](const Tensors& leaves) {
          AttentionOptions own = options;
          if (has_sinks) own.sinks = leaves[3];
          return Tensors{path(leaves, own)};
        };
      };
      const Tensors exact = differentiate(with(reference), in, at::kDouble);
      const Tensors same = differentiate(with(blocks), in, at::kDouble);
      const Tensors narrow = differentiate(with(blocks), in, at::kBFloat16);
      const Tensors plain = differentiate(with(reference), in, at::kBFloat16);
      for (size_t i = 0; i < exact.size(); ++i) {
        EXPECT_LE(relative_error(same[i], exact[i]), 1e-12) << i;
        EXPECT_EQ(narrow[i].scalar_type(), at::kBFloat16);
        EXPECT_LE(relative_error(narrow[i], exact[i]), 2 * relative_error(plain[i], exact[i])) << i;
      }
    }
  }
}

/// Rectangles of some heads of a layer, of whose mask a device's kernel draws rows.
TEST(AttentionPieces, DropWhatTheLoopsDrop) {
  at::set_num_threads(1);
  const Tensors in = heads(24, at::kFloat);
  AttentionDropout dropout{.mask = {0.25, tensor::RandomKey(21, "probabilities")},
                           .first_head = 1,
                           .num_heads = 7,
                           .length = 50};
  const auto found = [&](int64_t max_scores) {
    AttentionBlock block{.scale = 0.25,
                         .first_query = 19,
                         .first_key = 3,
                         .dropout = dropout,
                         .max_scores = max_scores};
    block.dropout.first_query = block.first_query;
    AttentionResult result{at::empty_like(in[0]), at::empty({2, 4, 24})};
    attend_block(block, {in[0], in[1], in[2]}, result);
    Qkv d{at::zeros_like(in[0]), at::zeros_like(in[1]), at::zeros_like(in[2])};
    attend_block_backward(block, {in[0], in[1], in[2]}, result, in[3], d);
    return Tensors{result.out, result.lse, d.q, d.k, d.v};
  };
  const Tensors by_loops = found(AttentionBlock::kMaxScores);
  const device::HostKernelsScope scope(device::host_kernels());
  for (const int64_t max_scores : {AttentionBlock::kMaxScores, int64_t{1}}) {
    const int64_t before = device::HostLauncher::num_launches;
    const Tensors by_pieces = found(max_scores);
    EXPECT_GT(device::HostLauncher::num_launches, before);
    for (size_t i = 0; i < by_loops.size(); ++i) {
      EXPECT_LE(relative_error(by_pieces[i], by_loops[i]), 1e-6) << "tensor " << i;
    }
  }
}

TEST(CausalAttentionByBlocks, LeavesDropoutAndKeysInSeveralRunsToOthers) {
  const Tensors in = heads(8, at::kDouble);
  const auto is_done = [&](const AttentionOptions& options) {
    return causal_attention_by_blocks(in[0], in[1], in[2], options).has_value();
  };
  EXPECT_TRUE(is_done({}));
  EXPECT_FALSE(is_done({.dropout = {.mask = {.p = 0.5}}}));
  const at::Tensor again = at::remainder(at::arange(8, at::kLong), 2).expand({2, 8});
  EXPECT_FALSE(is_done({.document_ids = again}));
}

}  // namespace
}  // namespace automodel::kernels
