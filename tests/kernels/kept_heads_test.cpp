// Heads that attention's backward splits again from the projection, instead of keeping them.
#include "kernels/attention/attention.h"
#include "kernels/differentiation.h"
#include "kernels/host_kernels.h"
#include "kernels/layers/rope.h"

namespace automodel::kernels {
namespace {

constexpr int64_t kNumHeads = 4, kNumKvHeads = 2, kHeadDim = 16, kLength = 40;

/// {projection [2, 40, 128]; weights of the norms of q and k [16]}.
Tensors inputs() {
  Numbers numbers(3);
  return {numbers.normal({2, kLength, (kNumHeads + 2 * kNumKvHeads) * kHeadDim}),
          numbers.normal({kHeadDim}), numbers.normal({kHeadDim})};
}

Qkv split(const Tensors& in, bool has_norms = true) {
  QkvOptions options;
  options.num_heads = kNumHeads;
  options.num_kv_heads = kNumKvHeads;
  options.head_dim = kHeadDim;
  if (has_norms) {
    options.q_norm = in[1];
    options.k_norm = in[2];
  }
  options.norm = {1e-6, false};
  const at::Tensor angles = at::arange(kLength, at::kFloat).unsqueeze(1) * 0.1 *
                            at::arange(1, kHeadDim / 2 + 1, at::kFloat);
  options.rope = {angles.cos(), angles.sin()};
  return split_norm_rotate(in[0], options);
}

/// Attention to heads as they are or, where they are kept, to copies.
Operation attention(bool is_kept) {
  return [is_kept](const Tensors& in) {
    Qkv heads = split(in);
    if (is_kept) heads = {heads.q.clone(), heads.k.clone(), heads.v.clone()};
    return Tensors{causal_attention(heads.q, heads.k, heads.v, {}).out};
  };
}

Tensors trained_inputs() {
  Tensors in = inputs();
  for (at::Tensor& tensor : in) tensor.requires_grad_();
  return in;
}

TEST(KeptHeads, AreMadeAgainToTheBit) {
  for (const at::ScalarType dtype : kFusedTypes) {
    SCOPED_TRACE(c10::toString(dtype));
    const Tensors again = differentiate(attention(false), inputs(), dtype);
    const Tensors kept = differentiate(attention(true), inputs(), dtype);
    for (size_t i = 0; i < kept.size(); ++i) {
      EXPECT_TRUE(at::equal(again[i], kept[i])) << "tensor " << i;
    }
  }
}

TEST(KeptHeads, AreFreedAfterForward) {
  const Tensors in = trained_inputs();
  Qkv heads = split(in);
  const at::Tensor out = causal_attention(heads.q, heads.k, heads.v, {}).out;
  std::vector<c10::weak_intrusive_ptr<at::TensorImpl>> watched;
  for (at::Tensor* head : {&heads.q, &heads.k, &heads.v}) {
    watched.emplace_back(head->getIntrusivePtr());
    head->reset();
    EXPECT_TRUE(watched.back().expired());
  }
  out.sum().backward();
  for (const at::Tensor& tensor : in) EXPECT_TRUE(tensor.grad().defined());
}

TEST(KeptHeads, AreMadeAgainWhereAllOfThemAreAndTheirProjectionIsKept) {
  const Tensors in = trained_inputs();
  const Qkv heads = split(in);
  EXPECT_TRUE(can_split_again(heads));
  EXPECT_FALSE(can_split_again({heads.q * 2, heads.k, heads.v}));
  EXPECT_FALSE(can_split_again({heads.q, heads.k * 2, heads.v}));
  EXPECT_FALSE(can_split_again({heads.q, heads.v, heads.k}));
  EXPECT_FALSE(can_split_again({heads.q, split(in).k, heads.v}));
  EXPECT_FALSE(can_split_again(split(in, /*has_norms=*/false)));
  EXPECT_FALSE(can_split_again(split(inputs())));  // nobody asks for gradients
  const device::HostKernelsScope scope(device::host_kernels());
  EXPECT_FALSE(can_split_again(split(in)));
}

}  // namespace
}  // namespace automodel::kernels
