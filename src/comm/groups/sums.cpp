#include "comm/groups/sums.h"

#include <ATen/ops/tensor.h>

namespace automodel::comm {

std::vector<double> sum_over(const ProcessGroup& group, std::vector<double> values) {
  if (group.size() == 1) return values;
  at::Tensor tensor = at::tensor(values, at::TensorOptions().dtype(at::kDouble));
  group.all_reduce(tensor, ReduceOp::kSum);
  const double* data = tensor.const_data_ptr<double>();
  return {data, data + tensor.numel()};
}

std::vector<int64_t> max_over(const ProcessGroup& group, std::vector<int64_t> values) {
  if (group.size() == 1) return values;
  at::Tensor tensor = at::tensor(values, at::TensorOptions().dtype(at::kLong));
  group.all_reduce(tensor, ReduceOp::kMax);
  const int64_t* data = tensor.const_data_ptr<int64_t>();
  return {data, data + tensor.numel()};
}

double sum_over(const ProcessGroup& group, double value) {
  return sum_over(group, std::vector<double>{value})[0];
}

}  // namespace automodel::comm
