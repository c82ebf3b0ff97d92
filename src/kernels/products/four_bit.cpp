#include "kernels/products/four_bit.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "core/divide.h"
#include "core/error.h"
#include "kernels/base/device_table.h"
#include "kernels/base/dynamic_codes.h"
#include "kernels/base/fused.h"
#include "kernels/base/result_keeper.h"
#include "kernels/device/device_kernels.h"
#include "kernels/products/linear.h"
#include "kernels/products/product.h"

namespace automodel::kernels {

namespace {

using torch::autograd::AutogradContext;
using torch::autograd::tensor_list;

constexpr int64_t kFactorBlock = 256;
constexpr int64_t kBorder = 64;
/// Elements that are quantized at a time.
constexpr int64_t kPiece = int64_t{1} << 22;

constexpr std::array<float, 16> kNf4 = {
    -1.0F,
    -0.6961928009986877F,
    -0.5250730514526367F,
    -0.39491748809814453F,
    -0.28444138169288635F,
    -0.18477343022823334F,
    -0.09105003625154495F,
    0.0F,
    0.07958029955625534F,
    0.16093020141124725F,
    0.24611230194568634F,
    0.33791524171829224F,
    0.44070982933044434F,
    0.5626170039176941F,
    0.7229568362236023F,
    1.0F,
};
/// Twelfths of 0, 1/16, 8, 12, 4, 6, 2, 3 and of their negatives.
constexpr std::array<float, 16> kFp4 = {
    0.0F,  0.0625F / 12,  8.0F / 12,  12.0F / 12,  4.0F / 12,  6.0F / 12,  2.0F / 12,  3.0F / 12,
    -0.0F, -0.0625F / 12, -8.0F / 12, -12.0F / 12, -4.0F / 12, -6.0F / 12, -2.0F / 12, -3.0F / 12,
};

const std::array<float, 16>& codes_of(FourBitType type) {
  return type == FourBitType::kNf4 ? kNf4 : kFp4;
}

at::Tensor code_tensor(FourBitType type, at::Device device) {
  const auto make = [](const std::array<float, 16>& codes) {
    return at::tensor(at::ArrayRef<float>(codes.data(), codes.size()));
  };
  static const at::Tensor nf4 = make(kNf4), fp4 = make(kFp4);
  return table_on(type == FourBitType::kNf4 ? nf4 : fp4, device);
}

/// Where the parts of a matrix's bytes begin.
struct Places {
  Places(int64_t numel, const FourBitFormat& format)
      : num_factors(numel / kFourBitBlock),
        num_outer(format.has_quantized_factors ? ceil_div(num_factors, kFactorBlock) : 0),
        factors(round_up(numel / 2, kBorder)),
        outer(factors +
              round_up(format.has_quantized_factors ? num_factors : 4 * num_factors, kBorder)),
        end(outer + (num_outer == 0 ? 0 : round_up(4 * (num_outer + 1), kBorder))) {}

