#include "kernels/attention/key_choice.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <ATen/record_function.h>

#include <algorithm>
#include <limits>

#include "kernels/attention/attention_block.h"
#include "kernels/attention/visible_keys.h"
#include "tensor/dtype.h"

// B sequences of S queries and T keys, N heads of the indexer, D dims of a head.

namespace automodel::kernels {

namespace {

constexpr double kUnseen = -std::numeric_limits<double>::infinity();

/// Whether some query may see more than `num_chosen` keys.
bool leaves_out_keys(int64_t num_keys, const KeyChoiceOptions& options) {
  if (num_keys <= options.num_chosen) return false;
  const auto runs = options.visible_keys.defined()
                        ? options.visible_keys
                        : visible_keys(options.padding_mask, options.document_ids);
  if (!runs || !runs->defined()) return true;
  return (runs->select(-1, 1) - runs->select(-1, 0)).max().item<int64_t>() > options.num_chosen;
}

/// [B or 1, count, T]: the keys that queries from `first` on may see.
at::Tensor visible_to(int64_t first, int64_t count, const at::Tensor& q, int64_t num_keys,
                      const KeyChoiceOptions& options) {
  if (options.visible_keys.defined()) {
    const at::Tensor runs = options.visible_keys.narrow(1, first, count).to(q.device());
    const at::Tensor keys = at::arange(num_keys, runs.options());
    return keys.ge(runs.narrow(-1, 0, 1)).logical_and(keys.lt(runs.narrow(-1, 1, 1)));
  }
  const at::Tensor positions = at::arange(q.size(1), q.options().dtype(at::kLong));
  at::Tensor mask =
      positions.unsqueeze(0).le(positions.narrow(0, first, count).unsqueeze(1)).unsqueeze(0);
  if (options.padding_mask.defined()) {
    mask = mask.logical_and(options.padding_mask.logical_not().unsqueeze(1));
  }
  if (options.document_ids.defined()) {
    const at::Tensor& ids = options.document_ids;
    mask = mask.logical_and(ids.narrow(1, first, count).unsqueeze(2).eq(ids.unsqueeze(1)));
  }
  return mask;
}

}  // namespace

at::Tensor choose_keys(const IndexerScores& scores, const KeyChoiceOptions& options) {
  const at::NoGradGuard no_grad;
  const at::Tensor& q = scores.q;
  const int64_t batch = q.size(0), length = q.size(1), num_heads = q.size(2);
  const int64_t num_keys = scores.k.size(1);
  if (!leaves_out_keys(num_keys, options)) return {};
  RECORD_FUNCTION("automodel::choose_keys", c10::ArrayRef<const c10::IValue>{});
  const at::ScalarType wide = tensor::wide_dtype(q.scalar_type());
  const at::Tensor keys = scores.k.to(wide).transpose(1, 2);
  const int64_t at_once =
      num_queries_at_once(length, batch * num_heads * num_keys, options.max_scores);
  at::Tensor chosen = at::empty({batch, length, options.num_chosen}, q.options().dtype(at::kInt));
  for (int64_t first = 0; first < length; first += at_once) {
    const int64_t count = std::min(at_once, length - first);
    const at::Tensor queries = q.narrow(1, first, count).to(wide).flatten(1, 2);  // [B, count N, D]
    at::Tensor of_heads = at::matmul(queries, keys).mul_(scores.scale).relu_();
    of_heads = of_heads.view({batch, count, num_heads, num_keys});
    const at::Tensor weights = scores.weights.narrow(1, first, count).to(wide).unsqueeze(2);
    at::Tensor sums = at::matmul(weights, of_heads).squeeze(2);
    sums.masked_fill_(visible_to(first, count, q, num_keys, options).logical_not(), kUnseen);
    chosen.narrow(1, first, count).copy_(std::get<1>(sums.topk(options.num_chosen, -1)));
  }
  return chosen;
}

}  // namespace automodel::kernels
