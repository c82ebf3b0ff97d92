#include "kernels/products/expert_rows.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <algorithm>
#include <type_traits>

#include "core/error.h"
#include "kernels/base/fused.h"

namespace automodel::kernels {

ExpertRows sort_by_expert(const at::Tensor& expert_ids, int64_t num_experts) {
  const at::Tensor ids = expert_ids.cpu().contiguous();
  const int64_t* id = ids.data_ptr<int64_t>();
  const int64_t num_choices = ids.numel();
  const int64_t k = ids.size(1);
  ExpertRows rows;
  rows.begins.assign(static_cast<size_t>(num_experts) + 1, 0);
  for (int64_t i = 0; i < num_choices; ++i) {
    AM_CHECK(id[i] < num_experts, "expert ", id[i], " of ", num_experts);
    if (id[i] >= 0) ++rows.begins[static_cast<size_t>(id[i]) + 1];
  }
  for (size_t e = 1; e < rows.begins.size(); ++e) rows.begins[e] += rows.begins[e - 1];
  std::vector<int64_t> next(rows.begins.begin(), rows.begins.end() - 1);
  rows.token = at::empty({rows.num_rows()}, ids.options());
  rows.choice = at::empty({rows.num_rows()}, ids.options());
  rows.row = at::empty_like(ids);
  auto* token = rows.token.data_ptr<int64_t>();
  auto* choice = rows.choice.data_ptr<int64_t>();
  auto* row = rows.row.data_ptr<int64_t>();
  for (int64_t i = 0; i < num_choices; ++i) {
    row[i] = -1;
    if (id[i] < 0) continue;
    const int64_t at = next[static_cast<size_t>(id[i])]++;
    token[at] = i / k;
    choice[at] = i;
    row[i] = at;
  }
  rows.token = rows.token.to(expert_ids.device());
  rows.choice = rows.choice.to(expert_ids.device());
  return rows;
}

ExpertRows sort_on_device(const at::Tensor& expert_ids, int64_t num_experts) {
  const at::Tensor ids = expert_ids.reshape({-1});
  const at::Tensor expert = at::where(ids.lt(0), num_experts, ids);
  ExpertRows rows;
  rows.choice = at::argsort(expert, /*stable=*/true, 0, /*descending=*/false);
  rows.token = rows.choice.div(expert_ids.size(1), "floor");
  rows.expert = expert.index_select(0, rows.choice);
  const at::Tensor places = at::arange(ids.size(0), ids.options());
  rows.row = at::empty_like(ids).scatter_(0, rows.choice, places).view(expert_ids.sizes());
  rows.row = at::where(expert_ids.lt(0), -1, rows.row);
  const at::Tensor counts =
      at::zeros({num_experts + 1}, ids.options()).scatter_add_(0, expert, at::ones_like(ids));
  rows.ends = counts.narrow(0, 0, num_experts).cumsum(0).to(at::kInt);
  return rows;
}

at::Tensor sum_rows(const at::Tensor& values, const at::Tensor& rows) {
  const int64_t num_tokens = rows.size(0);
  const int64_t k = rows.size(1);
  const int64_t dim = values.size(1);
  if (values.size(0) == 0) return at::zeros({num_tokens, dim}, values.options());
  if (!is_fusable({values})) {
    const at::Tensor on_device = rows.to(values.device());
    const at::Tensor chosen =
        values.index_select(0, on_device.reshape({-1}).clamp(0)).view({num_tokens, k, dim});
    return chosen.masked_fill_(on_device.lt(0).unsqueeze(2), 0.0).sum(1);
  }
  at::Tensor sums = at::empty({num_tokens, dim}, values.options());
  const auto* row = rows.const_data_ptr<int64_t>();
  by_storage(values, [&](auto storage) {
    using T = decltype(storage);
    const T* in = numbers_of<T>(values);
    T* out = numbers_of<T>(sums);
    at::parallel_for(0, num_tokens, 64, [&](int64_t begin, int64_t end) {
      std::vector<float> wide(std::is_same_v<T, float> ? 0 : static_cast<size_t>(dim));
      for (int64_t t = begin; t < end; ++t) {
        float* sum = wide.data();
        if constexpr (std::is_same_v<T, float>) sum = out + t * dim;
        std::fill(sum, sum + dim, 0.0F);
        for (int64_t j = 0; j < k; ++j) {
          const int64_t at = row[t * k + j];
          if (at >= 0) cpu::loops().of<T>().add_row(in + at * dim, sum, dim);
        }
        if constexpr (!std::is_same_v<T, float>) cpu::loops().round(sum, out + t * dim, dim);
      }
    });
  });
  return sums;
}

at::Tensor sum_choices(const at::Tensor& values, const ExpertRows& rows) {
  return sum_rows(values, rows.row);
}

}  // namespace automodel::kernels