  int64_t num_factors;
  int64_t num_outer;  // factors of factors, behind them the mean
  int64_t factors;
  int64_t outer;
  int64_t end;
};

at::Tensor floats_at(const at::Tensor& bytes, int64_t first, int64_t count) {
  return bytes.narrow(0, first, 4 * count).view(at::kFloat);
}

/// Positions among ascending values, the lower one of two that are equally near.
at::Tensor nearest(const at::Tensor& values, const at::Tensor& codes) {
  const int64_t count = codes.numel() - 1;
  const at::Tensor borders = (codes.narrow(0, 0, count) + codes.narrow(0, 1, count)) / 2;
  return at::bucketize(values, borders, /*out_int32=*/true);
}

/// Values [blocks, block] by the largest magnitude of their block.
at::Tensor scaled(const at::Tensor& blocks, const at::Tensor& factors) {
  const at::Tensor inverse = factors.clamp_min(1e-38).reciprocal();
  return (blocks * inverse.view({-1, 1})).clamp(-1, 1);
}

/// Writes factors in 8 bits, their own factors and their mean.
void quantize_factors(const at::Tensor& factors, const Places& places, const at::Tensor& bytes) {
  // Summed in float64: the float32 sum of a CPU depends on the width of its vectors.
  const at::Tensor mean = factors.mean(at::kDouble).to(at::kFloat);
  const at::Tensor codes = table_on(dynamic_codes(/*is_signed=*/true), factors.device());
  const at::Tensor centred = factors - mean;
  const at::Tensor outer = floats_at(bytes, places.outer, places.num_outer + 1);
  outer.narrow(0, places.num_outer, 1).copy_(mean.view({1}));
  const int64_t padded = places.num_outer * kFactorBlock;
  const at::Tensor blocks =
      at::constant_pad_nd(centred, {0, padded - places.num_factors}).view({-1, kFactorBlock});
  const at::Tensor largest = blocks.abs().amax(1);
  outer.narrow(0, 0, places.num_outer).copy_(largest);
  const at::Tensor chosen = nearest(scaled(blocks, largest), codes).to(at::kByte).view({-1});
  bytes.narrow(0, places.factors, places.num_factors)
      .copy_(chosen.narrow(0, 0, places.num_factors));
}

/// The factors of a matrix's blocks, float32.
at::Tensor factors_of(const at::Tensor& bytes, const Places& places) {
  if (places.num_outer == 0) return floats_at(bytes, places.factors, places.num_factors);
  const at::Tensor outer = floats_at(bytes, places.outer, places.num_outer + 1);
  const at::Tensor chosen = bytes.narrow(0, places.factors, places.num_factors).to(at::kInt);
  const at::Tensor codes =
      table_on(dynamic_codes(/*is_signed=*/true), bytes.device()).index_select(0, chosen);
  const at::Tensor of_each = outer.narrow(0, 0, places.num_outer)
                                 .repeat_interleave(kFactorBlock)
                                 .narrow(0, 0, places.num_factors);
  return codes * of_each + outer.narrow(0, places.num_outer, 1);
}

/// Blocks [begin, end) of a matrix on the CPU.
template <typename T>
void write_values(const uint8_t* bytes, const float* factors, const std::array<float, 16>& codes,
                  int64_t begin, int64_t end, T* out) {
  std::array<T, 16> values{};
  for (int64_t block = begin; block < end; ++block) {
    for (size_t i = 0; i < 16; ++i) values[i] = static_cast<T>(codes[i] * factors[block]);
    const uint8_t* from = bytes + block * (kFourBitBlock / 2);
    T* to = out + block * kFourBitBlock;
    for (int64_t i = 0; i < kFourBitBlock / 2; ++i) {
      to[2 * i] = values[from[i] >> 4];
      to[2 * i + 1] = values[from[i] & 15];
    }
  }
}

template <typename T>
void write_all_values(const at::Tensor& bytes, const at::Tensor& factors, FourBitType type,
                      const at::Tensor& out) {
  const auto* from = bytes.const_data_ptr<uint8_t>();
  const auto* by = factors.const_data_ptr<float>();
  T* const to = out.mutable_data_ptr<T>();
  at::parallel_for(0, factors.numel(), 256, [&](int64_t begin, int64_t end) {
    write_values<T>(from, by, codes_of(type), begin, end, to);
  });
}

/// The values of one matrix, [numel] of out's dtype.
void dequantize_into(const at::Tensor& bytes, const FourBitFormat& format, const at::Tensor& out) {
  const Places places(out.numel(), format);
  const at::Tensor factors = factors_of(bytes, places).contiguous();
  const bool is_plain = !bytes.is_cpu() || is_plain_path_asked();
  if (const device::DeviceKernels* const kernels = device::kernels_for({out})) {
    by_storage(out, [&](auto storage) {
      using T = decltype(storage);
      kernels->of<T>().four_bit_values(
          bytes.const_data_ptr<uint8_t>(), factors.const_data_ptr<float>(),
          codes_of(format.type).data(), numbers_of<T>(out), out.numel());
    });
  } else if (!is_plain && out.scalar_type() == at::kFloat) {
    write_all_values<float>(bytes, factors, format.type, out);
  } else if (!is_plain && out.scalar_type() == at::kBFloat16) {
    write_all_values<at::BFloat16>(bytes, factors, format.type, out);
  } else {
    const at::Tensor packed = bytes.narrow(0, 0, out.numel() / 2);
    const at::Tensor chosen =
        at::stack({packed.bitwise_right_shift(4), packed.bitwise_and(15)}, 1).view({-1});
    const at::Tensor codes =
        code_tensor(format.type, bytes.device()).index_select(0, chosen.to(at::kInt));
    out.view({-1, kFourBitBlock}).copy_(codes.view({-1, kFourBitBlock}) * factors.unsqueeze(1));
  }
}

struct WeightLayout : torch::CustomClassHolder {
  FourBitWeight weight;  // without its bytes, which autograd keeps
};

/// Two products with values that live as long as each of them. `kept` is the first one when it is
/// there already, else null.
struct FourBitLinear : torch::autograd::Function<FourBitLinear> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, const at::Tensor& bytes,
                            const std::optional<at::Tensor>& bias,
                            const c10::intrusive_ptr<WeightLayout>& layout,
                            const at::Tensor* kept) {
    context->save_for_backward({bytes});
    context->saved_data["layout"] = c10::IValue::make_capsule(layout);
    if (kept != nullptr) return kept->detach();
    FourBitWeight weight = layout->weight;
    weight.bytes = bytes;
    const at::Tensor values = weight.values(x.scalar_type());
    if (!is_fusable({x, values})) return at::linear(x, values, bias);
    const at::Tensor out = product(x.reshape({-1, x.size(-1)}), Factor(values).t(),
                                   {.bias = bias.value_or(at::Tensor())});
    std::vector<int64_t> sizes = x.sizes().vec();
    sizes.back() = values.size(0);
    return out.view(sizes);
  }

