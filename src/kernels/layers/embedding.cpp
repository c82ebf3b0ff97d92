#include "kernels/layers/embedding.h"

#include <ATen/ATen.h>
#include <ATen/Dispatch.h>
#include <ATen/Parallel.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <numeric>
#include <vector>

#include "core/error.h"
#include "kernels/base/bound_gradient.h"
#include "kernels/base/fused.h"

namespace automodel::kernels {

namespace {

using torch::autograd::AutogradContext;
using torch::autograd::tensor_list;

void check_ids(const at::Tensor& ids, int64_t vocab_size) {
  const int64_t* data = ids.data_ptr<int64_t>();
  for (int64_t i = 0; i < ids.numel(); ++i) {
    if (data[i] >= 0 && data[i] < vocab_size) continue;
    throw InputError(
        cat("token id ", data[i], " is outside the vocabulary of ", vocab_size, " tokens"));
  }
}

/// The positions of every id that occurs; ids ascending, and positions of an id ascending.
struct Occurrences {
  std::vector<int64_t> ids;
  std::vector<int64_t> begins;  ///< of every id's run in `places`; then the end of the last
  std::vector<int64_t> places;
};

Occurrences find_occurrences(const at::Tensor& ids, int64_t padding_idx) {
  const int64_t* data = ids.data_ptr<int64_t>();
  Occurrences found;
  found.places.resize(static_cast<size_t>(ids.numel()));
  std::iota(found.places.begin(), found.places.end(), 0);
  std::erase_if(found.places, [&](int64_t place) { return data[place] == padding_idx; });
  std::stable_sort(found.places.begin(), found.places.end(),
                   [&](int64_t a, int64_t b) { return data[a] < data[b]; });
  for (size_t i = 0; i < found.places.size(); ++i) {
    const int64_t id = data[found.places[i]];
    if (!found.ids.empty() && found.ids.back() == id) continue;
    found.ids.push_back(id);
    found.begins.push_back(static_cast<int64_t>(i));
  }
  found.begins.push_back(static_cast<int64_t>(found.places.size()));
  return found;
}

/// One row per id that occurs: the sum of its places' rows of `gradient` [tokens, D], float32.
at::Tensor sum_rows(const Occurrences& found, const at::Tensor& gradient) {
  const int64_t dim = gradient.size(1);
  const auto num_ids = static_cast<int64_t>(found.ids.size());
  at::Tensor sums = at::zeros({num_ids, dim}, gradient.options().dtype(at::kFloat));
  float* out = sums.data_ptr<float>();
  by_storage(gradient, [&](auto storage) {
    using T = decltype(storage);
    const T* in = numbers_of<T>(gradient);
    at::parallel_for(0, num_ids, 16, [&](int64_t first, int64_t last) {
      for (int64_t id = first; id < last; ++id) {
        for (int64_t i = found.begins[id]; i < found.begins[id + 1]; ++i) {
          cpu::loops().of<T>().add_row(in + found.places[i] * dim, out + id * dim, dim);
        }
      }
    });
  });
  return sums;
}

/// Adds a row of `sums`, float32, to the row of each id that occurs; `table` is contiguous.
void add_rows(const Occurrences& found, const at::Tensor& sums, const at::Tensor& table) {
  const int64_t dim = table.size(1);
  const float* in = sums.data_ptr<float>();
  AT_DISPATCH_FLOATING_TYPES_AND(at::kBFloat16, table.scalar_type(), "add_rows", [&] {
    scalar_t* const out = table.data_ptr<scalar_t>();
    at::parallel_for(0, sums.size(0), 16, [&](int64_t first, int64_t last) {
      for (int64_t i = first; i < last; ++i) {
        scalar_t* const row = out + found.ids[static_cast<size_t>(i)] * dim;
        for (int64_t j = 0; j < dim; ++j) row[j] = static_cast<scalar_t>(row[j] + in[i * dim + j]);
      }
    });
  });
}

struct Embedding : torch::autograd::Function<Embedding> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& weight,
                            const at::Tensor& ids, int64_t padding_idx) {
    const at::Tensor flat = ids.reshape({-1}).contiguous();
    check_ids(flat, weight.size(0));
    std::vector<int64_t> sizes = ids.sizes().vec();
    sizes.push_back(weight.size(1));
    context->save_for_backward({flat});
    context->saved_data["padding_idx"] = padding_idx;
    // Not a saved variable: only its shape, dtype and .grad are used, never its values.
    context->saved_data["weight"] = weight;
    return at::index_select(weight, 0, flat).view(sizes);
  }

  static tensor_list backward(AutogradContext* context, tensor_list gradients) {
    const at::Tensor ids = context->get_saved_variables()[0];
    const at::Tensor weight = context->saved_data["weight"].toTensor();
    const at::Tensor gradient = gradients[0].reshape({-1, weight.size(1)}).contiguous();
    const Occurrences found = find_occurrences(ids, context->saved_data["padding_idx"].toInt());
    const at::Tensor sums = sum_rows(found, gradient);
    const at::Tensor bound = bound_gradient(weight);
    if (bound.defined() && bound.is_contiguous()) {
      add_rows(found, sums, bound);
      return {added_gradient(weight), at::Tensor(), at::Tensor()};
    }
    const at::Tensor rows = sums.to(weight.scalar_type());
    const at::Tensor row_ids =
        at::from_blob(const_cast<int64_t*>(found.ids.data()), {rows.size(0)}, at::kLong).clone();
    const bool has_bound_gradient =
        weight.is_leaf() && weight.grad().defined() && !weight.grad().is_sparse();
    at::Tensor result;
    if (has_bound_gradient) {
      result = at::_sparse_coo_tensor_unsafe(row_ids.unsqueeze(0), rows, weight.sizes(),
                                             rows.options().layout(at::kSparse), true);
    } else {
      result = at::zeros(weight.sizes(), rows.options()).index_copy_(0, row_ids, rows);
    }
    return {result, at::Tensor(), at::Tensor()};
  }
};

}  // namespace

at::Tensor embedding(const at::Tensor& weight, const at::Tensor& ids, int64_t padding_idx) {
  const bool has_type = weight.scalar_type() == at::kFloat || weight.scalar_type() == at::kBFloat16;
  if (!weight.device().is_cpu() || !has_type || is_plain_path_asked()) {
    return at::embedding(weight, ids, padding_idx);
  }
  return Embedding::apply(weight, ids, padding_idx);
}

}  // namespace automodel::kernels
