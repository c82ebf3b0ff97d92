#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "comm/groups/process_group.h"
#include "tensor/matrix_step.h"
#include "tensor/shard_spec.h"

namespace automodel::distributed {

/// Changes matrices of which the ranks of a group hold parts: as many at a time as there are ranks,
/// each of them whole on another rank, which gets its parts, computes, and hands parts of the
/// result to all who hold them. Equal parts that several ranks hold are sent by one of them.
class MatrixExchange {
 public:
  /// `parts`: this rank's, of tensors that no other axis of the mesh splits; a rank has at most one
  /// of each tensor, and those of all ranks cover it. `device` is where the group's tensors lie.
  /// Every rank of the group calls it.
  MatrixExchange(comm::ProcessGroup group, const std::vector<tensor::FlatSegment>& parts,
                 at::Device device);

  /// Every rank of the group calls it.
  void run(const tensor::MatrixStep& step) const;

 private:
  /// A rank's part of a matrix.
  struct Holder {
    int64_t begin = 0;
    int64_t end = 0;  ///< begin: it holds none
    bool sends = false;
  };
  struct Matrix {
    int64_t rows = 0;
    int64_t columns = 0;
    std::vector<Holder> holders;  ///< one a rank
    int64_t own_part = -1;        ///< the number of this rank's part
  };

  void choose_senders(Matrix& matrix, int owner) const;
  void run_batch(size_t first, const tensor::MatrixStep& step) const;

  comm::ProcessGroup group_;
  at::Device device_;
  std::vector<Matrix> matrices_;  // the largest first; rank r owns the r-th of each batch
};

/// Makes exchanges over a group; see MatrixExchange.
tensor::MatrixStepperMaker matrix_stepper_maker(const comm::ProcessGroup& group, at::Device device);

}  // namespace automodel::distributed
