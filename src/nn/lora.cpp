#include "nn/lora.h"

#include <ATen/ATen.h>

#include "core/error.h"
#include "kernels/linear.h"
#include "tensor/random.h"
#include "tensor/shard_spec.h"

namespace automodel::nn {

std::string lora_suffix(size_t num_before) {
  return num_before == 0 ? "" : cat("_", num_before + 1);
}

LoraParameters register_lora(torch::nn::Module& layer, const LoraOptions& options,
                             int64_t in_features, const std::string& suffix) {
  const auto num_parts = static_cast<int64_t>(options.parts.size());
  int64_t rows = 0;
  for (const LoraPart& part : options.parts) rows += part.range.count;
  const auto add = [&](const char* name, at::IntArrayRef sizes) {
    return layer.register_parameter(cat(name, suffix), tensor::placeholder(sizes, options.dtype));
  };
  LoraParameters parameters;
  parameters.a = add("lora_A", {num_parts * options.rank, in_features});
  parameters.b = add("lora_B", {rows, options.rank});
  if (options.has_magnitude) parameters.magnitude = add("lora_magnitude", {rows});
  return parameters;
}

void Lora::keep_outputs(const std::vector<kernels::OutputRange>& ranges) {
  AM_CHECK(ranges.size() == options_.parts.size());
  for (size_t p = 0; p < ranges.size(); ++p) options_.parts[p].range = ranges[p];
}

at::Tensor Lora::mask(const at::Tensor& x, const LoraPart& part) const {
  const DropoutKey& now = *options_.dropout_key;
  const tensor::RandomKey key(now.seed,
                              cat("dropout/", now.step, "/", now.micro_batch, "/", part.site));
  return tensor::dropout_mask(key, 0, x.numel(), options_.dropout).view(x.sizes()).to(x.options());
}

/// What a part adds to its outputs, including dropout.
at::Tensor Lora::update(const at::Tensor& x, size_t part, int64_t row, const ProductDtype& dtype,
                        bool is_training) const {
  const LoraPart& own = options_.parts[part];
  const at::Tensor a =
      dtype.of(parameters_.a.narrow(0, static_cast<int64_t>(part) * options_.rank, options_.rank));
  const at::Tensor b = dtype.of(parameters_.b.narrow(0, row, own.range.count));
  const bool drops = is_training && options_.dropout > 0;
  at::Tensor in = x.to(a.scalar_type());
  if (drops && options_.dropout_position == DropoutPosition::kPre) in = in * mask(in, own);
  at::Tensor out = kernels::linear(kernels::linear(in, a, {}), b, {}) * options_.scale;
  if (drops && options_.dropout_position == DropoutPosition::kPost) out = out * mask(out, own);
  return out;
}

/// DoRA's factor for every output of a part: its magnitude divided by the norm of its row. The norm
/// gets no gradient.
at::Tensor Lora::row_factors(const at::Tensor& weight, size_t part, int64_t row) const {
  const kernels::OutputRange& range = options_.parts[part].range;
  at::Tensor norms;
  {
    const at::NoGradGuard no_grad;
    const at::Tensor a =
        parameters_.a.narrow(0, static_cast<int64_t>(part) * options_.rank, options_.rank);
    const at::Tensor b = parameters_.b.narrow(0, row, range.count);
    const at::Tensor merged = weight.narrow(0, range.first, range.count).to(at::kFloat) +
                              at::mm(b.to(at::kFloat), a.to(at::kFloat)) * options_.scale;
    norms = merged.norm(2, 1);
  }
  const at::Tensor magnitude = parameters_.magnitude.narrow(0, row, range.count);
  return magnitude / norms.to(magnitude.scalar_type());
}

at::Tensor Lora::add_to(const at::Tensor& base, const at::Tensor& x, const at::Tensor& weight,
                        const ProductDtype& dtype, bool is_training) const {
  std::vector<at::Tensor> columns;
  int64_t end = 0;
  int64_t row = 0;
  for (size_t p = 0; p < options_.parts.size(); ++p) {
    const kernels::OutputRange& range = options_.parts[p].range;
    if (range.first > end) columns.push_back(base.narrow(-1, end, range.first - end));
    at::Tensor own = base.narrow(-1, range.first, range.count) +
                     update(x, p, row, dtype, is_training).to(base.scalar_type());
    if (options_.has_magnitude) own = own * row_factors(weight, p, row).to(base.scalar_type());
    columns.push_back(own);
    end = range.first + range.count;
    row += range.count;
  }
  if (end < base.size(-1)) columns.push_back(base.narrow(-1, end, base.size(-1) - end));
  return columns.size() == 1 ? columns[0] : at::cat(columns, -1);
}

at::Tensor Lora::forward(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                         const ProductDtype& dtype, bool is_training) const {
  const bool drops = is_training && options_.dropout > 0;
  const at::Tensor a = dtype.of(parameters_.a);
  if (!drops && !options_.has_magnitude && a.scalar_type() == weight.scalar_type()) {
    kernels::LoraFactors factors{a, dtype.of(parameters_.b), {}, options_.scale};
    for (const LoraPart& part : options_.parts) factors.ranges.push_back(part.range);
    return kernels::lora_linear(x, weight, bias, factors);
  }
  const at::Tensor out = add_to(kernels::linear(x, weight, {}), x, weight, dtype, is_training);
  return bias.defined() ? out + bias : out;
}

std::pair<at::Tensor, at::Tensor> Lora::operands(const at::Tensor& x, const at::Tensor& weight,
                                                 const ProductDtype& dtype) const {
  AM_CHECK(options_.parts.size() == 1);
  const at::Tensor a = dtype.of(parameters_.a).to(weight.scalar_type());
  const at::Tensor b = dtype.of(parameters_.b).to(weight.scalar_type());
  const at::Tensor wide_x = at::cat({x, at::linear(x, a) * options_.scale}, -1);
  at::Tensor wide_weight = at::cat({weight, b}, -1);
  if (options_.has_magnitude) {
    wide_weight = wide_weight * row_factors(weight, 0, 0).to(weight.scalar_type()).unsqueeze(1);
  }
  return {wide_x, wide_weight};
}

}  // namespace automodel::nn
