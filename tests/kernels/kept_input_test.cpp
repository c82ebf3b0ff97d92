#include "kernels/products/kept_input.h"

#include "core/text.h"
#include "kernels/differentiation.h"
#include "kernels/host_kernels.h"
#include "kernels/layers/activation.h"
#include "kernels/layers/norm.h"
#include "kernels/products/linear.h"
#include "kernels/products/lora_linear.h"

namespace automodel::kernels {
namespace {

/// {x, residual [3, 70, 37]; weight, bias of a norm [37]; weight of a product [11, 37]; gate and up
/// [3, 70, 74]}.
Tensors inputs() {
  Numbers numbers(5);
  return {numbers.normal({3, 70, 37}), numbers.normal({3, 70, 37}), numbers.normal({37}),
          numbers.normal({37}),        numbers.normal({11, 37}),    numbers.normal({3, 70, 74})};
}

/// What makes the input of a product, by its name.
struct NamedMaker {
  const char* name;
  std::function<at::Tensor(const Tensors&)> of;
};

at::Tensor activated(const Tensors& in, Activation activation) {
  return activate(in[0], activation);
}

at::Tensor gated(const Tensors& in, Activation activation) {
  return gated_activation(in[5], activation);
}

const NamedMaker kMakers[] = {
    {"RMS", [](const Tensors& in) { return rms_norm(in[0], in[2], {}); }},
    {"RMS with one added",
     [](const Tensors& in) {
       return rms_norm(in[0], in[2], {1e-5, true});
     }},
    {"RMS of a sum",
     [](const Tensors& in) { return add_rms_norm(in[0], in[1], in[2], {}).second; }},
    {"LayerNorm", [](const Tensors& in) { return layer_norm(in[0], in[2], in[3], 1e-5); }},
    {"LayerNorm without bias",
     [](const Tensors& in) { return layer_norm(in[0], in[2], at::Tensor(), 1e-5); }},
    {"LayerNorm of a sum",
     [](const Tensors& in) { return add_layer_norm(in[0], in[1], in[2], in[3], 1e-5).second; }},
    {"exact GELU", [](const Tensors& in) { return activated(in, Activation::kGelu); }},
    {"GELU by tanh", [](const Tensors& in) { return activated(in, Activation::kGeluTanh); }},
    {"squared ReLU", [](const Tensors& in) { return activated(in, Activation::kReluSquared); }},
    {"SwiGLU", [](const Tensors& in) { return gated(in, Activation::kSilu); }},
    {"GeGLU", [](const Tensors& in) { return gated(in, Activation::kGeluTanh); }},
};

/// The product of what is made; of an alias of it, which its maker has not returned, if it is kept.
Operation product_of(const NamedMaker& maker, bool is_kept) {
  return [maker, is_kept](const Tensors& in) {
    const at::Tensor y = maker.of(in);
    return Tensors{linear(is_kept ? y.alias() : y, in[4], at::Tensor())};
  };
}

void expect_same_bits(const Tensors& actual, const Tensors& expected) {
  ASSERT_EQ(actual.size(), expected.size());
  for (size_t i = 0; i < expected.size(); ++i) {
    EXPECT_TRUE(at::equal(actual[i], expected[i])) << "tensor " << i;
  }
}

TEST(KeptInput, IsMadeAgainToTheBit) {
  for (const NamedMaker& maker : kMakers) {
    for (const at::ScalarType dtype : kFusedTypes) {
      SCOPED_TRACE(cat(maker.name, " of ", c10::toString(dtype)));
      expect_same_bits(differentiate(product_of(maker, false), inputs(), dtype),
                       differentiate(product_of(maker, true), inputs(), dtype));
    }
  }
}

TEST(KeptInput, IsFreedAfterForward) {
  for (const NamedMaker& maker : kMakers) {
    SCOPED_TRACE(maker.name);
    Tensors in = inputs();
    for (at::Tensor& tensor : in) tensor.requires_grad_();
    at::Tensor y = maker.of(in);
    const at::Tensor out = linear(y, in[4], at::Tensor());
    const c10::weak_intrusive_ptr<at::TensorImpl> watched(y.getIntrusivePtr());
    y.reset();
    EXPECT_TRUE(watched.expired());
    out.sum().backward();
    EXPECT_TRUE(in[4].grad().defined());
  }
}

bool is_normed(const at::Tensor& x) {
  return x.grad_fn() != nullptr && has_normed(*x.grad_fn(), x.output_nr());
}

TEST(KeptInput, IsASumWhereTheSumIsMultiplied) {
  const Tensors in = inputs();
  const at::Tensor x = in[0].clone().requires_grad_();
  const auto [sum, norm] = add_rms_norm(x, in[1], in[2], {});
  EXPECT_FALSE(is_normed(sum));
  EXPECT_TRUE(is_normed(norm));
  EXPECT_FALSE(is_normed(norm.view({-1, 37})));
  EXPECT_FALSE(is_normed(x));
  const auto [other, layer_norm] = add_layer_norm(x, in[1], in[2], in[3], 1e-5);
  EXPECT_FALSE(is_normed(other));
  EXPECT_TRUE(is_normed(layer_norm));
}

/// A device's kernels have no loop that would make it again.
TEST(KeptInput, IsKeptByADevicesKernels) {
  const device::HostKernelsScope scope(device::host_kernels());
  const Tensors in = inputs();
  const at::Tensor y = rms_norm(in[0].clone().requires_grad_(), in[2], {});
  EXPECT_TRUE(is_normed(y));
  EXPECT_FALSE(is_made_again(y));
}

TEST(KeptInput, OfAdaptersIsMadeAgainToo) {
  const auto adapted = [](bool is_kept) -> Operation {
    return [is_kept](const Tensors& in) {
      Numbers numbers(6);
      const at::ScalarType dtype = in[0].scalar_type();
      const LoraFactors lora{.a = numbers.normal({4, 37}).to(dtype).requires_grad_(),
                             .b = numbers.normal({11, 4}).to(dtype).requires_grad_(),
                             .ranges = {{0, 11}},
                             .scale = 0.5};
      const at::Tensor y = kMakers[2].of(in);
      const at::Tensor out =
          lora_linear(is_kept ? y.alias() : y, in[4].detach(), at::Tensor(), lora);
      const auto factors = torch::autograd::grad({out.pow(2).sum()}, {lora.a, lora.b}, {}, true);
      return Tensors{out, factors[0], factors[1]};
    };
  };
  for (const at::ScalarType dtype : kFusedTypes) {
    expect_same_bits(differentiate(adapted(false), inputs(), dtype),
                     differentiate(adapted(true), inputs(), dtype));
  }
}

}  // namespace
}  // namespace automodel::kernels
