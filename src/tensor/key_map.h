#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <vector>

namespace automodel::tensor {

/// Ties a tensor of a Hugging Face checkpoint to the parameter that holds it, or that holds a box
/// of it: the parameter's rows from row_begin on, as many as the tensor (the box) has. Several
/// tensors that are multiplied together (q, k, v; gate, up) are the rows of one parameter. A row
/// has the tensor's trailing dims, also where the parameter has one dim more: a matrix of each
/// expert is so many rows of [E, out, in].
struct ParameterPart {
  std::string name;       ///< name in the Hugging Face checkpoint
  std::string parameter;  ///< fqn of the module's parameter
  int64_t row_begin = 0;
  std::vector<int64_t> shape;  ///< of the Hugging Face tensor
  /// The box of it that the parameter holds (a tensor-parallel piece); empty: all of it.
  std::vector<int64_t> box_offset = {};
  std::vector<int64_t> box_shape = {};
};

/// All parts of a model, in the order of its parameters; each parameter is covered exactly once
/// (a piece of an uneven split may be longer than its part, by rows that stay zero). A tied tensor
/// (lm_head.weight) does not appear.
using KeyMap = std::vector<ParameterPart>;

/// The part's elements of its (contiguous) parameter or gradient, in the part's shape; shares
/// memory. For parts without a box.
at::Tensor part_of(const at::Tensor& parameter, const ParameterPart& part);

}  // namespace automodel::tensor
