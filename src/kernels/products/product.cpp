#include "kernels/products/product.h"

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <ATen/record_function.h>

#include <algorithm>

#include "core/divide.h"
#include "core/error.h"
#include "kernels/base/fused.h"
#include "kernels/cpu/loops.h"

namespace automodel::kernels {

namespace {

/// Products below this many multiplications are not worth a second thread.
constexpr int64_t kSmallProduct = int64_t{1} << 18;

/// With no more columns than this, a result of transposed rows is quicker made as its transpose:
/// its tall factor is then read by whole rows. Numbers are summed in the same order.
constexpr int64_t kFewColumns = 8;

/// What the loops read; `kept` keeps a copy alive where the matrix had no contiguous rows.
cpu::ProductOperand operand_of(const Factor& factor, at::Tensor& kept) {
  cpu::ProductOperand operand;
  const bool has_columns = factor.matrix.stride(1) != 1 && factor.matrix.stride(0) == 1;
  operand.is_transposed = factor.is_transposed;
  if (has_columns && !factor.rows.defined()) {
    kept = factor.matrix.t();
    operand.is_transposed = !factor.is_transposed;
  } else {
    kept = factor.matrix;
  }
  if (kept.stride(1) != 1 && kept.size(1) > 1) kept = kept.contiguous();
  operand.data = kept.data_ptr();
  operand.is_bfloat16 = is_bfloat16(kept);
  operand.stride = kept.stride(0);
  if (factor.rows.defined()) operand.rows = factor.rows.data_ptr<int64_t>();
  return operand;
}

/// How many parts the rows, and the columns, of a product are cut into: one a thread, as square as
/// can be, since every part reads all of its rows and columns.
std::pair<int64_t, int64_t> parts_of(int64_t m, int64_t n, int64_t num_threads) {
  std::pair<int64_t, int64_t> best{num_threads, 1};
  double least = 0;
  for (int64_t rows = 1; rows <= num_threads; ++rows) {
    if (num_threads % rows != 0) continue;
    const int64_t columns = num_threads / rows;
    const double read = static_cast<double>(m) / static_cast<double>(rows) +
                        static_cast<double>(n) / static_cast<double>(columns);
    if (least == 0 || read < least) {
      least = read;
      best = {rows, columns};
    }
  }
  return best;
}

/// ProductPart::is_narrow. Rows that are tokens, those of a matrix that is not transposed, do not
/// count: a token's numbers are the same beside any others.
bool is_narrow(const cpu::ProductPart& whole) {
  constexpr int64_t kFew = 16;
  return whole.column_end <= kFew || whole.depth <= kFew ||
         (whole.a.is_transposed && whole.row_end <= kFew);
}

int64_t round_up_columns(int64_t columns) {
  return round_up(columns, cpu::kMostTileColumns);
}

/// A bias as the loops read it; undefined for an undefined one.
at::Tensor padded_bias(const at::Tensor& bias, int64_t columns) {
  if (!bias.defined()) return bias;
  at::Tensor padded = at::zeros({round_up_columns(columns)}, at::TensorOptions().dtype(at::kFloat));
  padded.narrow(0, 0, columns).copy_(bias);
  return padded;
}

void multiply_by_loops(const Factor& a, const Factor& b, const at::Tensor& out,
                       const ProductOptions& options) {
  RECORD_FUNCTION("automodel::product", c10::ArrayRef<const c10::IValue>{});
  at::Tensor a_kept, b_kept;
  cpu::ProductPart whole;
  whole.a = operand_of(a, a_kept);
  whole.b = operand_of(b, b_kept);
  whole.c = out.data_ptr();
  whole.is_c_bfloat16 = is_bfloat16(out);
  whole.c_stride = out.stride(0);
  whole.depth = a.size(1);
  whole.row_end = out.size(0);
  whole.column_end = out.size(1);
  whole.alpha = static_cast<float>(options.alpha);
  whole.adds = options.adds;
  whole.is_narrow = is_narrow(whole);
  const at::Tensor bias = padded_bias(options.bias, whole.column_end);
  if (bias.defined()) whole.bias = bias.data_ptr<float>();
  const bool is_alone =
      at::in_parallel_region() || whole.row_end * whole.column_end * whole.depth < kSmallProduct;
  const auto parts =
      parts_of(whole.row_end, whole.column_end, is_alone ? 1 : at::get_num_threads());
  const int64_t row_parts = parts.first;
  const int64_t column_parts = parts.second;
  const int64_t rows = ceil_div(whole.row_end, row_parts);
  const int64_t columns = round_up_columns(ceil_div(whole.column_end, column_parts));
  at::parallel_for(0, row_parts * column_parts, 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      cpu::ProductPart part = whole;
      part.row_begin = i / column_parts * rows;
      part.row_end = std::min(whole.row_end, part.row_begin + rows);
      part.column_begin = i % column_parts * columns;
      part.column_end = std::min(whole.column_end, part.column_begin + columns);
      if (part.row_begin < part.row_end && part.column_begin < part.column_end) {
        multiply_part(part);
      }
    }
  });
}

}  // namespace

