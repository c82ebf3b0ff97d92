#pragma once

#include <torch/nn/module.h>

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "kernels/layers/activation.h"
#include "kernels/layers/norm.h"
#include "kernels/products/four_bit.h"
#include "nn/fake_quantizer.h"
#include "nn/lora.h"
#include "nn/product_dtype.h"
#include "nn/tensor_parallel.h"
#include "nn/unit_hook.h"

namespace automodel::nn {

struct LinearOptions {
  int64_t in_features = 0;
  int64_t out_features = 0;
  bool has_bias = false;
  bool is_transposed = false;  ///< the weight is stored [in, out] (GPT-2's Conv1D)
  /// Sizes of the output features of several stacked matrices (q, k and v), which are split one by
  /// one; empty: one matrix.
  std::vector<int64_t> groups = {};
  /// False: adapters leave it out. What it computes only chooses (sparse attention's indexer), or
  /// its product is not one of the weight as it lies (a head whose rows are normalized).
  bool takes_adapters = true;
};

/// A frozen weight in 4 bits, like bitsandbytes' Linear4bit.
struct FourBitOptions {
  kernels::FourBitFormat format;
  at::ScalarType compute_dtype = at::kBFloat16;  ///< dtype of products; results are cast to x's
  std::vector<int64_t> rows;  ///< of each matrix; matrices are quantized separately
};

/// y = x W^T + b. Parameters: weight [out, in] (or [in, out]), bias [out], built without memory. An
/// output head may be a unit of its own; since its parameters are also used outside forward(), that
/// use must go through the hook.
class Linear final : public torch::nn::Module,
                     public SplittableLayer,
                     public HookedModule,
                     public MultiplyingModule {
 public:
  Linear(const LinearOptions& options, at::ScalarType dtype);

  at::Tensor forward(const at::Tensor& x) const;
  const at::Tensor& weight() const { return weight_; }
  const at::Tensor& bias() const { return bias_; }           ///< undefined without one
  const LinearOptions& options() const { return options_; }  ///< of the unsplit layer

  /// Adds parameters lora_A, lora_B and with DoRA lora_magnitude (lora.h) after the layer's own,
  /// which must be frozen. Call it once for all parts with the same rank and scale, before memory
  /// is allocated; names of the second call's parameters end in _2.
  void add_lora(LoraOptions options);
  /// What add_lora() added, one after another; of different output features.
  const std::vector<std::unique_ptr<Lora>>& loras() const { return loras_; }

  /// Makes the frozen parameter `weight` the bytes of 4-bit matrices (kernels/products/four_bit.h);
  /// weight() then cannot be multiplied. Call it once, before memory is allocated. Only for weights
  /// [out, in] of unsplit layers without DoRA.
  void hold_in_four_bits(FourBitOptions options);
  const FourBitOptions* four_bits() const { return four_bits_.get(); }  ///< null: floats

  /// Makes the layer round its operands while the quantizer is on, if it fits. Only for unsplit
  /// layers of floats without adapters.
  void set_fake_quantizer(std::shared_ptr<const FakeQuantizer> quantizer);

  void set_layer_hook(std::shared_ptr<LayerHook> hook) override { hook_ = std::move(hook); }
  UnitHook& unit_hook() override { return unit_hook_; }
  ProductDtype& product_dtype() override { return product_dtype_; }
  const ProductDtype& product_dtype() const { return product_dtype_; }

 private:
  at::Tensor multiply(const at::Tensor& x) const;
  at::Tensor multiply_rounded(const at::Tensor& x) const;
  at::Tensor multiply_four_bits(const at::Tensor& x) const;
  at::Tensor product_of(const at::Tensor& x, const at::Tensor& weight,
                        const at::Tensor& bias) const;
  /// `base` with the adapters from the `first` on; `weight` is read by DoRA only.
  at::Tensor adapted(at::Tensor base, const at::Tensor& x, const at::Tensor& weight,
                     size_t first) const;

  LinearOptions options_;
  at::Tensor weight_;
  at::Tensor bias_;
  std::vector<std::unique_ptr<Lora>> loras_;
  std::unique_ptr<FourBitOptions> four_bits_;
  std::shared_ptr<const FakeQuantizer> quantizer_;  // null: none, or it does not fit
  std::shared_ptr<LayerHook> hook_;
  UnitHook unit_hook_;
  ProductDtype product_dtype_;
};

/// The adapter of an output head whose weight is the embedding's: lora_A, lora_B and with DoRA
/// lora_magnitude.
class TiedHead final : public torch::nn::Module {
 public:
  TiedHead(LoraOptions options, int64_t in_features);

