#include "nn/lora.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>

#include "core/error.h"
#include "kernels/layers/dropout.h"
#include "kernels/products/linear.h"
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

Lora::Lora(LoraOptions options, LoraParameters parameters)
    : options_(std::move(options)), parameters_(std::move(parameters)) {
  const int64_t in_features = parameters_.a.size(1);
  inputs_ = {in_features, {{0, in_features}}};
  for (const LoraPart& part : options_.parts) {
    outputs_.push_back({part.range.count, {{0, part.range.count}}});
  }
}

void Lora::keep_outputs(const std::vector<HeldOutputs>& outputs) {
  AM_CHECK(outputs.size() == options_.parts.size());
  for (size_t p = 0; p < outputs.size(); ++p) {
    options_.parts[p].range = outputs[p].range;
    outputs_[p].held = outputs[p].in_matrix;
  }
}

void Lora::keep_inputs(const kernels::OutputRange& inputs, SumOverParts sum) {
  inputs_.held = {inputs};
  sum_over_parts_ = std::move(sum);
}

/// Rows of a mask, which has a row for each token of the whole sequences, that belong to `num_rows`
/// rows of an input: all tokens of the batch, or a run of those of every sequence.
static std::vector<tensor::PositionRun> mask_rows(const DropoutKey& key, int64_t num_rows) {
  if (key.sequence.length == 0) return {{0, num_rows}};
  const int64_t in_sequence = num_rows / key.num_sequences;
  const int64_t num_tokens = key.sequence.num_tokens();
  const int64_t rows_of_token = std::max<int64_t>(in_sequence / num_tokens, 1);
  const std::vector<tensor::PositionRun> positions =
      in_sequence < num_tokens ? key.sequence.run_of_tokens(key.sequence_part, in_sequence)
                               : key.sequence.runs;
  std::vector<tensor::PositionRun> rows;
  for (int64_t sequence = 0; sequence < key.num_sequences; ++sequence) {
    for (const tensor::PositionRun& run : positions) {
      const int64_t first = (sequence * key.sequence.length + run.first) * rows_of_token;
      const int64_t count = run.count * rows_of_token;
      if (!rows.empty() && rows.back().first + rows.back().count == first) {
        rows.back().count += count;
      } else {
        rows.push_back({first, count});
      }
    }
  }
  return rows;
}

/// x with dropout; its last dim holds these columns.
at::Tensor Lora::dropped(const at::Tensor& x, const LoraPart& part,
                         const MaskColumns& columns) const {
  const DropoutKey& now = *options_.dropout_key;
  const tensor::RandomKey key(now.seed,
                              cat("dropout/", now.step, "/", now.micro_batch, "/", part.site));
  std::vector<kernels::DropoutSpan> spans;
  for (const tensor::PositionRun& run : mask_rows(now, x.numel() / x.size(-1))) {
    for (int64_t row = run.first; row < run.first + run.count; ++row) {
      for (const kernels::OutputRange& range : columns.held) {
        const int64_t first = row * columns.num_columns + range.first;
        kernels::add_span(spans, {static_cast<uint64_t>(first), range.count});
      }
    }
  }
  return kernels::dropout(x, {options_.dropout, key}, spans);
}

/// What a part adds to its outputs for an input of the adapters' dtype, before dropout of the
/// output.
at::Tensor Lora::update(const at::Tensor& in, size_t part, int64_t row,
                        const ProductDtype& dtype) const {
  const int64_t count = options_.parts[part].range.count;
  const at::Tensor a =
      dtype.of(parameters_.a.narrow(0, static_cast<int64_t>(part) * options_.rank, options_.rank));
  const at::Tensor b = dtype.of(parameters_.b.narrow(0, row, count));
  return kernels::linear(kernels::linear(in, a, {}), b, {}) * options_.scale;
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
    if (sum_over_parts_) norms = sum_over_parts_(norms.square()).sqrt_();
    // A row of zeros, as behind the end of a split vocabulary, stays one.
    norms.masked_fill_(norms.eq(0), 1);
  }
  const at::Tensor magnitude = parameters_.magnitude.narrow(0, row, range.count);
  return magnitude / norms.to(magnitude.scalar_type());
}

/// A part's outputs, given those of the frozen layer.
at::Tensor Lora::adapted_part(const at::Tensor& base, const at::Tensor& x, const at::Tensor& weight,
                              size_t part, int64_t row, const ProductDtype& dtype,
                              bool is_training) const {
  const LoraPart& own = options_.parts[part];
  const at::ScalarType type = base.scalar_type();
  const bool drops = is_training && options_.dropout > 0;
  const bool drops_input = drops && options_.dropout_position == DropoutPosition::kPre;
  at::Tensor in = x.to(dtype.of(parameters_.a).scalar_type());
  if (drops_input) in = dropped(in, own, inputs_);
  at::Tensor added = update(in, part, row, dtype);
  if (drops && !drops_input) added = dropped(added, own, outputs_[part]);
  if (!options_.has_magnitude) return base + added.to(type);
  const at::Tensor factors = row_factors(weight, part, row);
  if (!drops_input) return (base + added.to(type)) * factors.to(type);
  const at::Tensor rows = weight.narrow(0, own.range.first, own.range.count);
  const at::Tensor of_dropped = kernels::linear(in.to(rows.scalar_type()), rows, {});
  return base + of_dropped * (factors - 1).to(type) + (added * factors).to(type);
}

at::Tensor Lora::add_to(const at::Tensor& base, const at::Tensor& x, const at::Tensor& weight,
                        const ProductDtype& dtype, bool is_training) const {
  std::vector<at::Tensor> columns;
  int64_t end = 0;
  int64_t row = 0;
  for (size_t p = 0; p < options_.parts.size(); ++p) {
    const kernels::OutputRange& range = options_.parts[p].range;
    if (range.first > end) columns.push_back(base.narrow(-1, end, range.first - end));
    columns.push_back(adapted_part(base.narrow(-1, range.first, range.count), x, weight, p, row,
                                   dtype, is_training));
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
