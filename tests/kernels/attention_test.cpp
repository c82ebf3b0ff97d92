#include "kernels/attention/attention.h"

#include <gmock/gmock.h>

#include <memory>

#include "core/error.h"
#include "core/text.h"
#include "kernels/attention/attention_block.h"
#include "kernels/differentiation.h"
#include "support/allocation_counter.h"
#include "support/errors.h"

namespace automodel::kernels {
namespace {

// B batch, S length, N query heads, K kv heads, H head dim.

using Path = AttentionResult (*)(const at::Tensor&, const at::Tensor&, const at::Tensor&,
                                 const AttentionOptions&);

Operation attend(Path path, const AttentionOptions& options) {
  return [path, options](const Tensors& in) {
    return Tensors{path(in[0], in[1], in[2], options).out};
  };
}

/// q [2, S, N, H], k and v [2, S, K, H].
Tensors inputs(int64_t length, int64_t num_heads = 4, int64_t num_kv_heads = 2,
               int64_t head_dim = 16) {
  Numbers numbers(6);
  return {numbers.normal({2, length, num_heads, head_dim}) * 2,
          numbers.normal({2, length, num_kv_heads, head_dim}),
          numbers.normal({2, length, num_kv_heads, head_dim})};
}

void expect_match(const AttentionOptions& options, const Tensors& qkv) {
  expect_fused_as_close(attend(causal_attention, options),
                        attend(causal_attention_reference, options), qkv);
}

/// [2, S] with `num_padding` true places in each row.
at::Tensor padding(int64_t length, std::pair<int64_t, int64_t> num_padding, bool is_at_end) {
  const at::Tensor places = at::arange(length, at::kLong);
  const auto row = [&](int64_t count) {
    return is_at_end ? places.ge(length - count) : places.lt(count);
  };
  return at::stack({row(num_padding.first), row(num_padding.second)});
}

/// A quarter dropped.
AttentionOptions with_dropout(AttentionOptions options) {
  options.dropout.mask = {0.25, tensor::RandomKey(21, "probabilities")};
  return options;
}

TEST(CausalAttention, MatchesThePlainPathOfEveryLength) {
  for (const int64_t length : {2, 63, 64, 65, 130}) {
    SCOPED_TRACE(length);
    expect_match({}, inputs(length));
  }
}

TEST(CausalAttention, MatchesThePlainPathOfEveryGrouping) {
  for (const int64_t num_kv_heads : {1, 2, 3, 6}) {
    SCOPED_TRACE(num_kv_heads);
    expect_match({}, inputs(70, 6, num_kv_heads, 9));
  }
}

TEST(CausalAttention, MatchesThePlainPathWithAScale) {
  expect_match({.scale = 0.6}, inputs(70));
}

TEST(CausalAttention, MatchesThePlainPathWithAWindow) {
  for (const int64_t window : {2, 5, 64, 100, 500}) {
    SCOPED_TRACE(window);
    expect_match({.window = window}, inputs(150));
  }
}

// A softmax over one key is 1 whatever its score: the gradients of q and k are 0, of which the
// fused path leaves the rounding of differences of numbers up to 20, times k or q.
TEST(CausalAttention, GivesTheValuesToQueriesThatSeeOneKey) {
  for (const auto& [options, length] : {std::pair<AttentionOptions, int64_t>{{}, 1},
                                        std::pair<AttentionOptions, int64_t>{{.window = 1}, 150}}) {
    const Tensors qkv = inputs(length);
    const Tensors all = differentiate(attend(causal_attention, options), qkv, at::kFloat);
    const Tensors exact =
        differentiate(attend(causal_attention_reference, options), qkv, at::kDouble);
    EXPECT_TRUE(at::equal(all[0], qkv[2].repeat_interleave(2, 2)));
    EXPECT_LE(all[1].abs().max().item<double>(), 2e-5);
    EXPECT_LE(all[2].abs().max().item<double>(), 2e-5);
    EXPECT_LE(relative_error(all[3], exact[3]), 1e-6);
  }
}

TEST(AttentionInBothDirections, MatchesThePlainPath) {
  for (const int64_t length : {2, 63, 64, 65, 130}) {
    SCOPED_TRACE(length);
    AttentionOptions options{.is_causal = false};
    expect_match(options, inputs(length));
    options.softcap = 20;
    options.scale = 0.6;
    expect_match(options, inputs(length, 6, 3, 9));
  }
}

TEST(AttentionInBothDirections, MatchesThePlainPathWithPaddingDocumentsAndDropout) {
  expect_match({.is_causal = false, .padding_mask = padding(150, {30, 0}, true)}, inputs(150));
  const at::Tensor ids = at::arange(150, at::kLong).div(60, "floor").expand({2, 150});
  expect_match({.is_causal = false, .document_ids = ids}, inputs(150));
  const AttentionOptions dropping = with_dropout({.is_causal = false});
  expect_match(dropping, inputs(150));
  expect_same_on_two_threads(attend(causal_attention, dropping), inputs(150));
}

TEST(AttentionInBothDirections, MatchesThePlainPathInWindows) {
  for (const int64_t window : {2, 5, 64, 70, 149, 150}) {
    SCOPED_TRACE(window);
    expect_match({.is_causal = false, .window = window}, inputs(150));
    const at::Tensor ids = at::arange(150, at::kLong).div(60, "floor").expand({2, 150});
    expect_match({.is_causal = false, .window = window, .document_ids = ids}, inputs(150));
  }
}

/// Each value is its position, so a query gives the mean position of the tokens that it sees.
TEST(AttentionInBothDirections, OfAWindowIsOfAsManyTokensOnEitherSide) {
  constexpr int64_t kLength = 100;
  constexpr int64_t kWindow = 7;
  const Tensors qkv = inputs(kLength);
  const at::Tensor keys = at::ones_like(qkv[1]);
  const at::Tensor places = at::arange(kLength, at::kFloat);
  const at::Tensor values = places.view({1, kLength, 1, 1}).expand_as(qkv[2]).contiguous();
  const at::Tensor mask = padding(kLength, {20, 0}, true);
  const at::Tensor first = (places - kWindow + 1).clamp_min(0).expand({2, kLength});
  const at::Tensor last_token = at::tensor({79.0F, 99.0F}).unsqueeze(1);
  const at::Tensor last = at::minimum(places + kWindow - 1, last_token);
  // Padding that is far from every token sees nothing.
  const at::Tensor mean = at::where(first.le(last), (first + last) / 2, at::zeros({}));
  for (const Path path : {causal_attention, causal_attention_reference}) {
    const at::Tensor out =
        path(qkv[0], keys, values, {.is_causal = false, .window = kWindow, .padding_mask = mask})
            .out;
    EXPECT_LE((out - mean.unsqueeze(-1).unsqueeze(-1)).abs().max().item<double>(), 1e-4);
  }
}

TEST(AttentionInBothDirections, IsAverageOfAllValuesWhereKeysAreEqual) {
  const Tensors qkv = inputs(70);
  const at::Tensor keys = at::ones_like(qkv[1]);
  for (const Path path : {causal_attention, causal_attention_reference}) {
    const at::Tensor out = path(qkv[0], keys, qkv[2], {.is_causal = false}).out;
    const at::Tensor mean = qkv[2].mean(1, true).repeat_interleave(2, 2);
    EXPECT_LE((out - mean).abs().max().item<double>(), 1e-5);
  }
}

TEST(CausalAttention, MatchesThePlainPathWithCappedScores) {
  for (const double softcap : {1.0, 50.0}) {
    SCOPED_TRACE(softcap);
    expect_match({.softcap = softcap}, inputs(70));
    expect_match({.window = 9, .softcap = softcap}, inputs(70));
  }
}

TEST(CausalAttention, MatchesThePlainPathWithSinks) {
  const auto with_sinks = [](Path path) {
    return [path](const Tensors& in) {
      AttentionOptions options;
      options.window = 30;
      options.sinks = in[3];
      return Tensors{path(in[0], in[1], in[2], options).out};
    };
  };
  Tensors in = inputs(70);
  in.push_back(Numbers(8).normal({4}) * 3);
  expect_fused_as_close(with_sinks(causal_attention), with_sinks(causal_attention_reference), in);
}

Operation attend_with_bias(Path path, const AttentionOptions& options) {
  return [path, options](const Tensors& in) {
    AttentionOptions own = options;
    own.distance_bias = in[3];
    return Tensors{path(in[0], in[1], in[2], own).out};
  };
}

TEST(AttentionWithBiasOfDistances, MatchesThePlainPath) {
  for (const int64_t length : {20, 63, 65, 150}) {
    for (const bool is_causal : {true, false}) {
      SCOPED_TRACE(cat(length, is_causal ? " causal" : " in both directions"));
      Tensors in = inputs(length);
      in.push_back(Numbers(8).normal({4, 2 * length - 1}) * 2);
      AttentionOptions options{.scale = 0.7, .is_causal = is_causal};
      const auto expect_match = [&] {
        expect_fused_as_close(attend_with_bias(causal_attention, options),
                              attend_with_bias(causal_attention_reference, options), in);
      };
      expect_match();
      options.padding_mask = padding(length, {length / 3, 0}, true);
      expect_match();
      options = with_dropout(options);
      expect_match();
      expect_same_on_two_threads(attend_with_bias(causal_attention, options), in);
    }
  }
}

/// ATen's operations compute queries in pieces, whose distances begin elsewhere.
TEST(AttentionWithBiasOfDistances, IsTheSameInPieces) {
  const int64_t length = 50;
  Tensors in = inputs(length);
  in.push_back(Numbers(8).normal({4, 2 * length - 1}));
  AttentionBlock block;
  const Qkv qkv{in[0].to(at::kDouble), in[1].to(at::kDouble), in[2].to(at::kDouble)};
  block.distance_bias = in[3].to(at::kDouble);
  const at::Tensor d_out = Numbers(9).normal({2, length, 4, 16}).to(at::kDouble);
  const auto differentiate_in = [&](int64_t max_scores) {
    block.max_scores = max_scores;
    AttentionResult result{at::empty_like(qkv.q), at::empty({2, 4, length}, at::kDouble)};
    attend_block(block, qkv, result);
    Qkv d{at::zeros_like(qkv.q), at::zeros_like(qkv.k), at::zeros_like(qkv.v)};
    const at::Tensor d_bias = at::zeros({2, 4, 2 * length - 1}, at::kDouble);
    attend_block_backward(block, qkv, result, d_out, d, d_bias);
    return Tensors{result.out, d.q, d.k, d.v, d_bias};
  };
  const Tensors whole = differentiate_in(AttentionBlock::kMaxScores);
  const Tensors in_pieces = differentiate_in(1);
  for (size_t i = 0; i < whole.size(); ++i) EXPECT_TRUE(at::allclose(whole[i], in_pieces[i]));
  EXPECT_GT(whole[4].abs().max().item<double>(), 0.1);
}

TEST(CrossAttention, MatchesThePlainPath) {
  for (const auto& [num_queries, num_keys] :
       {std::pair{5, 70}, std::pair{70, 5}, std::pair{65, 64}, std::pair{1, 3}}) {
    SCOPED_TRACE(cat(num_queries, " queries of ", num_keys, " keys"));
    Tensors in = inputs(num_queries);
    const Tensors of_source = inputs(num_keys);
    in[1] = of_source[1];
    in[2] = of_source[2];
    // Of one query's scores so far apart, the gradients would be what cancellation leaves of them.
    AttentionOptions options{.scale = num_queries == 1 ? 0.2 : 0.7};
    const auto expect_match = [&] {
      expect_fused_as_close(attend(cross_attention, options),
                            attend(cross_attention_reference, options), in);
    };
    expect_match();
    options.padding_mask = padding(num_keys, {num_keys / 2, 0}, true);
    expect_match();
    options = with_dropout(options);
    expect_match();
    expect_same_on_two_threads(attend(cross_attention, options), in);
  }
}

TEST(CrossAttention, SeesNoPaddingInTheMiddle) {
  const Tensors of_source = inputs(12);
  const Tensors in = inputs(5);
  at::Tensor mask = at::zeros({2, 12}, at::kBool);
  mask.narrow(1, 3, 2).fill_(true);
  at::Tensor v = of_source[2].clone();
  const AttentionOptions options{.padding_mask = mask};
  const at::Tensor out = cross_attention(in[0], of_source[1], v, options).out;
  v.narrow(1, 3, 2).fill_(1e6);
  EXPECT_TRUE(at::equal(cross_attention(in[0], of_source[1], v, options).out, out));
}

TEST(CausalAttention, MatchesThePlainPathWithDropout) {
  const auto dropping = [](Path path, const AttentionOptions& options) {
    return [path, options](const Tensors& in) {
      return Tensors{path(in[0], in[1], in[2], options).out};
    };
  };
  for (const AttentionOptions& options :
       {AttentionOptions{}, AttentionOptions{.window = 30, .softcap = 20},
        AttentionOptions{.padding_mask = padding(150, {30, 0}, true)}}) {
    const AttentionOptions own = with_dropout(options);
    expect_fused_as_close(dropping(causal_attention, own),
                          dropping(causal_attention_reference, own), inputs(150));
    expect_same_on_two_threads(dropping(causal_attention, own), inputs(150));
  }
}

/// Heads 2 and 3 of four drop what they drop when all four are computed.
TEST(CausalAttention, DropsByTheHeadsPlacesInTheLayer) {
  const Tensors qkv = inputs(70, 4, 4);
  AttentionOptions options = with_dropout({});
  const at::Tensor all = causal_attention(qkv[0], qkv[1], qkv[2], options).out;
  options.dropout.first_head = 2;
  options.dropout.num_heads = 4;
  const auto last = [](const at::Tensor& x) { return x.narrow(2, 2, 2); };
  for (const Path path : {causal_attention, causal_attention_reference}) {
    const at::Tensor out = path(last(qkv[0]), last(qkv[1]), last(qkv[2]), options).out;
    EXPECT_LE((out - last(all)).abs().max().item<double>(), 1e-5);
  }
}

/// A graph keeps nothing of the size of the scores.
TEST(CausalAttention, KeepsNoDroppedProbabilities) {
  const Tensors in = inputs(200);
  const AttentionOptions options = with_dropout({});
  Tensors leaves;
  for (const at::Tensor& x : in) leaves.push_back(x.clone().requires_grad_());
  const auto counter = std::make_shared<test::AllocationCounter>();
  const c10::DebugInfoGuard guard(c10::DebugInfoKind::PROFILER_STATE, counter);
  const at::Tensor out = causal_attention(leaves[0], leaves[1], leaves[2], options).out;
  EXPECT_LE(counter->live(), 2 * 200 * 4 * (16 + 1) * 4 + 2048);
}

TEST(CausalAttention, MatchesThePlainPathWithNarrowerValues) {
  Tensors in = inputs(70);
  in[2] = in[2].narrow(-1, 0, 6).contiguous();
  expect_match({}, in);
}

TEST(CausalAttention, MatchesThePlainPathWithPaddingAtTheEnd) {
  for (const int64_t num_padding : {1, 60, 69, 70}) {
    SCOPED_TRACE(num_padding);
    expect_match({.padding_mask = padding(70, {num_padding, 0}, true)}, inputs(70));
  }
}

TEST(CausalAttention, MatchesThePlainPathWhereAWindowSeesOnlyPadding) {
  expect_match({.window = 4, .padding_mask = padding(70, {40, 3}, true)}, inputs(70));
}

TEST(CausalAttention, MatchesThePlainPathWithEverything) {
  expect_match(
      {.scale = 0.3, .window = 66, .softcap = 20, .padding_mask = padding(140, {30, 80}, true)},
      inputs(140, 6, 2, 24));
}

TEST(CausalAttention, StaysExactWithLargeScores) {
  expect_match({.scale = 100}, inputs(70));
}

TEST(CausalAttention, TakesHeadsThatAreNotContiguous) {
  const auto transposing = [](Path path) {
    return [path](const Tensors& in) {
      const auto turn = [](const at::Tensor& x) { return x.transpose(1, 2); };
      return Tensors{path(turn(in[0]), turn(in[1]), turn(in[2]), {}).out};
    };
  };
  Numbers numbers(7);
  expect_fused_as_close(transposing(causal_attention), transposing(causal_attention_reference),
                        {numbers.normal({2, 4, 20, 8}), numbers.normal({2, 2, 20, 8}),
                         numbers.normal({2, 2, 20, 8})});
}

TEST(CausalAttention, MatchesThePlainPathWithPaddingAtTheFront) {
  const AttentionOptions options{.padding_mask = padding(70, {20, 0}, false)};
  expect_match(options, inputs(70));
  const Tensors qkv = inputs(70);
  const at::Tensor out = causal_attention(qkv[0], qkv[1], qkv[2], options).out;
  EXPECT_TRUE(out[0].narrow(0, 0, 20).eq(0).all().item<bool>());
}

/// Documents of 25 tokens.
at::Tensor documents(int64_t length) {
  return at::arange(length, at::kLong).floor_divide(25).expand({2, length});
}

TEST(CausalAttention, MatchesThePlainPathWithDocuments) {
  expect_match({.document_ids = documents(70)}, inputs(70));
  expect_match({.window = 10, .softcap = 20, .document_ids = documents(150)}, inputs(150));
}

TEST(CausalAttention, MatchesThePlainPathWithDocumentsThatArePadded) {
  at::Tensor mask = padding(70, {5, 30}, true).clone();
  mask.narrow(1, 21, 4).fill_(true);
  expect_match({.padding_mask = mask, .document_ids = documents(70)}, inputs(70));
}

TEST(CausalAttention, TakesKeysInSeveralRunsByThePlainPath) {
  const at::Tensor ids = at::remainder(documents(70), 2);
  at::Tensor mask = padding(70, {5, 0}, true).clone();
  mask.narrow(1, 30, 4).fill_(true);
  const Tensors qkv = inputs(70);
  for (const AttentionOptions& options :
       {AttentionOptions{.document_ids = ids}, AttentionOptions{.padding_mask = mask}}) {
    EXPECT_TRUE(at::equal(causal_attention(qkv[0], qkv[1], qkv[2], options).out,
                          causal_attention_reference(qkv[0], qkv[1], qkv[2], options).out));
  }
}

/// [2, S]: a number for each chunk of each document, counted from its first token that is not
/// padding, of which the first row begins with `num_padding`.
at::Tensor chunk_ids(int64_t length, int64_t document, int64_t chunk, int64_t num_padding) {
  const at::Tensor places = at::arange(length, at::kLong);
  const at::Tensor first = (places - num_padding).clamp_min(0);
  const auto row = [&](const at::Tensor& counted) {
    return counted.remainder(document).floor_divide(chunk) + places.floor_divide(document) * 1000;
  };
  return at::stack({num_padding > 0 ? first.floor_divide(chunk) : row(places), row(places)});
}

TEST(CausalAttention, OfChunksIsThatOfDocumentsAsLong) {
  const auto expect_same = [](const AttentionOptions& by_chunk, const AttentionOptions& by_ids) {
    const Tensors qkv = inputs(150);
    for (const Path path : {causal_attention, causal_attention_reference}) {
      EXPECT_TRUE(at::equal(path(qkv[0], qkv[1], qkv[2], by_chunk).out,
                            path(qkv[0], qkv[1], qkv[2], by_ids).out));
    }
    expect_match(by_chunk, qkv);
  };
  for (const int64_t chunk : {2, 7, 64, 149}) {
    SCOPED_TRACE(chunk);
    expect_same({.chunk = chunk}, {.document_ids = chunk_ids(150, 150, chunk, 0)});
    const at::Tensor ids = at::arange(150, at::kLong).floor_divide(40).expand({2, 150});
    expect_same({.chunk = chunk, .document_ids = ids},
                {.document_ids = chunk_ids(150, 40, chunk, 0)});
    const at::Tensor mask = padding(150, {13, 0}, false);
    expect_same({.chunk = chunk, .padding_mask = mask},
                {.padding_mask = mask, .document_ids = chunk_ids(150, 150, chunk, 13)});
  }
}

TEST(CausalAttention, OfAChunkAsLongAsTheSequenceIsThatWithout) {
  const Tensors qkv = inputs(70);
  EXPECT_TRUE(at::equal(causal_attention(qkv[0], qkv[1], qkv[2], {.chunk = 70}).out,
                        causal_attention(qkv[0], qkv[1], qkv[2], {}).out));
}

TEST(CausalAttention, OfChunksTakesDocumentsInOneRunAlone) {
  const Tensors qkv = inputs(70);
  const AttentionOptions options{.chunk = 9, .document_ids = at::remainder(documents(70), 2)};
  EXPECT_THAT(
      test::error_of<UnsupportedError>([&] { causal_attention(qkv[0], qkv[1], qkv[2], options); }),
      testing::HasSubstr("attention by chunks takes documents that are one run"));
}

TEST(CausalAttention, GivesTheLogOfTheSumOfExponentials) {
  for (const double softcap : {0.0, 5.0}) {
    const AttentionOptions options{.window = 20, .softcap = softcap};
    const Tensors qkv = inputs(70);
    const at::Tensor lse = causal_attention(qkv[0], qkv[1], qkv[2], options).lse;
    const at::Tensor expected =
        causal_attention_reference(qkv[0].to(at::kDouble), qkv[1].to(at::kDouble),
                                   qkv[2].to(at::kDouble), options)
            .lse;
    EXPECT_EQ(lse.sizes(), expected.sizes());
    EXPECT_LE(relative_error(lse, expected), 1e-6);
  }
}

TEST(CausalAttention, GivesZerosToQueriesThatSeeOnlyPadding) {
  const AttentionOptions options{.padding_mask = padding(10, {10, 0}, true)};
  const Tensors all = differentiate(attend(causal_attention, options), inputs(10), at::kFloat);
  for (const at::Tensor& tensor : all) {
    EXPECT_TRUE(tensor[0].eq(0).all().item<bool>());
    EXPECT_TRUE(is_finite(tensor));
  }
}

TEST(CausalAttention, HasTheSameBitsOnTwoThreads) {
  expect_same_on_two_threads(attend(causal_attention, {}), inputs(130));
  expect_same_on_two_threads(attend(causal_attention, {.window = 40, .softcap = 30}), inputs(130));
}

TEST(CausalAttention, HasTheSameBitsOnTwoThreadsWithOneHead) {
  Numbers numbers(8);
  const auto heads = [&] { return numbers.normal({1, 300, 1, 64}); };
  expect_same_on_two_threads(attend(causal_attention, {}), {heads(), heads(), heads()});
}

TEST(CausalAttention, HidesNeitherNaNNorInf) {
  // Places whose poison reaches every token by rights: elsewhere the plain path also multiplies it
  // by the mask's zeros. Queries above zero: an infinite key has scores of one sign, and one of
  // minus infinity is a key of weight 0 to all but the query that sees no other.
  Tensors clean = inputs(40);
  clean[0] = clean[0].abs();
  const auto place_in = [](size_t input, double poison) {
    if (input == 0) return (39 * 4 + 3) * 16 + 12;
    return (input == 1 && poison < 0 ? 3 : 1) * 16 + 12;
  };
  for (const double softcap : {0.0, 30.0}) {
    for (const double poison : kPoisons) {
      for (const size_t input : {0, 1, 2}) {
        SCOPED_TRACE(testing::Message() << poison << " in input " << input << " cap " << softcap);
        expect_nothing_hidden(attend(causal_attention, {.softcap = softcap}),
                              attend(causal_attention_reference, {.softcap = softcap}),
                              poisoned(clean, input, place_in(input, poison), poison));
      }
    }
  }
}

TEST(CausalAttention, GivesNaNToEveryQueryThatSeesNaN) {
  constexpr int64_t kToken = 80, kLength = 150, kWidth = 2 * 16;
  for (const size_t input : {1, 2}) {
    const Tensors qkv = poisoned(inputs(kLength), input, kToken * kWidth + 3, kPoisons[0]);
    const at::Tensor out = causal_attention(qkv[0], qkv[1], qkv[2], {}).out[0].narrow(1, 0, 2);
    const at::Tensor later = out.narrow(0, kToken, kLength - kToken);
    EXPECT_TRUE(is_nowhere_finite(input == 1 ? later : later.select(2, 3))) << input;
    EXPECT_TRUE(is_finite(out.narrow(0, 0, 64))) << input;
  }
}

}  // namespace
}  // namespace automodel::kernels
