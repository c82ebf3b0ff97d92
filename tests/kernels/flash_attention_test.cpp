// Blocks by PyTorch's FlashAttention, which operators on the CPU stand for, against the plain path.
#include "kernels/attention/flash_attention.h"

#include <cmath>
#include <optional>
#include <utility>
#include <vector>

#include "kernels/attention/visible_keys.h"
#include "kernels/differentiation.h"
#include "kernels/host_flash.h"

namespace automodel::kernels {
namespace {

using device::HostFlash;
using device::HostFlashScope;

/// q [2, S, N, H], k [2, S, K, H], v [2, S, K, V] and the sinks [N].
Tensors inputs(int64_t length, int64_t head_dim = 16, int64_t value_dim = 16) {
  Numbers numbers(6);
  return {numbers.normal({2, length, 4, head_dim}) * 2, numbers.normal({2, length, 2, head_dim}),
          numbers.normal({2, length, 2, value_dim}), numbers.normal({4})};
}

/// Attention, of queries that are no padding.
template <typename Path>
Operation attend(Path path, const AttentionOptions& options, bool has_sinks) {
  return [=](const Tensors& in) {
    AttentionOptions own = options;
    if (has_sinks) own.sinks = in[3];
    const at::Tensor out = path(in[0], in[1], in[2], own).out;
    if (!options.padding_mask.defined()) return Tensors{out};
    return Tensors{out.masked_fill(options.padding_mask.unsqueeze(-1).unsqueeze(-1), 0.0)};
  };
}

/// Two calls, forward and backward. The output is rounded once, as the plain path's is; gradients
/// are made of the rounded output, then rounded too.
void expect_match(const AttentionOptions& options, const Tensors& in, bool has_sinks = false,
                  bool is_by_cudnn = false) {
  at::set_num_threads(1);
  Tensors held;
  for (const at::Tensor& x : in) held.push_back(x.to(at::kBFloat16));
  Tensors found;
  {
    const HostFlashScope scope(is_by_cudnn);
    const int64_t& num_calls = is_by_cudnn ? HostFlash::num_cudnn_calls : HostFlash::num_calls;
    const int64_t before = num_calls;
    found = differentiate(attend(causal_attention, options, has_sinks), held, at::kBFloat16);
    EXPECT_EQ(num_calls, before + 2);
  }
  const Operation plain = attend(causal_attention_reference, options, has_sinks);
  const PlainPathScope path;
  const Tensors peers = differentiate(plain, held, at::kBFloat16);
  const Tensors exact = differentiate(plain, held, at::kDouble);
  constexpr double kRounding = 0x1p-8, kOfNothing = 1e-5;
  for (size_t i = 0; i < exact.size(); ++i) {
    const bool is_nothing = exact[i].norm().item<double>() == 0;
    const double allowed = is_nothing ? kOfNothing
                           : i == 0   ? 2 * relative_error(peers[i], exact[i])
                                      : 2 * kRounding;
    EXPECT_LE(relative_error(found[i], exact[i]), allowed) << "tensor " << i;
    EXPECT_EQ(found[i].scalar_type(), at::kBFloat16);
  }
}

at::Tensor padded(int64_t length, int64_t first, int64_t second, bool is_at_end) {
  const at::Tensor places = at::arange(length, at::kLong);
  const auto row = [&](int64_t count) {
    return is_at_end ? places.ge(length - count) : places.lt(count);
  };
  return at::stack({row(first), row(second)});
}

/// Documents of 7, 1, 20 and the remaining tokens in one row, a single one in the other.
at::Tensor documents(int64_t length) {
  const at::Tensor ids = at::full({2, length}, 3, at::kLong);
  ids[0].narrow(0, 0, 28).fill_(2);
  ids[0].narrow(0, 0, 8).fill_(1);
  ids[0].narrow(0, 0, 7).fill_(0);
  return ids;
}

TEST(FlashAttention, MatchesThePlainPath) {
  for (const int64_t length : {1, 2, 65}) {
    SCOPED_TRACE(length);
    expect_match({}, inputs(length));
    expect_match({.is_causal = false}, inputs(length));
  }
  expect_match({.scale = 0.1}, inputs(40, 24, 24));
}

TEST(FlashAttention, MatchesThePlainPathByCudnn) {
  expect_match({}, inputs(128), false, true);
  expect_match({.scale = 0.1}, inputs(256, 24, 24), true, true);
}

/// Rows that are not full, and what cuDNN is not asked for, go by FlashAttention.
TEST(FlashAttention, IsTakenWhereCudnnIsNotFaster) {
  const HostFlashScope scope(/*has_cudnn=*/true);
  const auto expect_flash = [](const AttentionOptions& options, const Tensors& in) {
    const int64_t flash = HostFlash::num_calls, cudnn = HostFlash::num_cudnn_calls;
    differentiate(attend(causal_attention, options, false), in, at::kBFloat16);
    EXPECT_EQ(HostFlash::num_calls, flash + 2);
    EXPECT_EQ(HostFlash::num_cudnn_calls, cudnn);
  };
  expect_flash({}, inputs(127));
  expect_flash({}, inputs(128, 136, 136));
  expect_flash({}, inputs(128, 24, 16));
  expect_flash({.window = 9}, inputs(128));
  expect_flash({.is_causal = false}, inputs(128));
  expect_flash({.document_ids = documents(128)}, inputs(128));
}

TEST(FlashAttention, MatchesThePlainPathWithAWindow) {
  for (const int64_t window : {1, 9, 64, 100}) {
    SCOPED_TRACE(window);
    expect_match({.window = window}, inputs(65));
  }
}

TEST(FlashAttention, MatchesThePlainPathWithNarrowerValuesAndSinks) {
  expect_match({}, inputs(40, 24, 16));
  expect_match({}, inputs(40), true);
  expect_match({.window = 9, .document_ids = documents(40)}, inputs(40, 24, 16), true);
}

TEST(FlashAttention, MatchesThePlainPathWithDocumentsAndPadding) {
  for (const bool is_causal : {true, false}) {
    SCOPED_TRACE(is_causal);
    expect_match({.is_causal = is_causal, .document_ids = documents(40)}, inputs(40));
    for (const bool is_at_end : {true, false}) {
      expect_match({.is_causal = is_causal, .padding_mask = padded(40, 9, 0, is_at_end)},
                   inputs(40));
    }
    expect_match({.is_causal = is_causal,
                  .padding_mask = padded(40, 9, 3, true),
                  .document_ids = documents(40)},
                 inputs(40));
  }
  expect_match({.window = 5, .padding_mask = padded(40, 9, 0, true)}, inputs(40));
}

/// What the kernels do not compute goes by other ways, to the same result.
TEST(FlashAttention, LeavesTheRestToOthers) {
  const HostFlashScope scope;
  const int64_t before = HostFlash::num_calls;
  const auto expect_other = [&](const AttentionOptions& options, const Tensors& in,
                                at::ScalarType dtype = at::kBFloat16) {
    expect_fused_as_close(attend(causal_attention, options, false),
                          attend(causal_attention_reference, options, false), in, dtype);
    EXPECT_EQ(HostFlash::num_calls, before);
  };
  expect_other({}, inputs(20), at::kFloat);
  expect_other({}, inputs(20, 12, 12));
  expect_other({}, inputs(20, 264, 264));
  expect_other({}, inputs(20, 16, 24));
  expect_other({.softcap = 20}, inputs(20));
  expect_other({.dropout = {.mask = {0.25, tensor::RandomKey(21, "probabilities")}}}, inputs(20));
  const at::Tensor again = at::remainder(at::arange(20, at::kLong), 2).expand({2, 20});
  expect_other({.document_ids = again}, inputs(20));
}

/// Runs of keys that are no documents: each query's own.
TEST(FlashAttention, LeavesQueriesWhoseKeysAreNotTheirDocumentToOthers) {
  const HostFlashScope scope;
  Tensors in = inputs(20);
  for (at::Tensor& x : in) x = x.to(at::kBFloat16);
  const at::Tensor places = at::arange(20, at::kLong);
  const at::Tensor own = at::stack({places, places + 1}, 1).expand({2, 20, 2}).contiguous();
  const at::Tensor before =
      at::stack({at::zeros_like(places), places.clamp(1)}, 1).expand({2, 20, 2}).contiguous();
  const auto is_taken = [&](const at::Tensor& runs) {
    return FlashAttention::of({.visible_keys = runs}, {in[0], in[1], in[2]}).has_value();
  };
  EXPECT_TRUE(is_taken(own));
  EXPECT_FALSE(is_taken(before));
}

/// The places of a batch's documents are looked for once, not by every layer.
TEST(FlashAttention, ReadsABatchsMasksOnce) {
  const at::Tensor ids = documents(40);
  const auto visible = [&] { return *visible_keys(at::Tensor(), ids); };
  const at::Tensor first = visible();
  EXPECT_TRUE(first.is_same(visible()));
  ids[1].narrow(0, 0, 5).fill_(0);
  EXPECT_FALSE(first.is_same(visible()));
  const at::Tensor begins = visible().select(0, 1).select(1, 0);
  EXPECT_EQ(begins[4].item<int64_t>(), 0);
  EXPECT_EQ(begins[5].item<int64_t>(), 5);
  expect_match({.document_ids = ids}, inputs(40));
}

/// Rectangles of a whole, as ranks that split the sequence meet them: each is rounded to bfloat16
/// once before all are added up in float32.
TEST(FlashAttention, LimitsThatTheKernelsWouldTakeForNoneAreLeftToOthers) {
  const HostFlashScope scope;
  const auto is_taken = [](int64_t num_queries, int64_t num_keys, int64_t first_query) {
    const auto of = [](int64_t length, int64_t heads) {
      return at::ones({1, length, heads, 16}, at::kBFloat16);
    };
    return FlashAttention::of({.first_query = first_query},
                              {of(num_queries, 4), of(num_keys, 2), of(num_keys, 2)})
        .has_value();
  };
  EXPECT_FALSE(is_taken(4, 2, 0));
  EXPECT_TRUE(is_taken(4, 2, 1));  // every query sees both keys
  EXPECT_TRUE(is_taken(3, 2, 0));
  EXPECT_TRUE(is_taken(2, 8, 3));
}

class FlashBlocks : public testing::TestWithParam<std::vector<int64_t>> {};

TEST_P(FlashBlocks, MakeTheWhole) {
  at::set_num_threads(1);
  constexpr int64_t kLength = 24;
  const std::vector<int64_t>& key_begins = GetParam();  // the later keys first
  for (const int64_t window : {0, 7, 15}) {
    SCOPED_TRACE(window);
    Tensors in = inputs(kLength);
    for (at::Tensor& x : in) x = x.to(at::kBFloat16);
    const at::Tensor d_out = Numbers(8).normal({2, kLength, 4, 16}).to(at::kBFloat16);
    Tensors leaves;
    for (size_t i = 0; i < 3; ++i) leaves.push_back(in[i].to(at::kDouble).requires_grad_());
    const AttentionResult exact =
        causal_attention_reference(leaves[0], leaves[1], leaves[2], {.window = window});
    exact.out.backward(d_out.to(at::kDouble));

    const HostFlashScope scope;
    const int64_t before = HostFlash::num_calls;
    const at::Tensor out = at::empty({2, kLength, 4, 16}), lse = at::empty({2, 4, kLength});
    Qkv d{at::zeros({2, kLength, 4, 16}), at::zeros({2, kLength, 2, 16}),
          at::zeros({2, kLength, 2, 16})};
    const auto each = [&](const auto& body) {
      for (const int64_t query : {0, 8, 16}) {
        bool adds = false;
        int64_t end = kLength;
        for (const int64_t key : key_begins) {
          const int64_t num_keys = std::exchange(end, key) - key;
          AttentionBlock block{.scale = 0.25,
                               .window = window,
                               .first_query = query,
                               .first_key = key,
                               .adds = adds};
          if (!has_visible_pair(block, 8, num_keys)) continue;
          adds = true;
          body(block,
               Qkv{in[0].narrow(1, query, 8), in[1].narrow(1, key, num_keys),
                   in[2].narrow(1, key, num_keys)},
               AttentionResult{out.narrow(1, query, 8), lse.narrow(2, query, 8)});
        }
      }
    };
    each([](const AttentionBlock& block, const Qkv& qkv, AttentionResult result) {
      attend_block(block, qkv, result);
    });
    each([&](const AttentionBlock& block, const Qkv& qkv, const AttentionResult& result) {
      const int64_t num_keys = qkv.k.size(1);
      Qkv part{d.q.narrow(1, block.first_query, 8), d.k.narrow(1, block.first_key, num_keys),
               d.v.narrow(1, block.first_key, num_keys)};
      attend_block_backward(block, qkv, result,
                            d_out.narrow(1, block.first_query, 8).to(at::kFloat), part);
    });
    EXPECT_GT(HostFlash::num_calls, before);
    constexpr double kRounding = 0x1p-8;
    EXPECT_LE(relative_error(out, exact.out), kRounding);
    EXPECT_LE(relative_error(lse, exact.lse), 1e-6);
    EXPECT_LE(relative_error(d.q, leaves[0].grad()), kRounding);
    EXPECT_LE(relative_error(d.k, leaves[1].grad()), kRounding);
    EXPECT_LE(relative_error(d.v, leaves[2].grad()), kRounding);
  }
}

INSTANTIATE_TEST_SUITE_P(Keys, FlashBlocks,
                         testing::Values(std::vector<int64_t>{16, 8, 0},
                                         std::vector<int64_t>{10, 0},
                                         std::vector<int64_t>{20, 16, 5, 0}));

}  // namespace
}  // namespace automodel::kernels