  const Lora& lora() const { return *lora_; }
  Lora& lora() { return *lora_; }

 private:
  std::unique_ptr<Lora> lora_;
};

struct EmbeddingOptions {
  int64_t num_rows = 0;
  int64_t dim = 0;
  int64_t padding_idx = -1;  ///< a row whose lookup gives no gradient; -1: none
};

/// Rows of a table: weight [rows, dim].
class Embedding final : public torch::nn::Module, public SplittableLayer, public HookedModule {
 public:
  Embedding(const EmbeddingOptions& options, at::ScalarType dtype);

  /// ids int64 [...] to [..., dim]. Ids must be inside the whole table; rows that are not on this
  /// rank are zero before the hook's leave().
  at::Tensor forward(const at::Tensor& ids) const;
  const at::Tensor& weight() const { return weight_; }
  const EmbeddingOptions& options() const { return options_; }  ///< of the whole table

  /// Makes the weight hold rows [first, first + count) of the table; rows after them are never
  /// looked up.
  void keep_rows(int64_t first, int64_t count);
  void set_layer_hook(std::shared_ptr<LayerHook> hook) override { hook_ = std::move(hook); }
  UnitHook& unit_hook() override { return unit_hook_; }

 private:
  at::Tensor look_up(const at::Tensor& ids) const;

  EmbeddingOptions options_;
  int64_t first_row_ = 0;
  int64_t num_rows_;
  at::Tensor weight_;
  std::shared_ptr<LayerHook> hook_;
  UnitHook unit_hook_;
};

/// A norm over the last dim. Only forward() calls the hook: norms inside a block work on whatever
/// part of the sequence they get.
class Norm : public torch::nn::Module, public SplittableLayer {
 public:
  virtual at::Tensor forward(const at::Tensor& x) const = 0;
  /// {x + residual, norm(x + residual)}, in one pass if a kernel for it exists.
  virtual std::pair<at::Tensor, at::Tensor> add(const at::Tensor& x,
                                                const at::Tensor& residual) const = 0;
};

/// RMSNorm: weight [dim], or ones in its place where has_weight is false.
class RmsNorm final : public Norm {
 public:
  RmsNorm(int64_t dim, const kernels::NormOptions& options, at::ScalarType dtype,
          bool has_weight = true);

  at::Tensor forward(const at::Tensor& x) const override;
  std::pair<at::Tensor, at::Tensor> add(const at::Tensor& x,
                                        const at::Tensor& residual) const override;
  const at::Tensor& weight() const { return weight_; }  ///< undefined where it has none
  void set_layer_hook(std::shared_ptr<LayerHook> hook) override { hook_ = std::move(hook); }

 private:
  at::Tensor factor(const at::Tensor& x) const;

  int64_t dim_;
  kernels::NormOptions options_;
  at::Tensor weight_;
  std::shared_ptr<LayerHook> hook_;
};

struct LayerNormOptions {
  double eps = 1e-5;
  bool has_weight = true;
  bool has_bias = true;
  bool adds_one = false;  ///< multiplies by 1 + weight, a sum in the weight's dtype (Nemotron)
};

/// LayerNorm: weight [dim] and bias [dim], as far as it has them.
class LayerNorm final : public Norm {
 public:
  LayerNorm(int64_t dim, const LayerNormOptions& options, at::ScalarType dtype);

  at::Tensor forward(const at::Tensor& x) const override;
  std::pair<at::Tensor, at::Tensor> add(const at::Tensor& x,
                                        const at::Tensor& residual) const override;
  void set_layer_hook(std::shared_ptr<LayerHook> hook) override { hook_ = std::move(hook); }

 private:
  at::Tensor factor(const at::Tensor& x) const;

  int64_t dim_;
  LayerNormOptions options_;
  at::Tensor weight_;
  at::Tensor bias_;
  std::shared_ptr<LayerHook> hook_;
};

/// LayerNorm over each head's dims with weights of its own: weight [heads, dim], no bias.
class HeadsLayerNorm final : public torch::nn::Module {
 public:
  HeadsLayerNorm(int64_t num_heads, int64_t dim, double eps, at::ScalarType dtype);

  /// x [..., heads, dim]; the result has its dtype.
  at::Tensor forward(const at::Tensor& x) const;

 private:
  double eps_;
  at::Tensor weight_;
};

}  // namespace automodel::nn
