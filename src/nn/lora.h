#pragma once

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "kernels/lora_linear.h"
#include "nn/product_dtype.h"

namespace automodel::nn {

/// The key of a forward's dropout masks; one per model, set before each forward.
struct DropoutKey {
  uint64_t seed = 0;
  int64_t step = 0;
  int64_t micro_batch = 0;
};

enum class DropoutPosition {
  kPre,   ///< of an adapter's input
  kPost,  ///< of an adapter's output
};

/// The adapter of one matrix of a layer.
struct LoraPart {
  std::string site;            ///< name in the keys of its dropout masks
  kernels::OutputRange range;  ///< of the layer's output features
};

/// Low-rank adapters of a layer.
struct LoraOptions {
  int64_t rank = 8;
  double scale = 1;
  double dropout = 0;
  DropoutPosition dropout_position = DropoutPosition::kPost;
  bool has_magnitude = false;  ///< DoRA
  at::ScalarType dtype = at::kFloat;
  std::vector<LoraPart> parts;  ///< one per matrix, in the order of the output features
  std::shared_ptr<const DropoutKey> dropout_key;  ///< may be null without dropout
};

/// The parameters of a layer's adapters: lora_A [parts * rank, in], lora_B [rows of all parts,
/// rank] and with DoRA lora_magnitude [rows of all parts]. LoRA, Hu et al. 2021; DoRA, Liu et al.
/// 2024, with the norm held constant in backward as there.
struct LoraParameters {
  at::Tensor a;
  at::Tensor b;
  at::Tensor magnitude;  ///< undefined without DoRA
};

/// What the names of the parameters of a layer's adapters end in, after those that it has already:
/// "", "_2", "_3".
std::string lora_suffix(size_t num_before);

/// Registers the parameters, without memory, of adapters of a layer with this number of input
/// features; their names end in `suffix`.
LoraParameters register_lora(torch::nn::Module& layer, const LoraOptions& options,
                             int64_t in_features, const std::string& suffix = "");

/// Computes a frozen layer with adapters: for part p, x W_p^T + scale * (x A_p^T) B_p^T; with DoRA
/// multiplied by magnitude / norm of the rows of W_p + scale * B_p A_p.
class Lora final {
 public:
  Lora(LoraOptions options, LoraParameters parameters)
      : options_(std::move(options)), parameters_(std::move(parameters)) {}

  /// x [..., in] and weight [out, in] of one dtype, bias [out] or undefined, all already cast to
  /// `dtype`.
  at::Tensor forward(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& bias,
                     const ProductDtype& dtype, bool is_training) const;

  /// forward() given the frozen layer's result `base` [..., out] without bias; only DoRA reads the
  /// weight.
  at::Tensor add_to(const at::Tensor& base, const at::Tensor& x, const at::Tensor& weight,
                    const ProductDtype& dtype, bool is_training) const;

  /// Operands whose single product equals forward() without bias and dropout: x [T, in] becomes [T,
  /// in + r] and weight [out, in] becomes [out, in + r]. For a layer of one part whose product is
  /// computed elsewhere.
  std::pair<at::Tensor, at::Tensor> operands(const at::Tensor& x, const at::Tensor& weight,
                                             const ProductDtype& dtype) const;

  const LoraOptions& options() const { return options_; }
  /// Sets the output rows of each part when the layer holds only some of the output features.
  void keep_outputs(const std::vector<kernels::OutputRange>& ranges);

 private:
  at::Tensor mask(const at::Tensor& x, const LoraPart& part) const;
  at::Tensor update(const at::Tensor& x, size_t part, int64_t row, const ProductDtype& dtype,
                    bool is_training) const;
  at::Tensor row_factors(const at::Tensor& weight, size_t part, int64_t row) const;

  LoraOptions options_;
  LoraParameters parameters_;
};

}  // namespace automodel::nn
