#include "nn/layers.h"

#include <ATen/ATen.h>

#include <optional>

#include "core/error.h"
#include "kernels/layers/embedding.h"
#include "kernels/products/linear.h"
#include "tensor/dtype.h"
#include "tensor/shard_spec.h"

namespace automodel::nn {

using tensor::placeholder;

namespace {

at::Tensor entered(const std::shared_ptr<LayerHook>& hook, const at::Tensor& x) {
  return hook ? hook->enter(x) : x;
}

at::Tensor left(const std::shared_ptr<LayerHook>& hook, at::Tensor x) {
  return hook ? hook->leave(x) : x;
}

/// Narrower hidden states in the weight's dtype; wider ones are not silently rounded.
at::Tensor widened(const at::Tensor& x, const at::Tensor& weight) {
  const at::ScalarType dtype = weight.scalar_type();
  return at::promote_types(x.scalar_type(), dtype) == dtype ? x.to(dtype) : x;
}

}  // namespace

Linear::Linear(const LinearOptions& options, at::ScalarType dtype) : options_(options) {
  const auto [in, out] = std::pair(options.in_features, options.out_features);
  weight_ = register_parameter("weight", options.is_transposed ? placeholder({in, out}, dtype)
                                                               : placeholder({out, in}, dtype));
  if (options.has_bias) bias_ = register_parameter("bias", placeholder({out}, dtype));
}

at::Tensor Linear::forward(const at::Tensor& x) const {
  if (!unit_hook_.has_behavior()) return multiply(x);
  return unit_hook_({x}, [this](const TensorList& in) { return TensorList{multiply(in[0])}; })[0];
}

void Linear::add_lora(LoraOptions options) {
  LoraParameters parameters =
      register_lora(*this, options, options_.in_features, lora_suffix(loras_.size()));
  loras_.push_back(std::make_unique<Lora>(std::move(options), std::move(parameters)));
}

void Linear::hold_in_four_bits(FourBitOptions options) {
  AM_CHECK(four_bits_ == nullptr && !options_.is_transposed && !weight_.requires_grad());
  AM_CHECK(loras_.empty() || !loras_[0]->options().has_magnitude);
  int64_t num_bytes = 0;
  int64_t num_rows = 0;
  for (const int64_t count : options.rows) {
    num_bytes += kernels::four_bit_bytes(count * options_.in_features, options.format);
    num_rows += count;
  }
  AM_CHECK(num_rows == options_.out_features);
  weight_.set_data(placeholder({num_bytes}, at::kByte));
  four_bits_ = std::make_unique<FourBitOptions>(std::move(options));
}

at::Tensor Linear::multiply_four_bits(const at::Tensor& x) const {
  AM_CHECK(!hook_);
  const at::ScalarType dtype = four_bits_->compute_dtype;
  const at::Tensor bias = bias_.defined() ? bias_.to(dtype) : bias_;
  const at::Tensor out =
      kernels::four_bit_linear(
          x.to(dtype), {weight_, four_bits_->rows, options_.in_features, four_bits_->format}, bias)
          .to(x.scalar_type());
  return adapted(out, x, {}, 0);
}

void Linear::set_fake_quantizer(std::shared_ptr<const FakeQuantizer> quantizer) {
  AM_CHECK(four_bits_ == nullptr && loras_.empty());
  const bool fits = quantizer->fits(options_.in_features, options_.has_bias);
  quantizer_ = fits ? std::move(quantizer) : nullptr;
}

at::Tensor Linear::multiply_rounded(const at::Tensor& x) const {
  AM_CHECK(!hook_);
  const at::Tensor weight = options_.is_transposed ? weight_.t() : weight_;
  return kernels::fake_quantized_linear(widened(x, weight), weight, bias_, quantizer_->format());
}

at::Tensor Linear::adapted(at::Tensor base, const at::Tensor& x, const at::Tensor& weight,
                           size_t first) const {
  for (size_t i = first; i < loras_.size(); ++i) {
    base = loras_[i]->add_to(base, x, weight, product_dtype_, is_training());
  }
  return base;
}

at::Tensor Linear::product_of(const at::Tensor& x, const at::Tensor& weight,
                              const at::Tensor& bias) const {
  if (loras_.empty()) return kernels::linear(x, weight, bias);
  const bool are_several = loras_.size() > 1;
  // DoRA does not scale the bias, so it is added last.
  const at::Tensor out = adapted(loras_[0]->forward(x, weight, are_several ? at::Tensor() : bias,
                                                    product_dtype_, is_training()),
                                 x, weight, 1);
  return are_several && bias.defined() ? out + bias : out;
}

at::Tensor Linear::multiply(const at::Tensor& x) const {
  if (four_bits_) return multiply_four_bits(x);
  if (quantizer_ && quantizer_->is_on()) return multiply_rounded(x);
  const at::Tensor weight = product_dtype_.of(options_.is_transposed ? weight_.t() : weight_);
  const at::Tensor bias = product_dtype_.of(bias_);
  const at::Tensor in = widened(product_dtype_.of(entered(hook_, x)), weight);
  if (!hook_ || !hook_->sums_outputs() || !bias.defined()) {
    return left(hook_, product_of(in, weight, bias));
  }
  return left(hook_, product_of(in, weight, {})) + bias;
}

TiedHead::TiedHead(LoraOptions options, int64_t in_features) {
  LoraParameters parameters = register_lora(*this, options, in_features);
  lora_ = std::make_unique<Lora>(std::move(options), std::move(parameters));
}

Embedding::Embedding(const EmbeddingOptions& options, at::ScalarType dtype)
    : options_(options), num_rows_(options.num_rows) {
  weight_ = register_parameter("weight", placeholder({options.num_rows, options.dim}, dtype));
}

void Embedding::keep_rows(int64_t first, int64_t count) {
  first_row_ = first;
  num_rows_ = count;
}

at::Tensor Embedding::look_up(const at::Tensor& ids) const {
  if (num_rows_ == options_.num_rows) {
    return kernels::embedding(weight_, ids, options_.padding_idx);
  }
  const int64_t end = first_row_ + num_rows_;
  const bool has_padding_row = options_.padding_idx >= first_row_ && options_.padding_idx < end;
  const at::Tensor is_elsewhere = ids.lt(first_row_).logical_or(ids.ge(end));
  const at::Tensor rows = (ids - first_row_).masked_fill(is_elsewhere, 0);
  const at::Tensor found = kernels::embedding(
      weight_, rows, has_padding_row ? options_.padding_idx - first_row_ : int64_t{-1});
  return found.masked_fill(is_elsewhere.unsqueeze(-1), 0);
}

at::Tensor Embedding::forward(const at::Tensor& ids) const {
  return unit_hook_({ids}, [this](const TensorList& in) {
    return TensorList{left(hook_, look_up(entered(hook_, in[0])))};
  })[0];
}

RmsNorm::RmsNorm(int64_t dim, const kernels::NormOptions& options, at::ScalarType dtype,
                 bool has_weight)
    : dim_(dim), options_(options) {
  if (has_weight) weight_ = register_parameter("weight", placeholder({dim}, dtype));
}

at::Tensor RmsNorm::factor(const at::Tensor& x) const {
  return weight_.defined() ? weight_ : at::ones({dim_}, x.options());
}

at::Tensor RmsNorm::forward(const at::Tensor& x) const {
  const at::Tensor input = entered(hook_, x);
  return left(hook_, kernels::rms_norm(input, factor(input), options_));
}

std::pair<at::Tensor, at::Tensor> RmsNorm::add(const at::Tensor& x,
                                               const at::Tensor& residual) const {
  return kernels::add_rms_norm(x, residual, factor(x), options_);
}

LayerNorm::LayerNorm(int64_t dim, const LayerNormOptions& options, at::ScalarType dtype)
    : dim_(dim), options_(options) {
  if (options.has_weight) weight_ = register_parameter("weight", placeholder({dim}, dtype));
  if (options.has_bias) bias_ = register_parameter("bias", placeholder({dim}, dtype));
}

/// What the normalised x is multiplied by.
at::Tensor LayerNorm::factor(const at::Tensor& x) const {
  if (!options_.has_weight) return at::ones({dim_}, x.options());
  return options_.adds_one ? weight_ + 1 : weight_;
}

at::Tensor LayerNorm::forward(const at::Tensor& x) const {
  const at::Tensor input = entered(hook_, x);
  return left(hook_, kernels::layer_norm(input, factor(input), bias_, options_.eps));
}

std::pair<at::Tensor, at::Tensor> LayerNorm::add(const at::Tensor& x,
                                                 const at::Tensor& residual) const {
  return kernels::add_layer_norm(x, residual, factor(x), bias_, options_.eps);
}

HeadsLayerNorm::HeadsLayerNorm(int64_t num_heads, int64_t dim, double eps, at::ScalarType dtype)
    : eps_(eps), weight_(register_parameter("weight", placeholder({num_heads, dim}, dtype))) {}

at::Tensor HeadsLayerNorm::forward(const at::Tensor& x) const {
  const at::ScalarType wide = tensor::wide_dtype(x.scalar_type());
  const at::Tensor normed =
      at::layer_norm(x.to(wide), {x.size(-1)}, std::nullopt, std::nullopt, eps_);
  return (normed * weight_.to(wide)).to(x.scalar_type());
}

}  // namespace automodel::nn
