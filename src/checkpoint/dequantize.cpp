#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "checkpoint/quantized_tensor.h"
#include "checkpoint/staged_read.h"
#include "core/divide.h"
#include "core/error.h"

namespace automodel::checkpoint {

namespace {

/// The float32 values of all 256 numbers of a one-byte dtype.
std::array<float, 256> values_of(at::ScalarType dtype) {
  const at::Tensor bytes = at::arange(256, at::TensorOptions().dtype(at::kByte));
  const at::Tensor values = bytes.view(dtype).to(at::kFloat);
  std::array<float, 256> table{};
  std::copy_n(values.const_data_ptr<float>(), 256, table.begin());
  return table;
}

/// 2^(byte - 127), as torch.ldexp and exp2 give it: infinite where float32 has no such number.
float power_of_two(uint8_t byte) {
  return std::ldexp(1.0F, static_cast<int>(byte) - 127);
}

/// All scales of a tensor, float32, rounded to `dtype`.
std::vector<float> read_scales(const SafetensorsFile& file, const TensorEntry& entry,
                               at::ScalarType dtype) {
  const at::Tensor stored = file.read(entry.name).reshape({-1});
  std::vector<float> scales(static_cast<size_t>(stored.numel()));
  if (stored.scalar_type() == at::kByte) {
    const auto* bytes = stored.const_data_ptr<uint8_t>();
    std::transform(bytes, bytes + stored.numel(), scales.begin(), power_of_two);
  } else {
    const at::Tensor values = stored.to(dtype).to(at::kFloat);
    std::copy_n(values.const_data_ptr<float>(), stored.numel(), scales.begin());
  }
  return scales;
}

/// Multiplies float8 elements by the scales of their blocks.
class Float8Decoder final {
 public:
  Float8Decoder(const QuantizedTensor& tensor, std::vector<float> scales)
      : table_(values_of(tensor.weight.entry->dtype)),
        scales_(std::move(scales)),
        block_rows_(tensor.block_rows),
        block_cols_(tensor.block_cols) {
    const std::vector<int64_t>& shape = tensor.values.shape;
    cols_ = shape.empty() ? 1 : shape.back();
    // A single scale: the rows of all matrices together are one block.
    const bool is_one = scales_.size() == 1;
    rows_ = is_one || shape.size() < 2 ? block_rows_ : shape[shape.size() - 2];
    grid_rows_ = ceil_div(rows_, block_rows_);
    grid_cols_ = ceil_div(cols_, block_cols_);
  }

  /// Decodes elements [first, first + count) of the tensor, row by row.
  void decode(const uint8_t* bytes, int64_t first, int64_t count, float* out) const {
    for (int64_t done = 0; done < count;) {
      const int64_t row = (first + done) / cols_;
      const int64_t col = (first + done) % cols_;
      const int64_t block_end = std::min(cols_, (col / block_cols_ + 1) * block_cols_);
      const int64_t end = done + std::min(count - done, block_end - col);
      const int64_t grid_row = row / rows_ * grid_rows_ + row % rows_ / block_rows_;
      const float scale = scales_[static_cast<size_t>(grid_row * grid_cols_ + col / block_cols_)];
      for (; done < end; ++done) out[done] = table_[bytes[done]] * scale;
    }
  }

