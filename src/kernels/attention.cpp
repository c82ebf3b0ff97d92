#include "kernels/attention.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <ATen/record_function.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/cpu/loops.h"
#include "kernels/fused.h"
#include "kernels/result_keeper.h"

// LibTorch exports its BLAS with the Fortran interface (column-major).
extern "C" void sgemm_(const char* trans_a, const char* trans_b, const int* m, const int* n,
                       const int* k, const float* alpha, const float* a, const int* lda,
                       const float* b, const int* ldb, const float* beta, float* c, const int* ldc);

namespace automodel::kernels {

namespace {

using torch::autograd::AutogradContext;
using torch::autograd::tensor_list;

constexpr int64_t kBlockQueries = 64;

/// A row-major matrix inside a larger one.
struct Matrix {
  float* data;
  int64_t stride;  ///< elements between rows
};

/// c [m, n] = alpha * op(a) op(b) + beta * c, all row-major: the transposes of a column-major call.
void multiply(const Matrix& a, bool transposes_a, const Matrix& b, bool transposes_b,
              const Matrix& c, int64_t m, int64_t n, int64_t k, float alpha, float beta) {
  const int rows = static_cast<int>(m), columns = static_cast<int>(n), inner = static_cast<int>(k);
  const int lda = static_cast<int>(a.stride), ldb = static_cast<int>(b.stride),
            ldc = static_cast<int>(c.stride);
  sgemm_(transposes_b ? "T" : "N", transposes_a ? "T" : "N", &columns, &rows, &inner, &alpha,
         b.data, &ldb, a.data, &lda, &beta, c.data, &ldc);
}

/// Shapes of one call and where heads lie: q, out [B, S, N, H]; k, v [B, S, K, H].
struct Shape {
  int64_t batch, length, num_heads, num_kv_heads, dim, window;
  float scale, cap;
  const int64_t* valid;  ///< [B]: keys from here on are padding; null: none are

  Shape(const at::Tensor& q, const at::Tensor& k, const at::Tensor& valid, int64_t window,
        double scale, double cap)
      : batch(q.size(0)),
        length(q.size(1)),
        num_heads(q.size(2)),
        num_kv_heads(k.size(2)),
        dim(q.size(3)),
        window(window > 0 ? window : q.size(1)),
        scale(static_cast<float>(scale)),
        cap(static_cast<float>(cap)),
        valid(valid.defined() ? valid.data_ptr<int64_t>() : nullptr) {}

  int64_t group() const { return num_heads / num_kv_heads; }
  int64_t first_key(int64_t query) const { return std::max<int64_t>(0, query - window + 1); }
  /// One past the last key that a query sees; may be before first_key() when all are padding.
  int64_t end_key(int64_t b, int64_t query) const {
    return valid != nullptr ? std::min(query + 1, valid[b]) : query + 1;
  }
  Matrix query_rows(const at::Tensor& x, int64_t b, int64_t head, int64_t row) const {
    return {x.data_ptr<float>() + ((b * length + row) * num_heads + head) * dim, num_heads * dim};
  }
  Matrix key_rows(const at::Tensor& x, int64_t b, int64_t head, int64_t row) const {
    return {x.data_ptr<float>() + ((b * length + row) * num_kv_heads + head) * dim,
            num_kv_heads * dim};
  }
};

/// One block of queries of one head and the keys it can see.
struct Block {
  int64_t first_query, num_queries, first_key, num_keys;

