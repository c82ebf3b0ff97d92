#include "kernels/attention/attention_block.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "core/error.h"
#include "kernels/attention/flash_attention.h"
#include "kernels/base/fused.h"
#include "kernels/base/pointwise.h"
#include "kernels/cpu/loops.h"
#include "kernels/device/device_kernels.h"
#include "kernels/products/product.h"

namespace automodel::kernels {

namespace {

constexpr int64_t kBlockQueries = 64;
constexpr float kInfinity = std::numeric_limits<float>::infinity();

using Matrix = cpu::ProductOperand;

Matrix turned(Matrix matrix) {
  matrix.is_transposed = true;
  return matrix;
}

/// The output of a product: rows of some columns of a larger matrix.
struct Target {
  void* data;
  int64_t stride;  ///< elements between rows
  int64_t num_rows, num_columns;
  bool adds = false;
  bool is_bfloat16 = false;
};

/// target = alpha a b (+ target).
void multiply(const Matrix& a, const Matrix& b, int64_t depth, const Target& target,
              float alpha = 1) {
  multiply_part({a, b, target.data, target.stride, depth, 0, target.num_rows, 0, target.num_columns,
                 alpha, target.adds, target.is_bfloat16});
}

/// The address of row `row` of one head of x [B, S, heads, dim].
void* head_of(const at::Tensor& x, int64_t b, int64_t head, int64_t row) {
  const int64_t element = b * x.stride(0) + row * x.stride(1) + head * x.stride(2);
  return static_cast<char*>(x.data_ptr()) + element * static_cast<int64_t>(x.itemsize());
}

Matrix rows_of(const at::Tensor& x, int64_t b, int64_t head, int64_t row) {
  return {.data = head_of(x, b, head, row), .stride = x.stride(1), .is_bfloat16 = is_bfloat16(x)};
}

Target target_of(const at::Tensor& x, int64_t b, int64_t head, int64_t row, int64_t num_rows) {
  return {head_of(x, b, head, row), x.stride(1), num_rows, x.size(3), false, is_bfloat16(x)};
}

/// A block's shapes, and the keys that a query sees, counted from the block's first key.
struct Rectangle {
  int64_t batch, num_queries, num_keys, num_heads, num_kv_heads, dim, value_dim, window, offset,
      first_key;
  float scale, cap;
  at::Tensor visible;
  at::Tensor distance_bias;
  AttentionDropout dropout;
  cpu::DropoutStream dropout_stream;

  Rectangle(const AttentionBlock& block, const Qkv& qkv)
      : batch(qkv.q.size(0)),
        num_queries(qkv.q.size(1)),
        num_keys(qkv.k.size(1)),
        num_heads(qkv.q.size(2)),
        num_kv_heads(qkv.k.size(2)),
        dim(qkv.q.size(3)),
        value_dim(qkv.v.size(3)),
        window(block.window > 0 ? block.window : std::numeric_limits<int64_t>::max() / 2),
        offset(block.first_query - block.first_key),
        first_key(block.first_key),
        scale(static_cast<float>(block.scale)),
        cap(static_cast<float>(block.softcap)),
        visible(block.visible_keys),
        distance_bias(block.distance_bias),
        dropout(block.dropout),
        dropout_stream(block.dropout.mask.stream()) {}

  int64_t group() const { return num_heads / num_kv_heads; }
  /// Columns of distance_bias.
  int64_t num_distances() const { return num_queries + num_keys - 1; }
  /// The column of distance_bias that a query and a key have, counted from the block's first ones.
  int64_t distance(int64_t query, int64_t key) const { return num_queries - 1 + key - query; }
  const int64_t* run_of(int64_t b, int64_t query) const {
    return visible.data_ptr<int64_t>() + b * visible.stride(0) + query * visible.stride(1);
  }
  int64_t begin_key(int64_t b, int64_t query) const {
    int64_t begin = query + offset - window + 1;
    if (visible.defined()) begin = std::max(begin, run_of(b, query)[0] - first_key);
    return std::max<int64_t>(0, begin);
  }
  /// One past the last key that a query sees; may be before begin_key().
  int64_t end_key(int64_t b, int64_t query) const {
    int64_t end = query + offset + 1;
    if (visible.defined()) end = std::min(end, run_of(b, query)[1] - first_key);
    return std::min(end, num_keys);
  }
};

/// Some queries of one head, with the run of keys that covers all that they see.
struct Tile {
  int64_t b, head, kv_head, first_query, num_queries, first_key, num_keys;