 private:
  std::array<float, 256> table_;
  std::vector<float> scales_;
  int64_t block_rows_, block_cols_;
  int64_t rows_ = 0, cols_ = 0, grid_rows_ = 0, grid_cols_ = 0;
};

void read_float8(const QuantizedTensor& tensor, const SafetensorsFile& weight_file,
                 const SafetensorsFile& scale_file, const tensor::ShardSpec& spec,
                 const at::Tensor& out) {
  const bool is_compressed = tensor.method == Quantization::Method::kCompressed;
  const at::ScalarType scale_dtype = is_compressed ? out.scalar_type() : at::kFloat;
  const Float8Decoder decoder(tensor, read_scales(scale_file, *tensor.scales.entry, scale_dtype));
  const int64_t piece = std::min(piece_for(out), out.numel());
  const at::Tensor bytes =
      at::empty({piece}, at::TensorOptions().dtype(tensor.weight.entry->dtype));
  const at::Tensor values = at::empty({piece}, at::TensorOptions().dtype(at::kFloat));
  read_by_staging(spec, values, out, [&](int64_t first, int64_t count, int64_t place) {
    weight_file.read_elements(*tensor.weight.entry, first, bytes.narrow(0, 0, count));
    decoder.decode(static_cast<const uint8_t*>(bytes.const_data_ptr()), first, count,
                   values.mutable_data_ptr<float>() + place);
  });
}

/// The sixteen values of a 4-bit float with two bits of exponent and one of mantissa.
constexpr std::array<float, 16> kFp4Values = {0.0F,  0.5F,  1.0F,  1.5F,  2.0F,  3.0F,
                                              4.0F,  6.0F,  -0.0F, -0.5F, -1.0F, -1.5F,
                                              -2.0F, -3.0F, -4.0F, -6.0F};

/// One expert's packed matrix [out, in / 32, 16] with its scales, and the box of [in, out] to
/// decode.
struct Mxfp4Expert {
  const uint8_t* blocks;
  const uint8_t* scales;
  int64_t num_groups;            // in / 32
  int64_t out_begin, out_count;  // of the box
};

/// Decodes rows [row, row + count) of the transposed matrix into [count, out_count].
void decode_rows(const Mxfp4Expert& expert, int64_t row, int64_t count, float* values) {
  for (int64_t o = 0; o < expert.out_count; ++o) {
    const int64_t first_group = (expert.out_begin + o) * expert.num_groups;
    for (int64_t i = 0; i < count;) {
      const int64_t group = first_group + (row + i) / kMxfp4Group;
      const uint8_t* bytes = expert.blocks + group * (kMxfp4Group / 2);
      const float scale = power_of_two(expert.scales[group]);
      const int64_t end = std::min(count, i + kMxfp4Group - (row + i) % kMxfp4Group);
      for (; i < end; ++i) {
        const int64_t inside = (row + i) % kMxfp4Group;
        const int code = bytes[inside / 2] >> (4 * (inside % 2)) & 15;
        values[i * expert.out_count + o] = kFp4Values[static_cast<size_t>(code)] * scale;
      }
    }
  }
}

at::Tensor read_as_bytes(const SafetensorsFile& file, const TensorEntry& entry, int64_t first,
                         int64_t count) {
  const at::Tensor out = at::empty({count}, at::TensorOptions().dtype(entry.dtype));
  file.read_elements(entry, first, out);
  return out.view(at::kByte);
}

void read_mxfp4(const QuantizedTensor& tensor, const SafetensorsFile& weight_file,
                const SafetensorsFile& scale_file, const tensor::ShardSpec& spec,
                const at::Tensor& out) {
  const int64_t num_scales = tensor.scales.entry->numel() / tensor.values.shape[0];
  const int64_t rows = spec.box_shape[1];
  const int64_t cols = spec.box_shape[2];
  const int64_t first_row = spec.flat_begin / cols;
  const int64_t last_row = ceil_div(spec.flat_end, cols);
  const int64_t band = std::max<int64_t>(kMxfp4Group, (int64_t{1} << 18) / cols);
  const at::Tensor values = at::empty({std::min(band, last_row - first_row) * cols},
                                      at::TensorOptions().dtype(at::kFloat));
  for (int64_t e = first_row / rows; e * rows < last_row; ++e) {
    const int64_t number = spec.box_offset[0] + e;
    const at::Tensor scales =
        read_as_bytes(scale_file, *tensor.scales.entry, number * num_scales, num_scales);
    const at::Tensor blocks =
        read_as_bytes(weight_file, *tensor.weight.entry, number * num_scales * (kMxfp4Group / 2),
                      num_scales * (kMxfp4Group / 2));
    const Mxfp4Expert expert{blocks.const_data_ptr<uint8_t>(), scales.const_data_ptr<uint8_t>(),
                             tensor.weight.entry->shape[2], spec.box_offset[2], cols};
    const int64_t end = std::min(last_row, (e + 1) * rows);
    for (int64_t row = std::max(first_row, e * rows); row < end; row += band) {
      const int64_t count = std::min(band, end - row);
      decode_rows(expert, spec.box_offset[1] + row - e * rows, count,
                  values.mutable_data_ptr<float>());
      const int64_t from = std::max(spec.flat_begin, row * cols);
      const int64_t to = std::min(spec.flat_end, (row + count) * cols);
      out.narrow(0, from - spec.flat_begin, to - from)
          .copy_(values.narrow(0, from - row * cols, to - from));
    }
  }
}

}  // namespace

void read_quantized(const QuantizedTensor& tensor, const SafetensorsFile& weight_file,
                    const SafetensorsFile& scale_file, const tensor::ShardSpec& spec,
                    at::Tensor out) {
  AM_CHECK(spec.global_numel() == tensor.values.numel() && out.numel() == spec.numel(),
           tensor.values.name);
  if (out.numel() == 0) return;
  const at::AutoDispatchBelowADInplaceOrView no_autograd;
  if (tensor.method != Quantization::Method::kMxfp4) {
    read_float8(tensor, weight_file, scale_file, spec, out);
    return;
  }
  tensor::ShardSpec box = spec;
  if (box.global_shape != tensor.values.shape) {  // read as a flat range
    AM_CHECK(spec.box_numel() == spec.global_numel(), tensor.values.name);
    box = tensor::ShardSpec::whole(tensor.values.shape);
    box.flat_begin = spec.flat_begin;
    box.flat_end = spec.flat_end;
  }
  read_mxfp4(tensor, weight_file, scale_file, box, out);
}

}  // namespace automodel::checkpoint
