#include "kernels/attention/compressed_windows.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <limits>
#include <vector>

#include "core/error.h"
#include "tensor/dtype.h"

namespace automodel::kernels {

namespace {

/// The first token of each token's document.
struct Documents {
  at::Tensor runs;  // visible_keys [B, S, 2] on the CPU, or undefined
  int64_t length;

  int64_t begin(int64_t b, int64_t token) const {
    return runs.defined() ? runs.data_ptr<int64_t>()[(b * length + token) * 2] : 0;
  }
};

/// The windows of one sequence: the first token of each, and what each query sees.
struct SequenceWindows {
  std::vector<int64_t> first_tokens;
  std::vector<bool> follows;
  std::vector<int64_t> visible;  // two numbers a query
};

SequenceWindows windows_of(const Documents& documents, int64_t b, int64_t rate) {
  SequenceWindows out;
  out.visible.assign(static_cast<size_t>(2 * documents.length), 0);
  int64_t first_window = 0;
  int64_t begin = -1;
  for (int64_t token = 0; token < documents.length; ++token) {
    if (documents.begin(b, token) != begin) {
      begin = documents.begin(b, token);
      first_window = static_cast<int64_t>(out.first_tokens.size());
    }
    const int64_t num_read = token - begin + 1;  // none of the padding before
    if (num_read > 0 && num_read % rate == 0) {
      out.first_tokens.push_back(token - rate + 1);
      out.follows.push_back(num_read > rate);
    }
    out.visible[static_cast<size_t>(2 * token)] = first_window;
    out.visible[static_cast<size_t>(2 * token + 1)] = static_cast<int64_t>(out.first_tokens.size());
  }
  return out;
}

/// Rows [B, W, rate, D] of x [B, S, D].
at::Tensor rows_of_windows(const at::Tensor& x, const at::Tensor& tokens) {
  const at::Tensor sequence = at::arange(x.size(0), tokens.options()).view({-1, 1, 1}) * x.size(1);
  const at::Tensor rows = (tokens + sequence).flatten();
  return x.reshape({-1, x.size(-1)})
      .index_select(0, rows)
      .view({tokens.size(0), tokens.size(1), tokens.size(2), -1});
}

/// The first half of the dims of the window before, then the second half of its own:
/// [B, W, rate, 2 D] to [B, W, 2 rate, D]. `fill` is in the place of a window that is not there.
at::Tensor overlapped(const at::Tensor& x, const at::Tensor& follows, double fill) {
  const int64_t dim = x.size(-1) / 2;
  const at::Tensor before =
      at::constant_pad_nd(x.narrow(-1, 0, dim).narrow(1, 0, x.size(1) - 1), {0, 0, 0, 0, 1, 0});
  const at::Tensor is_absent = follows.logical_not().view({x.size(0), -1, 1, 1});
  return at::cat({before.masked_fill(is_absent, fill), x.narrow(-1, dim, dim)}, 2);
}

}  // namespace

CompressedWindows compressed_windows(const at::Tensor& input_ids, const WindowOptions& options) {
  const at::NoGradGuard no_grad;
  const int64_t batch = input_ids.size(0), length = input_ids.size(1), rate = options.rate;
  const at::Tensor bounds =
      options.visible_keys.defined() ? options.visible_keys.cpu().contiguous() : at::Tensor();
  std::vector<SequenceWindows> sequences;
  size_t most = 0;
  for (int64_t b = 0; b < batch; ++b) {
    sequences.push_back(windows_of({bounds, length}, b, rate));
    most = std::max(most, sequences.back().first_tokens.size());
  }
  const auto longs = at::TensorOptions().dtype(at::kLong);
  const auto num_windows = static_cast<int64_t>(most);
  const at::Tensor first = at::zeros({batch, num_windows}, longs);
  const at::Tensor visible = at::empty({batch, length, 2}, longs);
  CompressedWindows out;
  out.follows = at::zeros({batch, num_windows}, longs.dtype(at::kBool));
  for (int64_t b = 0; b < batch; ++b) {
    const SequenceWindows& one = sequences[static_cast<size_t>(b)];
    std::copy(one.first_tokens.begin(), one.first_tokens.end(),
              first.data_ptr<int64_t>() + b * num_windows);
    std::copy(one.follows.begin(), one.follows.end(),
              out.follows.data_ptr<bool>() + b * num_windows);
    std::copy(one.visible.begin(), one.visible.end(), visible.data_ptr<int64_t>() + b * 2 * length);
  }
  const at::Device device = input_ids.device();
  const at::Tensor first_tokens = first.to(device);
  out.tokens = first_tokens.unsqueeze(-1) + at::arange(rate, first_tokens.options());
  out.follows = out.follows.to(device);
  out.visible_keys = visible;
  if (options.position_ids.defined()) {
    out.position_ids = options.position_ids.expand({batch, length}).gather(1, first_tokens);
  } else {
    out.position_ids = first_tokens;
  }
  return out;
}

at::Tensor pooled_windows(const at::Tensor& values, const at::Tensor& gate, const at::Tensor& bias,
                          const CompressedWindows& windows, int64_t dim) {
  const bool is_overlapping = values.size(-1) == 2 * dim;
  AM_CHECK(is_overlapping || values.size(-1) == dim, values.size(-1), " dims for ", dim);
  if (windows.num_windows() == 0) return values.new_zeros({values.size(0), 0, dim});
  const at::ScalarType wide = tensor::wide_dtype(values.scalar_type());
  at::Tensor value = rows_of_windows(values, windows.tokens).to(wide);
  at::Tensor score = rows_of_windows(gate, windows.tokens).to(wide) + bias.to(wide);
  if (is_overlapping) {
    value = overlapped(value, windows.follows, 0);
    score = overlapped(score, windows.follows, -std::numeric_limits<double>::infinity());
  }
  return (value * score.softmax(2)).sum(2).to(values.scalar_type());
}

at::Tensor sliding_runs(const at::Tensor& input_ids, const at::Tensor& visible_keys,
                        int64_t window) {
  const at::NoGradGuard no_grad;
  const int64_t batch = input_ids.size(0), length = input_ids.size(1);
  const at::Tensor queries = at::arange(length, at::TensorOptions().dtype(at::kLong));
  at::Tensor begin = (queries - window + 1).clamp_min(0).expand({batch, length});
  at::Tensor end = (queries + 1).expand({batch, length});
  if (visible_keys.defined()) {
    begin = at::maximum(begin, visible_keys.select(-1, 0).cpu());
    end = at::minimum(end, visible_keys.select(-1, 1).cpu());
  }
  return at::stack({begin, end}, -1);
}

}  // namespace automodel::kernels