  Tile(const Rectangle& shape, int64_t b, int64_t head, int64_t first)
      : b(b),
        head(head),
        kv_head(head / shape.group()),
        first_query(first),
        num_queries(std::min(kBlockQueries, shape.num_queries - first)),
        first_key(shape.num_keys) {
    int64_t end = 0;
    for (int64_t query = first; query < first + num_queries; ++query) {
      first_key = std::min(first_key, shape.begin_key(b, query));
      end = std::max(end, shape.end_key(b, query));
    }
    num_keys = end - first_key;
  }

  bool is_blind() const { return num_keys <= 0; }
};

/// Applies the dropout mask to a row of a tile's probabilities or their gradients.
void drop(const Rectangle& shape, const Tile& tile, int64_t row, float* numbers) {
  if (!shape.dropout.mask.drops()) return;
  const int64_t query = tile.first_query + row;
  const int64_t begin = shape.begin_key(tile.b, query);
  const int64_t end = shape.end_key(tile.b, query);
  if (begin >= end) return;
  const uint64_t first = shape.dropout.first_of(tile.b, tile.head, query) +
                         static_cast<uint64_t>(shape.first_key + begin);
  float* seen = numbers + begin - tile.first_key;
  cpu::loops().float32.drop(shape.dropout_stream, first, seen, seen, end - begin);
}

/// Adds the bias of each query's and key's distance to a tile's scores.
void add_distance_bias(const Rectangle& shape, const Tile& tile, float* scores) {
  if (!shape.distance_bias.defined()) return;
  const float* bias = shape.distance_bias.data_ptr<float>() + tile.head * shape.num_distances() +
                      shape.distance(tile.first_query, tile.first_key);
  for (int64_t row = 0; row < tile.num_queries; ++row) {
    float* const row_scores = scores + row * tile.num_keys;
    for (int64_t i = 0; i < tile.num_keys; ++i) row_scores[i] += bias[i - row];
  }
}

/// Adds a tile's gradients of products of queries and keys, `scale` times those of their scores, to
/// the gradients of the biases, which are of the scores.
void add_bias_gradients(const Rectangle& shape, const Tile& tile, const float* gradients,
                        const at::Tensor& bias_gradients) {
  if (!shape.distance_bias.defined()) return;
  float* const to = bias_gradients.data_ptr<float>() +
                    (tile.b * shape.num_heads + tile.head) * shape.num_distances() +
                    shape.distance(tile.first_query, tile.first_key);
  const float factor = 1 / shape.scale;
  for (int64_t row = 0; row < tile.num_queries; ++row) {
    const float* const of_row = gradients + row * tile.num_keys;
    for (int64_t i = 0; i < tile.num_keys; ++i) to[i - row] += of_row[i] * factor;
  }
}

void clear_rows(const Rectangle& shape, const Tile& tile, const AttentionResult& result,
                float* lse) {
  for (int64_t row = 0; row < tile.num_queries; ++row) {
    std::memset(head_of(result.out, tile.b, tile.head, tile.first_query + row), 0,
                static_cast<size_t>(shape.value_dim) * result.out.itemsize());
    lse[row] = -kInfinity;
  }
}

/// Merges a row's earlier result with its new probabilities, weighted by their shares of the sum.
void merge_row(const Rectangle& shape, float new_lse, float* lse, float* out, float* probabilities,
               int64_t num_keys) {
  if (new_lse == -kInfinity) return;
  const float largest = std::max(*lse, new_lse);
  const float sum = std::exp(*lse - largest) + std::exp(new_lse - largest);
  const float merged = largest + std::log(sum);
  const float old_share = std::exp(*lse - merged);
  const float new_share = std::exp(new_lse - merged);
  for (int64_t i = 0; i < shape.value_dim; ++i) out[i] *= old_share;
  for (int64_t i = 0; i < num_keys; ++i) probabilities[i] *= new_share;
  *lse = merged;
}

void forward_tile(const Rectangle& shape, const Tile& tile, bool adds, const Qkv& qkv,
                  const AttentionResult& result, float* scratch) {
  float* lse = result.lse.data_ptr<float>() + tile.b * result.lse.stride(0) +
               tile.head * result.lse.stride(1) + tile.first_query;
  if (tile.is_blind()) {
    if (!adds) clear_rows(shape, tile, result, lse);
    return;
  }
  Target out = target_of(result.out, tile.b, tile.head, tile.first_query, tile.num_queries);
  out.adds = adds;
  multiply(rows_of(qkv.q, tile.b, tile.head, tile.first_query),
           turned(rows_of(qkv.k, tile.b, tile.kv_head, tile.first_key)), shape.dim,
           {scratch, tile.num_keys, tile.num_queries, tile.num_keys}, shape.scale);
  add_distance_bias(shape, tile, scratch);
  for (int64_t row = 0; row < tile.num_queries; ++row) {
    const int64_t query = tile.first_query + row;
    float* row_scores = scratch + row * tile.num_keys;
    const float row_lse = cpu::loops().softmax_row(
        row_scores, shape.begin_key(tile.b, query) - tile.first_key,
        shape.end_key(tile.b, query) - tile.first_key, tile.num_keys, shape.cap);
    drop(shape, tile, row, row_scores);
    if (adds) {
      merge_row(shape, row_lse, lse + row, static_cast<float*>(out.data) + row * out.stride,
                row_scores, tile.num_keys);
    } else {
      lse[row] = row_lse;
    }
  }
  multiply({scratch, tile.num_keys}, rows_of(qkv.v, tile.b, tile.kv_head, tile.first_key),
           tile.num_keys, out);
}

/// The tensors that backward reads and writes.
struct BackwardTensors {
  const Qkv& qkv;
  const AttentionResult& result;
  const at::Tensor& d_out;
  const Qkv& gradients;
  const at::Tensor& bias_gradients;
};

void backward_tile(const Rectangle& shape, const Tile& tile, const BackwardTensors& x,
                   float* scratch) {
  if (tile.is_blind()) return;
  const int64_t keys = tile.num_keys;
  float* p = scratch;
  float* grads = scratch + kBlockQueries * shape.num_keys;
  const Matrix q = rows_of(x.qkv.q, tile.b, tile.head, tile.first_query);
  const Matrix d_out = rows_of(x.d_out, tile.b, tile.head, tile.first_query);
  const Matrix out = rows_of(x.result.out, tile.b, tile.head, tile.first_query);
  const Matrix k = rows_of(x.qkv.k, tile.b, tile.kv_head, tile.first_key);
  multiply(q, turned(k), shape.dim, {p, keys, tile.num_queries, keys}, shape.scale);
  add_distance_bias(shape, tile, p);
  multiply(d_out, turned(rows_of(x.qkv.v, tile.b, tile.kv_head, tile.first_key)), shape.value_dim,
           {grads, keys, tile.num_queries, keys});
  const float* lse = x.result.lse.data_ptr<float>() + tile.b * x.result.lse.stride(0) +
                     tile.head * x.result.lse.stride(1) + tile.first_query;
  for (int64_t row = 0; row < tile.num_queries; ++row) {
    const int64_t query = tile.first_query + row;
    const int64_t begin = shape.begin_key(tile.b, query) - tile.first_key;
    const int64_t end = shape.end_key(tile.b, query) - tile.first_key;
    float* row_p = p + row * keys;
    float* row_grads = grads + row * keys;
    drop(shape, tile, row, row_grads);
    // The product of d_out and out. Rounding in `out` would spoil the following differences, so for
    // a rounded one it is computed from the row's keys, which are all that its queries see.
    const float delta =
        out.is_bfloat16
            ? cpu::loops().expected_row(row_p, row_grads, begin, end, lse[row], shape.cap)
            : cpu::loops().float32.dot(d_out.row<float>(row), out.row<float>(row), shape.value_dim);
    cpu::loops().softmax_backward_row(row_p, row_grads, begin, end, keys, lse[row], delta,
                                      shape.scale, shape.cap, out.is_bfloat16);
    drop(shape, tile, row, row_p);
  }
  add_bias_gradients(shape, tile, grads, x.bias_gradients);
  const auto add = [&](const Matrix& a, const Matrix& b, int64_t depth, Target to) {
    to.adds = true;
    multiply(a, b, depth, to);
  };
  const Matrix d_scores{grads, keys}, probabilities{p, keys};
  add(d_scores, k, keys,
      target_of(x.gradients.q, tile.b, tile.head, tile.first_query, tile.num_queries));
  add(turned(d_scores), q, tile.num_queries,
      target_of(x.gradients.k, tile.b, tile.kv_head, tile.first_key, keys));
  add(turned(probabilities), d_out, tile.num_queries,
      target_of(x.gradients.v, tile.b, tile.kv_head, tile.first_key, keys));
}

/// Keys and values per query head, for the plain path: [B, N, T, H].
at::Tensor by_query_head(const at::Tensor& x, int64_t num_heads, at::ScalarType dtype) {
  return x.to(dtype).transpose(1, 2).repeat_interleave(num_heads / x.size(2), 1);
}

/// The inverse, [B, T, K, H]; heads that share keys are summed.
at::Tensor by_kv_head(const at::Tensor& x, int64_t num_kv_heads) {
  const at::Tensor grouped =
      x.view({x.size(0), num_kv_heads, x.size(1) / num_kv_heads, x.size(2), x.size(3)});
  return grouped.sum(2).transpose(1, 2);
}

/// [B or 1, 1, Q, T]: what a query sees of `num_keys` keys.
at::Tensor visible_pairs(const AttentionBlock& block, const at::Tensor& q, int64_t num_keys) {
  const at::TensorOptions options = q.options().dtype(at::kLong);
  const at::Tensor queries = at::arange(q.size(1), options) + block.first_query;
  const at::Tensor keys = (at::arange(num_keys, options) + block.first_key).unsqueeze(0);
  const at::Tensor distance = queries.unsqueeze(1) - keys;
  at::Tensor mask = distance.ge(0);
  if (block.window > 0) mask = mask.logical_and(distance.lt(block.window));
  mask = mask.unsqueeze(0);
  if (block.visible_keys.defined()) {
    const at::Tensor runs = block.visible_keys.to(q.device());
    mask = mask.logical_and(keys.unsqueeze(0).ge(runs.narrow(-1, 0, 1)));
    mask = mask.logical_and(keys.unsqueeze(0).lt(runs.narrow(-1, 1, 1)));
  }
  if (block.chosen_keys.defined()) {
    // A query with few visible keys has chosen some that are after the block's last key.
    const at::Tensor chosen = block.chosen_keys.to(at::kLong) - block.first_key;
    const at::Tensor is_here = chosen.ge(0).logical_and(chosen.lt(num_keys));
    at::Tensor is_chosen = at::zeros({q.size(0), q.size(1), num_keys + 1}, mask.options());
    is_chosen.scatter_(-1, at::where(is_here, chosen, num_keys), true);
    mask = mask.logical_and(is_chosen.narrow(-1, 0, num_keys));
  }
  return mask.unsqueeze(1);
}

/// Some queries against the first keys: a part of a block that ATen's operations compute at once.
struct PlainPiece {
  AttentionBlock block;  ///< of these queries
  int64_t first_query, num_queries, num_keys;