  Block(const Shape& shape, int64_t first)
      : first_query(first),
        num_queries(std::min(kBlockQueries, shape.length - first)),
        first_key(shape.first_key(first)),
        num_keys(first + num_queries - first_key) {}
};

void forward_block(const Shape& shape, int64_t b, int64_t head, const Block& block,
                   const tensor_list& qkv, const at::Tensor& out, float* lse, float* scratch) {
  const int64_t kv_head = head / shape.group();
  const Matrix scores{scratch, block.num_keys};
  multiply(shape.query_rows(qkv[0], b, head, block.first_query), false,
           shape.key_rows(qkv[1], b, kv_head, block.first_key), true, scores, block.num_queries,
           block.num_keys, shape.dim, shape.scale, 0.0f);
  for (int64_t row = 0; row < block.num_queries; ++row) {
    const int64_t query = block.first_query + row;
    lse[query] = cpu::loops().softmax_row(
        scratch + row * block.num_keys, shape.first_key(query) - block.first_key,
        shape.end_key(b, query) - block.first_key, block.num_keys, shape.cap);
  }
  multiply(scores, false, shape.key_rows(qkv[2], b, kv_head, block.first_key), false,
           shape.query_rows(out, b, head, block.first_query), block.num_queries, shape.dim,
           block.num_keys, 1.0f, 0.0f);
}

/// What backward reads and writes.
struct BackwardTensors {
  at::Tensor q, k, v, out, d_out, dq, dk, dv;
  const float* lse;
};

void backward_block(const Shape& shape, int64_t b, int64_t head, const Block& block,
                    const BackwardTensors& x, float* scratch) {
  const int64_t kv_head = head / shape.group();
  const int64_t keys = block.num_keys;
  const Matrix probabilities{scratch, keys};
  const Matrix grads{scratch + kBlockQueries * shape.length, keys};
  const Matrix q = shape.query_rows(x.q, b, head, block.first_query);
  const Matrix d_out = shape.query_rows(x.d_out, b, head, block.first_query);
  const Matrix out = shape.query_rows(x.out, b, head, block.first_query);
  const Matrix k = shape.key_rows(x.k, b, kv_head, block.first_key);
  multiply(q, false, k, true, probabilities, block.num_queries, keys, shape.dim, shape.scale, 0.0f);
  multiply(d_out, false, shape.key_rows(x.v, b, kv_head, block.first_key), true, grads,
           block.num_queries, keys, shape.dim, 1.0f, 0.0f);
  const float* lse = x.lse + (b * shape.num_heads + head) * shape.length;
  for (int64_t row = 0; row < block.num_queries; ++row) {
    const int64_t query = block.first_query + row;
    float delta = 0;
    for (int64_t i = 0; i < shape.dim; ++i) {
      delta += d_out.data[row * d_out.stride + i] * out.data[row * out.stride + i];
    }
    cpu::loops().softmax_backward_row(probabilities.data + row * keys, grads.data + row * keys,
                                      shape.first_key(query) - block.first_key,
                                      shape.end_key(b, query) - block.first_key, keys, lse[query],
                                      delta, shape.scale, shape.cap);
  }
  multiply(grads, false, k, false, shape.query_rows(x.dq, b, head, block.first_query),
           block.num_queries, shape.dim, keys, 1.0f, 0.0f);
  multiply(grads, true, q, false, shape.key_rows(x.dk, b, kv_head, block.first_key), keys,
           shape.dim, block.num_queries, 1.0f, 1.0f);
  multiply(probabilities, true, d_out, false, shape.key_rows(x.dv, b, kv_head, block.first_key),
           keys, shape.dim, block.num_queries, 1.0f, 1.0f);
}

/// {out, lse} of contiguous q, k and v.
tensor_list attend(const Shape& shape, const tensor_list& qkv) {
  RECORD_FUNCTION("automodel::causal_attention", c10::ArrayRef<const c10::IValue>{});
  at::Tensor out = at::empty_like(qkv[0]);
  at::Tensor lse = at::empty({shape.batch, shape.num_heads, shape.length}, out.options());
  float* lse_data = lse.data_ptr<float>();
  at::parallel_for(0, shape.batch * shape.num_heads, 1, [&](int64_t begin, int64_t end) {
    std::vector<float> scratch(static_cast<size_t>(kBlockQueries * shape.length));
    for (int64_t item = begin; item < end; ++item) {
      for (int64_t first = 0; first < shape.length; first += kBlockQueries) {
        forward_block(shape, item / shape.num_heads, item % shape.num_heads, Block(shape, first),
                      qkv, out, lse_data + item * shape.length, scratch.data());
      }
    }
  });
  return {out, lse};
}

/// {out, lse}, which are not computed when a keeper has them.
struct CausalAttention : torch::autograd::Function<CausalAttention> {
  static tensor_list forward(AutogradContext* context, const at::Tensor& q_in,
                             const at::Tensor& k_in, const at::Tensor& v_in,
                             const std::optional<at::Tensor>& valid,
                             const AttentionOptions* options, double scale) {
    const tensor_list qkv = {q_in.contiguous(), k_in.contiguous(), v_in.contiguous()};
    const at::Tensor ends = valid.value_or(at::Tensor());
    const Shape shape(qkv[0], qkv[1], ends, options->window, scale, options->softcap);
    at::Tensor out, lse;
    if (const auto kept = take_result(ResultKind::kAttention)) {
      out = (*kept)[0].detach();
      lse = (*kept)[1].detach();
    } else {
      const tensor_list result = attend(shape, qkv);
      offer_result(ResultKind::kAttention, result);
      out = result[0];
      lse = result[1];
    }
    context->save_for_backward({qkv[0], qkv[1], qkv[2], out, lse, ends});
    context->saved_data["window"] = options->window;
    context->saved_data["scale"] = scale;
    context->saved_data["cap"] = options->softcap;
    context->mark_non_differentiable({lse});
    return {out, lse};
  }