  static tensor_list backward(AutogradContext* context, tensor_list gradients) {
    at::Tensor d_x;
    if (context->needs_input_grad(0)) {
      const auto holder = context->saved_data["layout"].toCapsule();
      FourBitWeight weight = static_cast<const WeightLayout&>(*holder).weight;
      weight.bytes = context->get_saved_variables()[0];
      const at::Tensor gradient = gradients[0].reshape({-1, gradients[0].size(-1)});
      const at::Tensor values = weight.values(weight.format.dtype).to(gradient.scalar_type());
      std::vector<int64_t> sizes = gradients[0].sizes().vec();
      sizes.back() = weight.cols;
      d_x = product(gradient, values).view(sizes);
    }
    return {d_x, at::Tensor(), at::Tensor(), at::Tensor(), at::Tensor()};
  }
};

}  // namespace

int64_t four_bit_bytes(int64_t numel, const FourBitFormat& format) {
  AM_CHECK(numel % kFourBitBlock == 0, numel);
  return Places(numel, format).end;
}

at::Tensor quantize_four_bit(const at::Tensor& values, const FourBitFormat& format) {
  const at::NoGradGuard no_grad;
  const int64_t numel = values.numel();
  const Places places(numel, format);
  const at::Tensor bytes =
      at::zeros({four_bit_bytes(numel, format)}, values.options().dtype(at::kByte));
  const at::Tensor flat = values.reshape({-1});
  const at::Tensor factors = at::empty({places.num_factors}, values.options().dtype(at::kFloat));
  const at::Tensor codes = code_tensor(format.type, values.device());
  const at::Tensor order = codes.argsort();
  const at::Tensor ascending = codes.index_select(0, order);
  for (int64_t first = 0; first < numel; first += kPiece) {
    const int64_t count = std::min(kPiece, numel - first);
    const at::Tensor blocks = flat.narrow(0, first, count).to(at::kFloat).view({-1, kFourBitBlock});
    const at::Tensor largest = blocks.abs().amax(1);
    factors.narrow(0, first / kFourBitBlock, count / kFourBitBlock).copy_(largest);
    const at::Tensor places_of = nearest(scaled(blocks, largest), ascending).view({-1});
    const at::Tensor chosen = order.index_select(0, places_of).to(at::kByte).view({-1, 2});
    bytes.narrow(0, first / 2, count / 2)
        .copy_(chosen.select(1, 0).bitwise_left_shift(4).bitwise_or(chosen.select(1, 1)));
  }
  if (format.has_quantized_factors) {
    quantize_factors(factors, places, bytes);
  } else {
    floats_at(bytes, places.factors, places.num_factors).copy_(factors);
  }
  return bytes;
}

int64_t FourBitWeight::num_rows() const {
  int64_t sum = 0;
  for (const int64_t count : rows) sum += count;
  return sum;
}

at::Tensor FourBitWeight::values(at::ScalarType dtype) const {
  const at::NoGradGuard no_grad;
  const at::Tensor out = at::empty({num_rows(), cols}, bytes.options().dtype(dtype));
  int64_t row = 0;
  int64_t place = 0;
  for (const int64_t count : rows) {
    const int64_t num_bytes = four_bit_bytes(count * cols, format);
    dequantize_into(bytes.narrow(0, place, num_bytes), format,
                    out.narrow(0, row, count).view({-1}));
    row += count;
    place += num_bytes;
  }
  AM_CHECK(place == bytes.numel(), place, " of ", bytes.numel(), " bytes");
  return out;
}

at::Tensor four_bit_linear(const at::Tensor& x, const FourBitWeight& weight,
                           const at::Tensor& bias) {
  auto layout = c10::make_intrusive<WeightLayout>();
  layout->weight = weight;
  layout->weight.bytes = at::Tensor();
  const std::optional<at::Tensor> offset = bias.defined() ? std::optional(bias) : std::nullopt;
  const auto kept = take_result(ResultKind::kMatrixProduct);
  const at::Tensor* there = kept ? kept->data() : nullptr;
  at::Tensor out = FourBitLinear::apply(x, weight.bytes, offset, layout, there);
  if (!kept) offer_result(ResultKind::kMatrixProduct, {out});
  return out;
}

}  // namespace automodel::kernels
