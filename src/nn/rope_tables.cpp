#include "nn/rope_tables.h"

#include <ATen/ATen.h>

namespace automodel::nn {

const kernels::RopeTable& RopeTables::table(int64_t length, at::Device device) {
  const int64_t length_class = rope_length_class(options_, length);
  const at::Tensor& known = table_.is_defined() ? table_.cos : table_.query_scale;
  const bool is_usable = known.defined() && length_class == length_class_ &&
                         known.size(0) >= length && known.device() == device;
  if (is_usable) return table_;
  const at::Tensor positions = at::arange(length, at::TensorOptions().dtype(at::kFloat));
  if (options_.rotary_dim > 0) {
    const RopeFrequencies frequencies = rope_frequencies(options_, length);
    const at::Tensor values = at::tensor(at::ArrayRef<float>(frequencies.values), at::kFloat);
    const at::Tensor angles = positions.unsqueeze(1) * values.unsqueeze(0);
    table_.cos = (angles.cos() * frequencies.attention_factor).to(device);
    table_.sin = (angles.sin() * frequencies.attention_factor).to(device);
  }
  if (options_.query_scaling_beta != 0) {
    const at::Tensor extents = ((positions + options_.query_scaling_first) /
                                static_cast<double>(options_.query_scaling_period))
                                   .floor();
    table_.query_scale = (extents.log1p() * options_.query_scaling_beta + 1.0).to(device);
  }
  length_class_ = length_class;
  return table_;
}

}  // namespace automodel::nn