  static tensor_list backward(AutogradContext* context, tensor_list gradients) {
    const auto saved = context->get_saved_variables();
    BackwardTensors x{saved[0],
                      saved[1],
                      saved[2],
                      saved[3],
                      gradients[0].contiguous(),
                      at::empty_like(saved[0]),
                      at::zeros_like(saved[1]),
                      at::zeros_like(saved[2]),
                      saved[4].data_ptr<float>()};
    const Shape shape(x.q, x.k, saved[5], context->saved_data["window"].toInt(),
                      context->saved_data["scale"].toDouble(),
                      context->saved_data["cap"].toDouble());
    // A task is a kv head with all its query heads: they add to the same dk and dv.
    at::parallel_for(0, shape.batch * shape.num_kv_heads, 1, [&](int64_t begin, int64_t end) {
      std::vector<float> scratch(static_cast<size_t>(2 * kBlockQueries * shape.length));
      for (int64_t item = begin; item < end; ++item) {
        const int64_t b = item / shape.num_kv_heads;
        const int64_t first_head = item % shape.num_kv_heads * shape.group();
        for (int64_t head = first_head; head < first_head + shape.group(); ++head) {
          for (int64_t first = 0; first < shape.length; first += kBlockQueries) {
            backward_block(shape, b, head, Block(shape, first), x, scratch.data());
          }
        }
      }
    });
    return {x.dq, x.dk, x.dv, at::Tensor(), at::Tensor(), at::Tensor()};
  }
};

/// Tokens before the padding of every sequence [B] when it is one run at the end; else nullopt.
std::optional<at::Tensor> tokens_before_padding(const at::Tensor& padding_mask) {
  const at::Tensor mask = padding_mask.contiguous();
  at::Tensor counts = at::empty({mask.size(0)}, at::TensorOptions().dtype(at::kLong));
  const bool* data = mask.data_ptr<bool>();
  int64_t* out = counts.data_ptr<int64_t>();
  for (int64_t row = 0; row < mask.size(0); ++row) {
    const bool* first = data + row * mask.size(1);
    const bool* last = first + mask.size(1);
    if (!std::is_sorted(first, last)) return std::nullopt;
    out[row] = std::find(first, last, true) - first;
  }
  return counts;
}

}  // namespace

AttentionResult causal_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                 const AttentionOptions& options) {
  const bool is_fused = is_fusable({q, k, v}) && q.numel() > 0 && options.dropout == 0 &&
                        !options.document_ids.defined();
  std::optional<at::Tensor> valid;
  if (is_fused && options.padding_mask.defined()) {
    valid = tokens_before_padding(options.padding_mask);
  }
  if (!is_fused || (options.padding_mask.defined() && !valid)) {
    return causal_attention_reference(q, k, v, options);
  }
  const double scale =
      options.scale != 0 ? options.scale : 1.0 / std::sqrt(static_cast<double>(q.size(3)));
  tensor_list result = CausalAttention::apply(q, k, v, valid, &options, scale);
  return {result[0], result[1]};
}

}  // namespace automodel::kernels
