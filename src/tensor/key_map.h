#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <vector>

namespace automodel::tensor {

/// Maps a tensor of a Hugging Face checkpoint, or a box of it, to the rows of the parameter that
/// holds it, beginning at row_begin. Several tensors that are multiplied together (q, k, v; gate,
/// up) are rows of one parameter. A row has the tensor's trailing dims, even if the parameter has
/// one dim more: one expert's matrix is a run of rows of [E, out, in].
struct ParameterPart {
  std::string name;       ///< name in the Hugging Face checkpoint
  std::string parameter;  ///< fqn of the module's parameter
  int64_t row_begin = 0;
  std::vector<int64_t> shape;  ///< of the Hugging Face tensor; empty: a number, of [1]
  /// The box of it that the parameter holds (a tensor-parallel piece); empty: all of it.
  std::vector<int64_t> box_offset = {};
  std::vector<int64_t> box_shape = {};
};

/// All parts of a model, in the order of its parameters. Each parameter is covered exactly once
/// (after an uneven split a parameter may have more rows than its part; these stay zero). A tied
/// tensor (lm_head.weight) does not appear.
using KeyMap = std::vector<ParameterPart>;

/// The part's elements in its (contiguous) parameter or gradient, in the part's shape; shares
/// memory. Only for parts without a box.
at::Tensor part_of(const at::Tensor& parameter, const ParameterPart& part);

}  // namespace automodel::tensor
