#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

namespace automodel::kernels {

/// T tokens choose k of E experts each: which row stands for which choice; rows lie expert after
/// expert. Where only a device knows whose rows are how many (`ends`), choices of no expert have
/// rows too, behind those of all experts, which nobody computes.
struct ExpertRows {
  at::Tensor token;   ///< [A] int64 on x's device: the token of each row
  at::Tensor choice;  ///< [A] int64 on x's device: t * k + j
  at::Tensor row;     ///< [T, k] int64, on the CPU or with `ends`: of each choice; -1: none
  std::vector<int64_t> begins;  ///< [E + 1]: first row of each expert; empty with `ends`
  at::Tensor ends;              ///< int32 [E] on x's device: one past an expert's last row
  at::Tensor expert;            ///< int64 [A] on x's device, with `ends`: of each row; E: none

  bool is_on_device() const { return ends.defined(); }
  int64_t num_rows() const { return is_on_device() ? token.size(0) : begins.back(); }
  int64_t num_experts() const {
    return is_on_device() ? ends.size(0) : static_cast<int64_t>(begins.size()) - 1;
  }
};

/// The rows of expert_ids [T, k] int64, -1 for none. Tokens of one expert stay in order. On an
/// accelerator the ids are read back.
ExpertRows sort_by_expert(const at::Tensor& expert_ids, int64_t num_experts);

/// sort_by_expert() by the device, which nothing waits for.
ExpertRows sort_on_device(const at::Tensor& expert_ids, int64_t num_experts);

/// Row t of the result [T, D] is the sum of the rows of values [A, D] that row [T, k] int64 names,
/// -1 for none, in their order and rounded once. `row` is on the CPU or on the values' device.
at::Tensor sum_rows(const at::Tensor& values, const at::Tensor& row);

/// sum_rows() of each token's choices.
at::Tensor sum_choices(const at::Tensor& values, const ExpertRows& rows);

}  // namespace automodel::kernels
