#include "kernels/attention/visible_keys.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <array>
#include <set>

namespace automodel::kernels {

namespace {

/// Finds the run of one document's tokens, without the padding at its ends. False when there is
/// padding inside.
bool find_tokens(const bool* padding, int64_t begin, int64_t end, int64_t* run) {
  run[0] = begin;
  run[1] = end;
  if (padding == nullptr) return true;
  while (run[0] < end && padding[run[0]]) ++run[0];
  while (run[1] > run[0] && padding[run[1] - 1]) --run[1];
  return std::none_of(padding + run[0], padding + run[1],
                      [](bool is_padding) { return is_padding; });
}

/// Fills one sequence's runs; false when some document's keys are not a single run.
bool fill_runs(const bool* padding, const int64_t* ids, int64_t length, int64_t* out) {
  std::set<int64_t> seen;
  for (int64_t begin = 0, end = 0; begin < length; begin = end) {
    end = length;
    if (ids != nullptr) {
      end = std::find_if(ids + begin, ids + length, [&](int64_t id) { return id != ids[begin]; }) -
            ids;
      if (!seen.insert(ids[begin]).second) return false;
    }
    int64_t run[2];
    if (!find_tokens(padding, begin, end, run)) return false;
    for (int64_t query = begin; query < end; ++query) std::copy_n(run, 2, out + 2 * query);
  }
  return true;
}

std::optional<at::Tensor> runs_of(const at::Tensor& padding_mask, const at::Tensor& document_ids) {
  const at::Tensor padding =
      padding_mask.defined() ? padding_mask.cpu().contiguous() : at::Tensor();
  const at::Tensor ids =
      document_ids.defined() ? document_ids.to(at::kCPU, at::kLong).contiguous() : at::Tensor();
  const at::Tensor& shaped = padding.defined() ? padding : ids;
  const int64_t length = shaped.size(1);
  at::Tensor runs = at::empty({shaped.size(0), length, 2}, at::TensorOptions().dtype(at::kLong));
  for (int64_t row = 0; row < shaped.size(0); ++row) {
    const bool is_run =
        fill_runs(padding.defined() ? padding.data_ptr<bool>() + row * length : nullptr,
                  ids.defined() ? ids.data_ptr<int64_t>() + row * length : nullptr, length,
                  runs.data_ptr<int64_t>() + 2 * row * length);
    if (!is_run) return std::nullopt;
  }
  return runs;
}

/// The masks of a batch as they were when asked for.
class Masks {
 public:
  Masks() = default;
  Masks(const at::Tensor& padding, const at::Tensor& documents)
      : of_{padding, documents}, versions_{version_of(padding), version_of(documents)} {}

  bool operator==(const Masks& other) const {
    return versions_ == other.versions_ && of_[0].is_same(other.of_[0]) &&
           of_[1].is_same(other.of_[1]);
  }

 private:
  static int64_t version_of(const at::Tensor& mask) { return mask.defined() ? mask._version() : 0; }

  std::array<at::Tensor, 2> of_;
  std::array<int64_t, 2> versions_{};
};

}  // namespace

std::optional<at::Tensor> visible_keys(const at::Tensor& padding_mask,
                                       const at::Tensor& document_ids) {
  if (!padding_mask.defined() && !document_ids.defined()) return at::Tensor();
  // The layers of a model ask one after the other, and reading a device's masks waits for it.
  thread_local Masks last_masks;
  thread_local std::optional<at::Tensor> last_runs;
  const Masks masks(padding_mask, document_ids);
  if (masks != last_masks) {
    last_runs = runs_of(padding_mask, document_ids);
    last_masks = masks;
  }
  return last_runs;
}

/// `visible`, or the run of all tokens of x for each query: int64 [B, S, 2] on the CPU.
static at::Tensor runs_or_all(const at::Tensor& visible, const at::Tensor& x) {
  if (visible.defined()) return visible;
  const int64_t length = x.size(1);
  return at::tensor({int64_t{0}, length}, at::TensorOptions().dtype(at::kLong))
      .expand({x.size(0), length, 2});
}

at::Tensor chunks_of(const at::Tensor& visible, const at::Tensor& x, int64_t chunk) {
  const int64_t length = x.size(1);
  if (chunk == 0 || length <= chunk) return visible;
  const at::Tensor runs = runs_or_all(visible, x);
  const at::Tensor first = runs.select(-1, 0);
  // Padding before the first token sees nothing of its chunk, which is behind it.
  const at::Tensor distance = (at::arange(length, first.options()) - first).clamp_min(0);
  const at::Tensor begin = first + distance.div(chunk, "floor") * chunk;
  return at::stack({begin, at::minimum(begin + chunk, runs.select(-1, 1))}, -1);
}

at::Tensor windows_of(const at::Tensor& visible, const at::Tensor& x, int64_t window) {
  const int64_t length = x.size(1);
  if (window == 0 || length <= window) return visible;
  const at::Tensor runs = runs_or_all(visible, x);
  const at::Tensor end_of_run = runs.select(-1, 1);
  const at::Tensor query = at::arange(length, runs.options());
  // Padding far from every token sees nothing.
  const at::Tensor begin =
      at::minimum(at::maximum(query - window + 1, runs.select(-1, 0)), end_of_run);
  return at::stack({begin, at::maximum(at::minimum(query + window, end_of_run), begin)}, -1);
}

}  // namespace automodel::kernels
