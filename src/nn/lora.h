#pragma once

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "kernels/products/lora_linear.h"
#include "nn/product_dtype.h"
#include "tensor/batch.h"

namespace automodel::nn {

/// The key of a forward's dropout masks; one per model, set before each forward. A token's part of
/// a mask depends on its sequence and position alone, wherever it is computed.
struct DropoutKey {
  uint64_t seed = 0;
  int64_t step = 0;
  int64_t micro_batch = 0;
  int64_t num_sequences = 1;      ///< in the micro-batch
  tensor::SequencePart sequence;  ///< which tokens the batch holds; length 0: whole sequences
  /// The run of these tokens in layers that see only one of several (sequence parallelism).
  int64_t sequence_part = 0;
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

/// What is left of an adapter's output features in a layer that holds only some of them.
struct HeldOutputs {
  kernels::OutputRange range;                   ///< of the layer's outputs that are here
  std::vector<kernels::OutputRange> in_matrix;  ///< runs of the matrix's outputs, in that order
};

/// The sum, over all ranks that hold a part of a layer's input features, of numbers that need no
/// gradient.
using SumOverParts = std::function<at::Tensor(const at::Tensor&)>;

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
/// multiplied by magnitude / norm of the rows of W_p + scale * B_p A_p. Where DoRA's input is
/// dropped, x W_p^T itself is not, as in PEFT: x W_p^T + (factor - 1) * (d W_p^T) + factor * scale
/// * (d A_p^T) B_p^T of the dropped input d.
class Lora final {
 public:
  Lora(LoraOptions options, LoraParameters parameters);

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
  /// Makes the layer hold only some of its output features; one for each part.
  void keep_outputs(const std::vector<HeldOutputs>& outputs);
  /// Makes the layer hold these of its input features, and its results summands of the whole's.
  void keep_inputs(const kernels::OutputRange& inputs, SumOverParts sum);

 private:
  /// The features that are here, of all those that a mask has numbers for.
  struct MaskColumns {
    int64_t num_columns = 0;
    std::vector<kernels::OutputRange> held;
  };

  at::Tensor dropped(const at::Tensor& x, const LoraPart& part, const MaskColumns& columns) const;
  at::Tensor update(const at::Tensor& in, size_t part, int64_t row,
                    const ProductDtype& dtype) const;
  at::Tensor adapted_part(const at::Tensor& base, const at::Tensor& x, const at::Tensor& weight,
                          size_t part, int64_t row, const ProductDtype& dtype,
                          bool is_training) const;
  at::Tensor row_factors(const at::Tensor& weight, size_t part, int64_t row) const;

  LoraOptions options_;
  LoraParameters parameters_;
  MaskColumns inputs_;
  std::vector<MaskColumns> outputs_;  // of each part
  SumOverParts sum_over_parts_;       // null: all input features are here
};

}  // namespace automodel::nn
