#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace automodel::tensor {

/// Ties a tensor of a Hugging Face checkpoint to the parameter that holds it: the parameter's rows
/// [row_begin, row_begin + shape[0]) along dim 0. Several tensors that are multiplied together (q,
/// k, v; gate, up) are the rows of one parameter.
struct ParameterPart {
  std::string name;       ///< name in the Hugging Face checkpoint
  std::string parameter;  ///< fqn of the module's parameter
  int64_t row_begin = 0;
  std::vector<int64_t> shape;  ///< of the Hugging Face tensor
};

/// All parts of a model, in the order of its parameters; each parameter is covered exactly once.
/// A tied tensor (lm_head.weight) does not appear.
using KeyMap = std::vector<ParameterPart>;

}  // namespace automodel::tensor