  at::Tensor queries_of(const at::Tensor& x) const { return x.narrow(1, first_query, num_queries); }
  /// The piece's queries of a log-sum-exp [B, N, Q].
  at::Tensor rows_of(const at::Tensor& x) const { return x.narrow(2, first_query, num_queries); }
};

/// Divides a block into pieces of so many queries that their scores are few enough. A piece leaves
/// out the keys after its last query.
std::vector<PlainPiece> plain_pieces(const AttentionBlock& block, const Qkv& qkv) {
  const int64_t num_queries = qkv.q.size(1), num_keys = qkv.k.size(1);
  const int64_t at_once =
      num_queries_at_once(num_queries, qkv.q.size(0) * qkv.q.size(2) * num_keys, block.max_scores);
  std::vector<PlainPiece> pieces;
  for (int64_t first = 0; first < num_queries; first += at_once) {
    PlainPiece piece{block, first, std::min(at_once, num_queries - first), num_keys};
    piece.block.first_query += first;
    if (block.visible_keys.defined()) {
      piece.block.visible_keys = piece.queries_of(block.visible_keys);
    }
    if (block.chosen_keys.defined()) {
      piece.block.chosen_keys = piece.queries_of(block.chosen_keys);
    }
    if (at_once < num_queries) {
      const int64_t end = piece.block.first_query + piece.num_queries - block.first_key;
      piece.num_keys = std::clamp<int64_t>(end, 1, num_keys);
    }
    pieces.push_back(std::move(piece));
  }
  return pieces;
}

/// The columns of distance_bias that a piece's queries and keys have, int64 [Q T].
at::Tensor distances_of(const PlainPiece& piece, const at::Tensor& like, int64_t num_all_queries) {
  const at::TensorOptions options = like.options().dtype(at::kLong);
  const at::Tensor queries = at::arange(piece.num_queries, options) + piece.first_query;
  const at::Tensor keys = at::arange(piece.num_keys, options) + (num_all_queries - 1);
  return (keys.unsqueeze(0) - queries.unsqueeze(1)).flatten();
}

/// Scores [B, N, Q, T] of visible keys, -inf elsewhere; sets `slope`, if not null, to the cap's.
/// `keys` are by_query_head().
at::Tensor plain_scores(const PlainPiece& piece, const at::Tensor& q, const at::Tensor& keys,
                        at::Tensor* slope) {
  const AttentionBlock& block = piece.block;
  const at::Tensor own = piece.queries_of(q);
  at::Tensor scores = at::matmul(own.to(keys.scalar_type()).transpose(1, 2),
                                 keys.narrow(2, 0, piece.num_keys).transpose(-1, -2))
                          .mul_(block.scale);
  if (block.softcap > 0) {
    scores.div_(block.softcap).tanh_();
    if (slope != nullptr) *slope = 1 - scores * scores;
    scores.mul_(block.softcap);
  }
  if (block.distance_bias.defined()) {
    const at::Tensor bias = block.distance_bias.index_select(1, distances_of(piece, q, q.size(1)));
    scores.add_(bias.view({1, bias.size(0), piece.num_queries, piece.num_keys}));
  }
  return scores.masked_fill_(visible_pairs(block, own, piece.num_keys).logical_not(), -kInfinity);
}

/// exp(scores - lse), 0 for invisible keys. Overwrites `scores`.
at::Tensor to_probabilities(at::Tensor scores, const at::Tensor& lse) {
  const at::Tensor is_hidden = scores.eq(-kInfinity);
  return scores.sub_(lse.unsqueeze(-1)).exp_().masked_fill_(is_hidden, 0.0);
}

/// Applies the dropout mask to a piece's probabilities or their gradients [B, N, Q, T].
at::Tensor dropped(const PlainPiece& piece, at::Tensor numbers) {
  const AttentionDropout& dropout = piece.block.dropout;
  if (!dropout.mask.drops()) return numbers;
  const device::DeviceKernels* const kernels = device::kernels_for({numbers});
  AM_CHECK(kernels != nullptr && numbers.scalar_type() == at::kFloat && numbers.is_contiguous());
  const auto length = static_cast<uint64_t>(dropout.length);
  for (int64_t b = 0; b < numbers.size(0); ++b) {
    auto* const data = numbers.select(0, b).data_ptr<float>();
    const uint64_t first =
        dropout.first_of(b, 0, piece.first_query) + static_cast<uint64_t>(piece.block.first_key);
    kernels->float32.drop(dropout.mask.stream(),
                          {.first = first,
                           .rows = numbers.size(1) * numbers.size(2),
                           .width = numbers.size(3),
                           .inner = numbers.size(2),
                           .outer_stride = length * length,
                           .inner_stride = length},
                          data, data);
  }
  return numbers;
}

/// Writes a block's result, or adds it to that of other blocks: the softmax over the keys of all.
void merge(bool adds, const at::Tensor& out, const at::Tensor& lse, at::Tensor all_out,
           at::Tensor all_lse) {
  if (!adds) {
    all_out.copy_(out);
    all_lse.copy_(lse);
    return;
  }
  const at::Tensor merged = at::logaddexp(all_lse, lse);
  // Rows that have seen nothing have weight zero.
  const auto share = [&](const at::Tensor& part) {
    const at::Tensor weight = at::exp(part - merged).masked_fill(part.eq(-kInfinity), 0.0);
    return weight.transpose(1, 2).unsqueeze(-1);
  };
  all_out.copy_(out * share(lse) + all_out * share(all_lse));
  all_lse.copy_(merged);
}

void attend_plain(const AttentionBlock& block, const Qkv& qkv, AttentionResult& result) {
  const at::ScalarType dtype = result.lse.scalar_type();
  const at::Tensor keys = by_query_head(qkv.k, qkv.q.size(2), dtype);
  const at::Tensor values = by_query_head(qkv.v, qkv.q.size(2), dtype);
  for (const PlainPiece& piece : plain_pieces(block, qkv)) {
    at::Tensor all_out = piece.queries_of(result.out);
    at::Tensor all_lse = piece.rows_of(result.lse);
    const at::Tensor scores = plain_scores(piece, qkv.q, keys, nullptr);
    const at::Tensor lse = scores.logsumexp(-1);
    const at::Tensor out = at::matmul(dropped(piece, to_probabilities(scores, lse)),
                                      values.narrow(2, 0, piece.num_keys))
                               .transpose(1, 2);
    merge(block.adds, out, lse, all_out, all_lse);
  }
}

void attend_plain_backward(const AttentionBlock& block, const Qkv& qkv,
                           const AttentionResult& result, const at::Tensor& d_out,
                           const Qkv& gradients, const at::Tensor& bias_gradients) {
  const at::ScalarType dtype = result.lse.scalar_type();
  const int64_t num_heads = qkv.q.size(2), num_kv_heads = qkv.k.size(2);
  const at::Tensor keys = by_query_head(qkv.k, num_heads, dtype);
  const at::Tensor values = by_query_head(qkv.v, num_heads, dtype);
  for (const PlainPiece& piece : plain_pieces(block, qkv)) {
    at::Tensor slope;
    const at::Tensor p =
        to_probabilities(plain_scores(piece, qkv.q, keys, &slope), piece.rows_of(result.lse));
    const at::Tensor d = piece.queries_of(d_out).to(dtype).transpose(1, 2);
    const at::Tensor delta = (d * piece.queries_of(result.out).transpose(1, 2)).sum(-1, true);
    at::Tensor d_scores =
        dropped(piece, at::matmul(d, values.narrow(2, 0, piece.num_keys).transpose(-1, -2)))
            .sub_(delta);
    d_scores.mul_(p);
    if (block.distance_bias.defined()) {
      bias_gradients.index_add_(2, distances_of(piece, qkv.q, qkv.q.size(1)), d_scores.flatten(2));
    }
    d_scores.mul_(block.scale);
    if (slope.defined()) d_scores.mul_(slope);
    const at::Tensor queries = piece.queries_of(qkv.q).to(dtype).transpose(1, 2);
    const auto add = [&](const at::Tensor& to, const at::Tensor& by_head) {
      to.narrow(1, 0, piece.num_keys).add_(by_kv_head(by_head, num_kv_heads));
    };
    add(gradients.k, at::matmul(d_scores.transpose(-1, -2), queries));
    add(gradients.v, at::matmul(dropped(piece, p).transpose(-1, -2), d));
    piece.queries_of(gradients.q)
        .add_(at::matmul(d_scores, keys.narrow(2, 0, piece.num_keys)).transpose(1, 2));
  }
}

}  // namespace

int64_t num_queries_at_once(int64_t num_queries, int64_t scores_per_query, int64_t max_scores) {
  constexpr int64_t kFewest = 16;  // fewer would leave a device idle
  const int64_t fitting = max_scores / std::max<int64_t>(scores_per_query, 1);
  return std::clamp<int64_t>(fitting, std::min(kFewest, num_queries),
                             std::max<int64_t>(num_queries, 1));
}

bool has_visible_pair(const AttentionBlock& block, int64_t num_queries, int64_t num_keys) {
  const int64_t last_query = block.first_query + num_queries - 1;
  const int64_t last_key = block.first_key + num_keys - 1;
  if (num_queries <= 0 || num_keys <= 0 || last_query < block.first_key) return false;
  return block.window <= 0 || block.first_query - last_key < block.window;
}

bool has_attention_loops(const AttentionBlock& block, const Qkv& qkv) {
  return is_fusable({qkv.q, qkv.k, qkv.v}) && !block.chosen_keys.defined() &&
         device::kernels_for({qkv.q}) == nullptr;
}

bool has_attention_dropout(const at::Tensor& q) {
  return is_fusable({q}) || device::kernels_for({q}) != nullptr;
}

void attend_block(const AttentionBlock& block, const Qkv& qkv, AttentionResult& result) {
  if (const auto flash = FlashAttention::of(block, qkv)) {
    const AttentionResult part = flash->forward(qkv);
    return merge(block.adds, part.out, part.lse, result.out, result.lse);
  }
  const bool is_rounded = result.out.scalar_type() != at::kFloat;
  if (!has_attention_loops(block, qkv) || (is_rounded && block.adds)) {
    return attend_plain(block, qkv, result);
  }
  const Rectangle shape(block, qkv);
  const AttentionResult to = result;
  at::parallel_for(0, shape.batch * shape.num_heads, 1, [&](int64_t begin, int64_t end) {
    std::vector<float> scratch(static_cast<size_t>(kBlockQueries * shape.num_keys));
    for (int64_t item = begin; item < end; ++item) {
      for (int64_t first = 0; first < shape.num_queries; first += kBlockQueries) {
        const Tile tile(shape, item / shape.num_heads, item % shape.num_heads, first);
        forward_tile(shape, tile, block.adds, qkv, to, scratch.data());
      }
    }
  });
}

void attend_block_backward(const AttentionBlock& block, const Qkv& qkv,
                           const AttentionResult& result, const at::Tensor& d_out, Qkv& gradients,
                           const at::Tensor& bias_gradients) {
  AM_CHECK(!block.distance_bias.defined() || (block.softcap == 0 && bias_gradients.defined()));
  if (const auto flash = FlashAttention::of(block, qkv)) {
    const Qkv part = flash->backward(qkv, result, d_out);
    gradients.q.add_(part.q);
    gradients.k.add_(part.k);
    gradients.v.add_(part.v);
    return;
  }
  if (!has_attention_loops(block, qkv) || !is_fusable({result.out, d_out})) {
    return attend_plain_backward(block, qkv, result, d_out, gradients, bias_gradients);
  }
  const Rectangle shape(block, qkv);
  const BackwardTensors x{qkv, result, d_out, gradients, bias_gradients};
  // A task is a kv head with all its query heads, which add to the same keys' gradients.
  at::parallel_for(0, shape.batch * shape.num_kv_heads, 1, [&](int64_t begin, int64_t end) {
    std::vector<float> scratch(static_cast<size_t>(2 * kBlockQueries * shape.num_keys));
    for (int64_t item = begin; item < end; ++item) {
      const int64_t b = item / shape.num_kv_heads;
      const int64_t first_head = item % shape.num_kv_heads * shape.group();
      for (int64_t head = first_head; head < first_head + shape.group(); ++head) {
        for (int64_t first = 0; first < shape.num_queries; first += kBlockQueries) {
          backward_tile(shape, Tile(shape, b, head, first), x, scratch.data());
        }
      }
    }
  });
}

void add_sinks(const at::Tensor& sinks, AttentionResult& result) {
  const at::Tensor sink = sinks.to(result.lse.scalar_type()).view({1, -1, 1});
  result.out.mul_(kernels::sigmoid(result.lse - sink).transpose(1, 2).unsqueeze(-1));
  result.lse = at::logaddexp(result.lse, sink.expand_as(result.lse));
}

at::Tensor sinks_gradient(const at::Tensor& sinks, const AttentionResult& result,
                          const at::Tensor& d_out) {
  const at::Tensor share =
      at::exp(sinks.to(result.lse.scalar_type()).view({1, -1, 1}) - result.lse);
  const at::Tensor delta = (d_out * result.out).sum(-1).transpose(1, 2);  // [B, N, S]
  return (share * delta).sum(at::IntArrayRef{0, 2}).neg().to(sinks.scalar_type());
}

}  // namespace automodel::kernels