Factor Factor::t() const {
  Factor other = *this;
  other.is_transposed = !is_transposed;
  return other;
}

int64_t Factor::size(int64_t dim) const {
  const bool is_rows = (dim == 0) != is_transposed;
  return is_rows && rows.defined() ? rows.size(0) : matrix.size(is_rows ? 0 : 1);
}

at::Tensor Factor::tensor() const {
  const at::Tensor picked = rows.defined() ? matrix.index_select(0, rows) : matrix;
  return is_transposed ? picked.t() : picked;
}

bool is_slow_to_multiply(const at::Tensor& tensor) {
  return tensor.is_cpu() && !is_plain_path_asked() && tensor.scalar_type() == at::kHalf;
}

int64_t product_scratch_bytes(int64_t m, int64_t n, int64_t k, bool is_bfloat16) {
  cpu::ProductPart part;
  part.depth = k;
  part.row_end = m;
  part.column_end = n;
  part.is_c_bfloat16 = is_bfloat16;
  return cpu::vector_product_scratch(part) * static_cast<int64_t>(sizeof(float));
}

void multiply_part(const cpu::ProductPart& part) {
  const at::Tensor scratch =
      at::empty({cpu::loops().product_scratch(part)}, at::TensorOptions().dtype(at::kFloat));
  cpu::loops().multiply(part, scratch.data_ptr<float>());
}

void product_into(const Factor& a, const Factor& b, const at::Tensor& out,
                  const ProductOptions& options) {
  AM_CHECK(a.size(1) == b.size(0) && out.size(0) == a.size(0) && out.size(1) == b.size(1),
           "a product of [", a.size(0), ", ", a.size(1), "] and [", b.size(0), ", ", b.size(1),
           "] into [", out.size(0), ", ", out.size(1), "]");
  if (out.numel() == 0) return;
  if (a.size(1) == 0) {
    if (!options.adds) out.zero_();
    if (options.bias.defined()) out.add_(options.bias);
    return;
  }
  if (is_fusable({a.matrix, b.matrix, out}) && (out.stride(1) == 1 || out.size(1) == 1)) {
    const bool is_tall = out.size(1) <= kFewColumns && out.size(0) > kFewColumns;
    if (is_tall && a.is_transposed && !options.adds && !options.bias.defined()) {
      const at::Tensor turned = at::empty({out.size(1), out.size(0)}, out.options());
      multiply_by_loops(b.t(), a.t(), turned, options);
      at::Tensor(out).copy_(turned.t());
    } else {
      multiply_by_loops(a, b, out, options);
    }
    return;
  }
  if (is_slow_to_multiply(out)) {
    const at::Tensor wide = at::empty(out.sizes(), out.options().dtype(at::kFloat));
    multiply_by_loops(a.tensor().to(at::kFloat), b.tensor().to(at::kFloat), wide,
                      {.alpha = options.alpha});
    options.adds ? out.add_(wide) : out.copy_(wide);
    if (options.bias.defined()) out.add_(options.bias);
  } else if (options.bias.defined() && !options.adds) {
    at::addmm_out(const_cast<at::Tensor&>(out), options.bias, a.tensor(), b.tensor(), 1,
                  options.alpha);
  } else if (options.adds || options.alpha != 1) {
    at::Tensor(out).addmm_(a.tensor(), b.tensor(), options.adds ? 1 : 0, options.alpha);
    if (options.bias.defined()) out.add_(options.bias);
  } else {
    at::mm_out(const_cast<at::Tensor&>(out), a.tensor(), b.tensor());
  }
}

at::Tensor product(const Factor& a, const Factor& b, const ProductOptions& options) {
  at::Tensor out = at::empty({a.size(0), b.size(1)}, a.matrix.options());
  product_into(a, b, out, options);
  return out;
}

}  // namespace automodel::kernels
