// The bodies of a device's kernels, compiled for the host, against the plain paths.
#include "kernels/device/device_kernels.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <vector>

#include "core/error.h"
#include "kernels/differentiation.h"
#include "kernels/host_kernels.h"
#include "kernels/layers/activation.h"
#include "kernels/layers/dropout.h"
#include "kernels/layers/layer_reference.h"
#include "kernels/layers/norm.h"
#include "kernels/layers/rope.h"
#include "kernels/loss/cross_entropy.h"
#include "kernels/optimizer/optimizer_step.h"
#include "kernels/optimizer/step_reference.h"
#include "kernels/products/four_bit.h"
#include "kernels/products/lora_linear.h"

namespace automodel::kernels {
namespace {

using device::host_kernels;
using device::HostKernelsScope;
using device::HostLauncher;

class DeviceKernelsTest : public testing::Test {
 protected:
  ~DeviceKernelsTest() override { HostLauncher::is_backward = false; }

  /// By either order of threads and teams the same bits, as close as the plain path's, and by
  /// kernels: at least `num_launches` of them.
  static void expect_match(const Operation& ours, const Operation& plain, const Tensors& inputs,
                           int64_t num_launches = 2) {
    const HostKernelsScope scope(host_kernels());
    for (const at::ScalarType dtype : kFusedTypes) {
      std::array<Tensors, 2> found;
      for (const bool is_backward : {false, true}) {
        HostLauncher::is_backward = is_backward;
        const int64_t before = HostLauncher::num_launches;
        found[is_backward ? 1 : 0] = differentiate(ours, inputs, dtype);
        EXPECT_GE(HostLauncher::num_launches - before, num_launches);
      }
      for (size_t i = 0; i < found[0].size(); ++i) {
        EXPECT_TRUE(at::equal(found[0][i], found[1][i])) << dtype << " tensor " << i;
      }
      expect_fused_as_close(ours, plain, inputs, dtype);
    }
  }
};

TEST_F(DeviceKernelsTest, TensorsThatNoKernelTakes) {
  const at::Tensor x = at::ones({2, 3});
  EXPECT_EQ(device::kernels_for({x}), nullptr);
  const HostKernelsScope scope(host_kernels());
  EXPECT_EQ(device::kernels_for({x, at::Tensor()}), &host_kernels());
  EXPECT_EQ(device::kernels_for({x.to(at::kBFloat16)}), &host_kernels());
  EXPECT_EQ(device::kernels_for({x, x.to(at::kBFloat16)}), nullptr);
  EXPECT_EQ(device::kernels_for({x.to(at::kDouble)}), nullptr);
  EXPECT_EQ(device::kernels_for({x.to(at::kHalf)}), nullptr);
  EXPECT_EQ(device::kernels_for({at::Tensor()}), nullptr);
  const PlainPathScope plain;
  EXPECT_EQ(device::kernels_for({x}), nullptr);
}

/// Rows that packs fit and rows that they do not, shorter and longer than a team, and one beyond a
/// team's scratch.
constexpr int64_t kDims[] = {2, 37, 64, 1536, 2056, 12288, 12300};

TEST_F(DeviceKernelsTest, Norms) {
  for (const int64_t dim : kDims) {
    for (const bool adds_one : {false, true}) {
      SCOPED_TRACE(cat(dim, adds_one ? " adds one" : ""));
      Numbers numbers(1);
      const NormOptions options{.eps = 1e-5, .adds_one = adds_one};
      const int64_t rows = dim > 5000 ? 6 : 23;
      expect_match(
          [&](const Tensors& in) { return Tensors{rms_norm(in[0], in[1], options)}; },
          [&](const Tensors& in) { return Tensors{rms_norm_reference(in[0], in[1], options)}; },
          {numbers.normal({rows, dim}), numbers.normal({dim})});
    }
  }
}

/// Weights that are not trained get no sums, nor a gradient.
TEST_F(DeviceKernelsTest, NormsOfFrozenWeights) {
  for (const int64_t dim : kDims) {
    SCOPED_TRACE(dim);
    Numbers numbers(1);
    expect_match(
        [](const Tensors& in) { return Tensors{rms_norm(in[0], in[1].detach(), {})}; },
        [](const Tensors& in) { return Tensors{rms_norm_reference(in[0], in[1].detach(), {})}; },
        {numbers.normal({7, dim}), numbers.normal({dim})});
  }
}

TEST_F(DeviceKernelsTest, NormsOfASum) {
  for (const int64_t dim : {int64_t{37}, int64_t{64}, int64_t{1536}, int64_t{12300}}) {
    Numbers numbers(2);
    expect_match(
        [&](const Tensors& in) {
          const auto [sum, norm] = add_rms_norm(in[0], in[1], in[2], {});
          return Tensors{sum, norm};
        },
        [&](const Tensors& in) {
          const at::Tensor sum = in[0] + in[1];
          return Tensors{sum, rms_norm_reference(sum, in[2], {})};
        },
        {numbers.normal({3, 7, dim}), numbers.normal({3, 7, dim}), numbers.normal({dim})});
  }
}

TEST_F(DeviceKernelsTest, GatedActivations) {
  for (const Activation activation : {Activation::kSilu, Activation::kGeluTanh}) {
    for (const int64_t half : {int64_t{5}, int64_t{24}, int64_t{2056}}) {
      SCOPED_TRACE(half);
      Numbers numbers(3);
      const auto ours = [&](const Tensors& in) {
        return Tensors{gated_activation(in[0], activation)};
      };
      const auto plain = [&](const Tensors& in) {
        return Tensors{gated_activation_reference(in[0], activation)};
      };
      expect_match(ours, plain, {numbers.normal({2, 9, 2 * half}) * 3});
      // Far from 0 nothing overflows.
      const HostKernelsScope scope(host_kernels());
      const at::Tensor far = at::full({1, 2 * half}, -1e4);
      for (const at::Tensor& result : differentiate(ours, {far}, at::kFloat)) {
        EXPECT_TRUE(is_finite(result));
      }
    }
  }
}

TEST_F(DeviceKernelsTest, Heads) {
  constexpr int64_t kNumHeads = 6, kNumKvHeads = 2, kLength = 11;
  struct Case {
    int64_t head_dim, rotated;
    bool has_q_norm, has_k_norm, has_positions;
  };
  const Case cases[] = {
      {24, 24, false, false, false}, {24, 24, true, true, true},   {64, 32, true, false, false},
      {64, 64, false, true, true},   {80, 0, true, true, false},   {600, 600, true, true, false},
      {6, 0, false, false, false},   {128, 128, true, true, true}, {128, 128, false, false, false},
      {16, 16, true, false, false},  {160, 128, true, true, false}};
  for (const Case& c : cases) {
    SCOPED_TRACE(cat(c.head_dim, " of which ", c.rotated, " turn"));
    const at::Tensor angles =
        at::arange(64, at::kDouble).unsqueeze(1) *
        at::pow(1e4, -at::arange(0, std::max<int64_t>(c.rotated, 2), 2, at::kDouble) / 64);
    const auto split = [&](Qkv (*path)(const at::Tensor&, const QkvOptions&)) -> Operation {
      return [=](const Tensors& in) {
        QkvOptions options;
        options.num_heads = kNumHeads;
        options.num_kv_heads = kNumKvHeads;
        options.head_dim = c.head_dim;
        size_t next = 1;
        if (c.has_q_norm) options.q_norm = in[next++];
        if (c.has_k_norm) options.k_norm = in[next++];
        options.norm = {.eps = 1e-6, .adds_one = c.has_positions};
        const bool is_double = in[0].scalar_type() == at::kDouble;
        const at::ScalarType type = is_double ? at::kDouble : at::kFloat;
        if (c.rotated > 0) {
          options.rope = {angles.cos().to(at::kFloat).to(type),
                          angles.sin().to(at::kFloat).to(type)};
        }
        if (c.has_positions) {
          options.position_ids =
              at::arange(2 * kLength, at::kLong).mul(7).remainder(60).view({2, -1});
        }
        const Qkv heads = path(in[0], options);
        return Tensors{heads.q, heads.k, heads.v};
      };
    };
    Numbers numbers(5);
    Tensors inputs = {numbers.normal({2, kLength, (kNumHeads + 2 * kNumKvHeads) * c.head_dim})};
    if (c.has_q_norm) inputs.push_back(numbers.normal({c.head_dim}));
    if (c.has_k_norm) inputs.push_back(numbers.normal({c.head_dim}));
    expect_match(split(split_norm_rotate), split(split_norm_rotate_reference), inputs);
  }
}

/// Ranks that the kernel takes, of one adapter and of several side by side, and others.
TEST_F(DeviceKernelsTest, Adapters) {
  struct Case {
    int64_t rank;
    std::vector<OutputRange> ranges;
    std::array<int64_t, 2> num_launches;  // of kFusedTypes
  };
  const Case cases[] = {{8, {{0, 2072}}, {2, 2}},         {8, {{0, 24}, {24, 8}, {32, 16}}, {4, 4}},
                        {16, {{0, 40}, {40, 8}}, {3, 3}}, {32, {{0, 48}}, {2, 2}},
                        {12, {{0, 48}}, {2, 0}},          {40, {{0, 48}}, {0, 0}},
                        {8, {{8, 16}, {32, 8}}, {1, 1}}};
  for (const Case& c : cases) {
    SCOPED_TRACE(cat("rank ", c.rank, ", ", c.ranges.size(), " adapters"));
    const auto num_adapters = static_cast<int64_t>(c.ranges.size());
    int64_t rows = 0, last = 0;
    for (const OutputRange& range : c.ranges) {
      rows += range.count;
      last = range.first + range.count;
    }
    const int64_t num_outputs = std::max<int64_t>(last, 48);
    Numbers numbers(7);
    const auto adapted = [&](auto path) -> Operation {
      return [=](const Tensors& in) {
        return Tensors{path(in[0], in[1].detach(), at::Tensor(), {in[2], in[3], c.ranges, 0.5})};
      };
    };
    const auto plain = [](const at::Tensor& x, const at::Tensor& weight, const at::Tensor&,
                          const LoraFactors& lora) {
      const PlainPathScope path;
      return lora_linear(x, weight, at::Tensor(), lora);
    };
    const Tensors inputs = {numbers.normal({2, 9, 56}), numbers.normal({num_outputs, 56}),
                            numbers.normal({num_adapters * c.rank, 56}),
                            numbers.normal({rows, c.rank})};
    expect_match(adapted(lora_linear), adapted(plain), inputs, 0);
    const HostKernelsScope scope(host_kernels());
    for (size_t i = 0; i < c.num_launches.size(); ++i) {
      const int64_t before = HostLauncher::num_launches;
      differentiate(adapted(lora_linear), inputs, kFusedTypes[i]);
      EXPECT_EQ(HostLauncher::num_launches - before, c.num_launches[i]) << kFusedTypes[i];
    }
  }
}

TEST_F(DeviceKernelsTest, CrossEntropy) {
  for (const int64_t vocab_size : {int64_t{91}, int64_t{4104}}) {
    for (const double cap : {0.0, 3.0}) {
      SCOPED_TRACE(cat(vocab_size, " cap ", cap));
      const CrossEntropyOptions options{.softcap = cap, .logit_scale = 0.7, .divisor = 7};
      at::Tensor labels = at::arange(30, at::kLong).mul(371).remainder(vocab_size);
      labels = labels.masked_fill(at::arange(30, at::kLong).remainder(3).eq(1), -100);
      labels[29] = vocab_size - 1;
      Numbers numbers(9);
      expect_match(
          [&](const Tensors& in) {
            return Tensors{linear_cross_entropy(in[0], in[1], labels, options)};
          },
          [&](const Tensors& in) {
            at::Tensor logits = at::matmul(in[0], in[1].t())
                                    .to(at::promote_types(in[0].scalar_type(), at::kFloat)) *
                                options.logit_scale;
            if (cap > 0) logits = at::tanh(logits / cap) * cap;
            return Tensors{at::cross_entropy_loss(logits, labels, {}, at::Reduction::Sum, -100) /
                           7.0};
          },
          {numbers.normal({30, 24}), numbers.normal({vocab_size, 24})}, 1);
    }
  }
}

/// Rows of the mask that begin inside a block of its stream, beyond 2^32 blocks, and in pieces.
TEST_F(DeviceKernelsTest, Dropout) {
  const DropoutMask mask{0.3, tensor::RandomKey(5, "site")};
  const auto drops = [&](auto path, const std::vector<DropoutSpan>& spans) -> Operation {
    return [=](const Tensors& in) { return Tensors{path(in[0], mask, spans)}; };
  };
  for (const std::vector<DropoutSpan>& spans :
       {std::vector<DropoutSpan>{{6, 3000}},
        {{(uint64_t{1} << 34) - 33, 2900}, {2, 1}, {(uint64_t{1} << 35) + 5, 99}}}) {
    const int64_t launches = 2 * static_cast<int64_t>(spans.size());
    const Tensors in = {Numbers(3).normal({3, 1000})};
    expect_match(drops(dropout, spans), drops(dropout_reference, spans), in, launches);
    const HostKernelsScope scope(host_kernels());
    const at::Tensor dropped = dropout(in[0], mask, spans);
    EXPECT_TRUE(at::equal(dropped, dropout_reference(in[0], mask, spans)));
  }
}

TEST_F(DeviceKernelsTest, ValuesOfFourBits) {
  const FourBitWeight weight{.bytes = {}, .rows = {40, 3}, .cols = 192, .format = {}};
  for (const FourBitType type : {FourBitType::kNf4, FourBitType::kFp4}) {
    for (const bool is_nested : {false, true}) {
      FourBitWeight held = weight;
      held.format = {.type = type, .has_quantized_factors = is_nested};
      const Tensors parts = {Numbers(4).normal({40, 192}), Numbers(5).normal({3, 192})};
      held.bytes = at::cat(
          {quantize_four_bit(parts[0], held.format), quantize_four_bit(parts[1], held.format)});
      for (const at::ScalarType dtype : kFusedTypes) {
        const at::Tensor plain = held.values(dtype);
        const HostKernelsScope scope(host_kernels());
        for (const bool is_backward : {false, true}) {
          HostLauncher::is_backward = is_backward;
          const int64_t before = HostLauncher::num_launches;
          EXPECT_TRUE(at::equal(held.values(dtype), plain)) << dtype;
          EXPECT_EQ(HostLauncher::num_launches - before, 2);
        }
      }
    }
  }
}

/// What stops a diverged run is not hidden.
TEST_F(DeviceKernelsTest, NotANumberGoesThrough) {
  const HostKernelsScope scope(host_kernels());
  Numbers numbers(17);
  const Tensors inputs = {numbers.normal({5, 24}), numbers.normal({24})};
  const at::Tensor labels = at::arange(5, at::kLong);
  for (const double poison : kPoisons) {
    SCOPED_TRACE(poison);
    expect_nothing_hidden([](const Tensors& in) { return Tensors{rms_norm(in[0], in[1], {})}; },
                          [](const Tensors& in) {
                            const PlainPathScope plain;
                            return Tensors{rms_norm_reference(in[0], in[1], {})};
                          },
                          poisoned(inputs, 0, 30, poison));
    const Tensors heads = {inputs[0], numbers.normal({91, 24})};
    const Operation loss = [&](const Tensors& in) {
      return Tensors{linear_cross_entropy(in[0], in[1], labels, {})};
    };
    const Operation plain_loss = [&](const Tensors& in) {
      return Tensors{at::cross_entropy_loss(at::matmul(in[0], in[1].t()), labels, {},
                                            at::Reduction::Sum, -100)};
    };
    expect_nothing_hidden(loss, plain_loss, poisoned(heads, 0, 30, poison));
  }
}

TEST_F(DeviceKernelsTest, ALabelOutsideTheRowIsRefused) {
  for (const int64_t wrong : {int64_t{8}, int64_t{-1}}) {
    at::Tensor logits = at::ones({2, 8});
    const at::Tensor labels = at::tensor({int64_t{3}, wrong}, at::kLong);
    at::Tensor losses = at::empty({2});
    EXPECT_THROW(
        host_kernels().float32.cross_entropy(logits.data_ptr<float>(), labels.data_ptr<int64_t>(),
                                             losses.data_ptr<float>(), 2, 8, {}),
        InputError);
  }
}

/// A step of AdamW from the same numbers by kernels and by ATen's operations, in every combination
/// of types, with packs and without.
TEST_F(DeviceKernelsTest, Adam) {
  const AdamOptions options{
      .lr = 1e-2, .eps = 1e-6, .weight_decay = 0.1, .step = 3, .grad_scale = 0.5};
  for (int types = 0; types < 8; ++types) {
    for (const int64_t count : {int64_t{4096}, int64_t{1003}}) {
      for (const bool is_amsgrad : {false, true}) {
        SCOPED_TRACE(cat(types, " ", count, is_amsgrad ? " amsgrad" : ""));
        const auto type = [&](int bit) { return types & bit ? at::kBFloat16 : at::kFloat; };
        Numbers numbers(11);
        const Tensors begin = {
            numbers.normal({count}).to(type(1)), numbers.normal({count}).to(type(2)),
            numbers.normal({count}).to(type(4)), numbers.normal({count}).square().to(type(4)),
            numbers.normal({count}).square().to(type(4))};
        const auto stepped = [&](bool is_ours, at::ScalarType least) {
          Tensors all;
          for (const at::Tensor& tensor : begin) {
            all.push_back(tensor.to(at::promote_types(tensor.scalar_type(), least), false, true));
          }
          const at::Tensor v_max = is_amsgrad ? all[4] : at::Tensor();
          const int64_t before = HostLauncher::num_launches;
          if (is_ours) {
            const HostKernelsScope scope(host_kernels());
            adam_step(all[0], all[1], all[2], all[3], v_max, options);
            EXPECT_EQ(HostLauncher::num_launches, before + 1);
          } else {
            adam_step_reference(all[0], all[1], all[2], all[3], v_max, options);
          }
          return all;
        };
        expect_as_close(stepped(true, at::kBFloat16), stepped(false, at::kBFloat16),
                        stepped(false, at::kDouble));
      }
    }
  }
}

TEST_F(DeviceKernelsTest, Squares) {
  for (const int64_t count : {int64_t{1}, int64_t{1003}, int64_t{65536}}) {
    Numbers numbers(13);
    const at::Tensor values = numbers.normal({count}) * 1e20;  // whose squares float32 has not
    std::vector<double> partials(5, std::nan(""));
    host_kernels().float32.squares(values.data_ptr<float>(), count, partials.data(), 5);
    double sum = 0;
    for (const double partial : partials) sum += partial;
    const double exact = values.to(at::kDouble).square().sum().item<double>();
    EXPECT_NEAR(sum / exact, 1.0, 1e-12);
  }
}

}  // namespace
}  // namespace automodel::kernels
