#include "kernels/products/kept_input.h"

#include "core/text.h"
#include "kernels/differentiation.h"
#include "kernels/host_kernels.h"
#include "kernels/layers/activation.h"
#include "kernels/layers/norm.h"
#include "kernels/products/expert_mlp.h"
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

/// What a product takes of what is made.
enum class Taken {
  kItself,
  kReshaped,  ///< all of it, in other sizes
  kCopy,      ///< which its maker has not returned: it is kept
};

at::Tensor taken(const at::Tensor& y, Taken as) {
  if (as == Taken::kReshaped) return y.reshape({-1, y.size(-1)});
  return as == Taken::kCopy ? y.clone() : y;
}

/// The product of what is made.
Operation product_of(const NamedMaker& maker, Taken as) {
  return [maker, as](const Tensors& in) {
    const at::Tensor y = maker.of(in);
    const at::Tensor out = linear(taken(y, as), in[4], at::Tensor());
    return Tensors{out.view({3, 70, 11})};
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
      const Tensors kept = differentiate(product_of(maker, Taken::kCopy), inputs(), dtype);
      for (const Taken as : {Taken::kItself, Taken::kReshaped}) {
        expect_same_bits(differentiate(product_of(maker, as), inputs(), dtype), kept);
      }
    }
  }
}

TEST(KeptInput, IsFreedAfterForward) {
  for (const NamedMaker& maker : kMakers) {
    for (const Taken as : {Taken::kItself, Taken::kReshaped}) {
      SCOPED_TRACE(maker.name);
      Tensors in = inputs();
      for (at::Tensor& tensor : in) tensor.requires_grad_();
      at::Tensor y = maker.of(in);
      const at::Tensor out = linear(taken(y, as), in[4], at::Tensor());
      const c10::weak_intrusive_ptr<at::TensorImpl> watched(y.getIntrusivePtr());
      y.reset();
      EXPECT_TRUE(watched.expired());
      out.sum().backward();
      EXPECT_TRUE(in[4].grad().defined());
    }
  }
}

TEST(KeptInput, IsMadeAgainBehindAReshapeAlone) {
  const Tensors in = inputs();
  const at::Tensor y = rms_norm(in[0].clone().requires_grad_(), in[2], {});
  EXPECT_TRUE(is_made_again(y.view({210, 37})));
  EXPECT_TRUE(is_made_again(y.reshape({210, 37})));
  EXPECT_FALSE(is_made_again(y.view_as(y)));  // the end of a unit of sharded parameters
  EXPECT_FALSE(is_made_again(y.view_as(y).view({210, 37})));
  EXPECT_FALSE(is_made_again(y.narrow(1, 0, 35)));
  EXPECT_FALSE(is_made_again(y.transpose(0, 1)));
  EXPECT_FALSE(is_made_again(y.detach()));
  const at::NoGradGuard no_grad;  // nothing leads from what reads this to the norm
  EXPECT_FALSE(is_made_again(y.view({210, 37})));
}

TEST(KeptInput, OfExpertsIsMadeAgainToTheBit) {
  const auto experts = [](Taken as) -> Operation {
    return [as](const Tensors& in) {
      const at::Tensor y = rms_norm(in[0], in[2], {});
      const at::Tensor ids = at::arange(420, at::kLong).mul(7).remainder(4).view({210, 2});
      const at::Tensor weights = in[5].select(2, 0).reshape({-1, 1}).expand({210, 2}).contiguous();
      return Tensors{expert_mlp(taken(y.view({-1, 37}), as), ids, weights.to(at::kFloat),
                                {.up = in[6], .down = in[7]}, {})};
    };
  };
  Tensors all = inputs();
  Numbers numbers(7);
  all.push_back(numbers.normal({4, 24, 37}));
  all.push_back(numbers.normal({4, 37, 12}));
  for (const at::ScalarType dtype : kFusedTypes) {
    expect_same_bits(differentiate(experts(Taken::kItself), all, dtype),
                     differentiate(experts(Taken::kCopy), all, dtype));
  }
}

TEST(KeptInput, OfExpertsIsFreedAfterForward) {
  const Tensors in = inputs();
  Numbers numbers(7);
  const at::Tensor up = numbers.normal({4, 24, 37}).requires_grad_();
  const at::Tensor down = numbers.normal({4, 37, 12}).requires_grad_();
  at::Tensor y = rms_norm(in[0].clone().requires_grad_(), in[2], {});
  const at::Tensor ids = at::zeros({210, 1}, at::kLong);
  const at::Tensor out =
      expert_mlp(y.view({-1, 37}), ids, at::ones({210, 1}), {.up = up, .down = down}, {});
  const c10::weak_intrusive_ptr<at::TensorImpl> watched(y.getIntrusivePtr());
  y.reset();
  EXPECT_TRUE(watched.expired());
  out.sum().backward();
  EXPECT_TRUE(up.grad().defined());
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
  const auto adapted = [](Taken as) -> Operation {
    return [as](const Tensors& in) {
      Numbers numbers(6);
      const at::ScalarType dtype = in[0].scalar_type();
      const LoraFactors lora{.a = numbers.normal({4, 37}).to(dtype).requires_grad_(),
                             .b = numbers.normal({11, 4}).to(dtype).requires_grad_(),
                             .ranges = {{0, 11}},
                             .scale = 0.5};
      const at::Tensor y = kMakers[2].of(in);
      const at::Tensor out = lora_linear(taken(y, as), in[4].detach(), at::Tensor(), lora);
      const auto factors = torch::autograd::grad({out.pow(2).sum()}, {lora.a, lora.b}, {}, true);
      return Tensors{out, factors[0], factors[1]};
    };
  };
  for (const at::ScalarType dtype : kFusedTypes) {
    expect_same_bits(differentiate(adapted(Taken::kItself), inputs(), dtype),
                     differentiate(adapted(Taken::kCopy), inputs(), dtype));
  }
}

}  // namespace
}  // namespace automodel::kernels
