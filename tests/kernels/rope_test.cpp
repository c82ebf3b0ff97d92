#include "kernels/layers/rope.h"

#include "kernels/differentiation.h"
#include "kernels/layers/layer_reference.h"

namespace automodel::kernels {
namespace {

constexpr int64_t kNumHeads = 6;
constexpr int64_t kNumKvHeads = 2;

/// What one case splits: batch 2 of `length` tokens, heads of `head_dim`, of which `rotated` dims
/// turn (0: no rotation).
struct Case {
  int64_t length = 70;
  int64_t head_dim = 24;
  int64_t rotated = 24;
  bool has_q_norm = false;
  bool has_k_norm = false;
  bool adds_one = false;
  at::Tensor position_ids;
};

constexpr int64_t kNumPositions = 128;

RopeTable table(int64_t rotated, at::ScalarType dtype) {
  if (rotated == 0) return {};
  const at::Tensor positions = at::arange(kNumPositions, at::kDouble).unsqueeze(1);
  const at::Tensor powers = at::arange(0, rotated, 2, at::kDouble) / static_cast<double>(rotated);
  const at::Tensor angles = positions * at::pow(1e4, powers.neg());
  // Rounded to float32 once: both precisions see the same numbers.
  return {angles.cos().mul(1.1).to(at::kFloat).to(dtype),
          angles.sin().mul(1.1).to(at::kFloat).to(dtype)};
}

/// The operation by one of the two paths; its inputs: qkv, then the norms' weights that exist.
Operation split(Qkv (*path)(const at::Tensor&, const QkvOptions&), const Case& c) {
  return [path, c](const Tensors& in) {
    QkvOptions options;
    options.num_heads = kNumHeads;
    options.num_kv_heads = kNumKvHeads;
    options.head_dim = c.head_dim;
    size_t next = 1;
    if (c.has_q_norm) options.q_norm = in[next++];
    if (c.has_k_norm) options.k_norm = in[next++];
    options.norm = {1e-6, c.adds_one};
    const bool is_double = in[0].scalar_type() == at::kDouble;
    options.rope = table(c.rotated, is_double ? at::kDouble : at::kFloat);
    options.position_ids = c.position_ids;
    const Qkv heads = path(in[0], options);
    return Tensors{heads.q, heads.k, heads.v};
  };
}

Tensors inputs(const Case& c) {
  Numbers numbers(5);
  Tensors all = {numbers.normal({2, c.length, (kNumHeads + 2 * kNumKvHeads) * c.head_dim})};
  if (c.has_q_norm) all.push_back(numbers.normal({c.head_dim}));
  if (c.has_k_norm) all.push_back(numbers.normal({c.head_dim}));
  return all;
}

void expect_match(const Case& c) {
  expect_fused_as_close(split(split_norm_rotate, c), split(split_norm_rotate_reference, c),
                        inputs(c));
}

TEST(SplitNormRotate, MatchesThePlainPathWithoutNorms) {
  expect_match({});
}

TEST(SplitNormRotate, MatchesThePlainPathWithBothNorms) {
  expect_match({.has_q_norm = true, .has_k_norm = true});
}

TEST(SplitNormRotate, MatchesThePlainPathWithOneNorm) {
  expect_match({.has_q_norm = true});
  expect_match({.has_k_norm = true});
}

TEST(SplitNormRotate, MatchesThePlainPathWithOneAddedToTheWeights) {
  expect_match({.has_q_norm = true, .has_k_norm = true, .adds_one = true});
}

TEST(SplitNormRotate, MatchesThePlainPathWhenSomeDimsStay) {
  for (const bool has_norms : {false, true}) {
    SCOPED_TRACE(has_norms);
    expect_match({.rotated = 10, .has_q_norm = has_norms, .has_k_norm = has_norms});
  }
}

TEST(SplitNormRotate, MatchesThePlainPathWhenNothingTurns) {
  expect_match({.rotated = 0});
  expect_match({.rotated = 0, .has_q_norm = true, .has_k_norm = true});
}

TEST(SplitNormRotate, MatchesThePlainPathWithPositions) {
  const at::Tensor position_ids =
      at::stack({at::arange(70, at::kLong).add(50), at::arange(70, at::kLong).remainder(9)});
  expect_match({.has_q_norm = true, .has_k_norm = true, .position_ids = position_ids});
}

TEST(SplitNormRotate, MatchesThePlainPathOnSmallAndLargeHeads) {
  for (const int64_t head_dim : {2, 64, 128, 1026}) {  // the last one is beyond the fused loop
    SCOPED_TRACE(head_dim);
    expect_match({.length = 3,
                  .head_dim = head_dim,
                  .rotated = head_dim,
                  .has_q_norm = true,
                  .has_k_norm = true});
  }
}

TEST(SplitNormRotate, Float64HeadsAreRotatedInFloat64ByAnyTable) {
  const Case c;
  const at::Tensor qkv = inputs(c)[0].to(at::kDouble);
  QkvOptions options;
  options.num_heads = kNumHeads;
  options.num_kv_heads = kNumKvHeads;
  options.head_dim = c.head_dim;
  options.rope = table(c.rotated, at::kDouble);
  const Qkv wanted = split_norm_rotate(qkv, options);
  options.rope = table(c.rotated, at::kFloat);
  const Qkv found = split_norm_rotate(qkv, options);
  EXPECT_TRUE(at::equal(found.q, wanted.q));
  EXPECT_TRUE(at::equal(found.k, wanted.k));
}

TEST(SplitNormRotate, TakesARowThatIsNotContiguous) {
  const Case c{.length = 5, .has_q_norm = true, .has_k_norm = true};
  const auto reversed = [&](Qkv (*path)(const at::Tensor&, const QkvOptions&)) {
    return [operation = split(path, c)](const Tensors& in) {
      return operation({in[0].transpose(0, 1).contiguous().transpose(0, 1), in[1], in[2]});
    };
  };
  expect_fused_as_close(reversed(split_norm_rotate), reversed(split_norm_rotate_reference),
                        inputs(c));
}

TEST(SplitNormRotate, HasTheSameBitsOnTwoThreads) {
  const Case c{.has_q_norm = true, .has_k_norm = true};
  expect_same_on_two_threads(split(split_norm_rotate, c), inputs(c));
}

TEST(SplitNormRotate, HidesNeitherNaNNorInf) {
  const Case c{.has_q_norm = true, .has_k_norm = true};
  for (const double poison : kPoisons) {
    for (const size_t input : {0, 1, 2}) {
      SCOPED_TRACE(testing::Message() << poison << " in input " << input);
      expect_nothing_hidden(split(split_norm_rotate, c), split(split_norm_rotate_reference, c),
                            poisoned(inputs(c), input, 20, poison));
    }
  }
}

/// Number by number: neighbours of the last dims turn.
TEST(RotateLastPairs, TurnsNeighboursOfTheLastDims) {
  constexpr int64_t kRotated = 6, kDim = 10;
  const RopeTable rope = table(kRotated, at::kDouble);
  const at::Tensor positions = at::tensor({3, 0, 7, 2}, at::kLong).view({1, 4});
  const at::Tensor x = Numbers(6).normal({1, 4, 2, kDim}).to(at::kDouble);
  const at::Tensor found = rotate_last_pairs(x, rope, positions);
  for (int64_t s = 0; s < 4; ++s) {
    const int64_t position = positions[0][s].item<int64_t>();
    for (int64_t d = 0; d < kDim - kRotated; ++d) {
      EXPECT_EQ(found[0][s][1][d].item<double>(), x[0][s][1][d].item<double>());
    }
    for (int64_t pair = 0; pair < kRotated / 2; ++pair) {
      const int64_t d = kDim - kRotated + 2 * pair;
      const double cos = rope.cos[position][pair].item<double>();
      const double sin = rope.sin[position][pair].item<double>();
      const double a = x[0][s][1][d].item<double>(), b = x[0][s][1][d + 1].item<double>();
      EXPECT_NEAR(found[0][s][1][d].item<double>(), a * cos - b * sin, 1e-14);
      EXPECT_NEAR(found[0][s][1][d + 1].item<double>(), b * cos + a * sin, 1e-14);
    }
  }
}

TEST(RotateLastPairs, BackUndoesForward) {
  RopeTable rope = table(6, at::kDouble);
  rope.cos = rope.cos / 1.1;  // the table's factor
  rope.sin = rope.sin / 1.1;
  const at::Tensor x = Numbers(6).normal({2, 4, 2, 6}).to(at::kDouble);
  const at::Tensor there = rotate_last_pairs(x, rope, {});
  const at::Tensor back = rotate_last_pairs(there, rope, {}, RopeDirection::kBack);
  EXPECT_LE(relative_error(back, x), 1e-6);  // cosines and sines of 24 bits
  EXPECT_GE(relative_error(there, x), 0.1);
}

}  // namespace
}  // namespace automodel::kernels
