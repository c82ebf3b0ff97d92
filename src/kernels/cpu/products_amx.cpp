#include <immintrin.h>

#include <algorithm>

#include "kernels/cpu/kind.h"
#include "kernels/cpu/loops.h"

namespace automodel::kernels::cpu {

namespace {
#include "kernels/cpu/tile_panels_body.inc"

/// Which registers hold what: sums of 2 x 2 tiles, two tiles of the left matrix, two of the right.
/// Intrinsics take their numbers as constants.
constexpr uint8_t kNumRegisters = 8;

/// What LDTILECFG reads: every register is a whole tile.
struct TileSettings {
  uint8_t palette = 1;
  uint8_t start_row = 0;
  uint8_t reserved[14] = {};
  uint16_t row_bytes[16] = {};
  uint8_t num_rows[16] = {};

  constexpr TileSettings() {
    for (int i = 0; i < kNumRegisters; ++i) {
      row_bytes[i] = 64;
      num_rows[i] = kTileRows;
    }
  }
};
static_assert(sizeof(TileSettings) == 64);

/// Tile registers of the calling thread, for as long as this lives.
class TileRegisters final {
 public:
  TileRegisters() {
    // Constant: the compiler does not know that the instruction reads all of it.
    static constexpr TileSettings kSettings;
    _tile_loadconfig(&kSettings);
  }
  ~TileRegisters() { _tile_release(); }
  TileRegisters(const TileRegisters&) = delete;
  TileRegisters& operator=(const TileRegisters&) = delete;
};

/// Memory that the compiler wrote and tiles read, or the other way round, changes hands here.
inline void settle_memory() {
  __asm__ volatile("" ::: "memory");
}

constexpr int64_t kTileBytes = 64;

/// Where a left panel's tiles are: copied ones, or 32 rows of bfloat16 where they lie.
struct LeftPanel {
  const uint16_t* data;
  int64_t tile;       ///< numbers to the next 16 rows
  int64_t step_tile;  ///< to the next 32 steps
  int64_t row_bytes;

  static LeftPanel copied(const uint16_t* data, int64_t num_parts) {
    return {data, kTileNumbers, kPanelTiles * kTileNumbers * num_parts, kTileBytes};
  }
};

template <int64_t kRows>
inline void load_left(const LeftPanel& panel, const uint16_t* tiles) {
  _tile_loadd(4, tiles, panel.row_bytes);
  if constexpr (kRows == 2) _tile_loadd(5, tiles + panel.tile, panel.row_bytes);
}

template <int64_t kColumns>
inline void load_right(const uint16_t* tiles) {
  _tile_loadd(6, tiles, kTileBytes);
  if constexpr (kColumns == 2) _tile_loadd(7, tiles + kTileNumbers, kTileBytes);
}

template <int64_t kRows, int64_t kColumns>
inline void multiply_tiles() {
  _tile_dpbf16ps(0, 4, 6);
  if constexpr (kColumns == 2) _tile_dpbf16ps(1, 4, 7);
  if constexpr (kRows == 2) _tile_dpbf16ps(2, 5, 6);
  if constexpr (kRows == 2 && kColumns == 2) _tile_dpbf16ps(3, 5, 7);
}

/// Sums of kRows x kColumns tiles over panels of so many tiles of steps. Of the products of parts,
/// those whose factors' ranks add up to two at most count; the small ones come first, where sums
/// are small, and each has a factor in common with the next.
template <int64_t kRows, int64_t kColumns, int64_t kLeftParts, int64_t kRightParts>
inline void add_products(const LeftPanel& left, const uint16_t* right, int64_t num_steps) {
  constexpr int64_t kTiles = kPanelTiles * kTileNumbers;
  const auto left_at = [&](int64_t step, int64_t part) {
    return left.data + step * left.step_tile + part * kTiles;
  };
  const auto right_at = [&](int64_t step, int64_t part) {
    return right + (step * kRightParts + part) * kTiles;
  };
  const auto multiply = [] { multiply_tiles<kRows, kColumns>(); };
  for (int64_t step = 0; step < num_steps; ++step) {
    if constexpr (kRightParts == kFloatParts) {
      load_left<kRows>(left, left_at(step, 0));
      load_right<kColumns>(right_at(step, 2));
      multiply();
      load_right<kColumns>(right_at(step, 1));
      multiply();
    }
    if constexpr (kLeftParts == kFloatParts && kRightParts == kFloatParts) {
      load_left<kRows>(left, left_at(step, 1));
      multiply();
    }
    if constexpr (kLeftParts == kFloatParts) {
      load_right<kColumns>(right_at(step, 0));
      if constexpr (kRightParts == 1) load_left<kRows>(left, left_at(step, 1));
      multiply();
      load_left<kRows>(left, left_at(step, 2));
      multiply();
    }
  }
  for (int64_t step = 0; step < num_steps; ++step) {
    load_left<kRows>(left, left_at(step, 0));
    load_right<kColumns>(right_at(step, 0));
    multiply();
  }
}

/// Sums of 2 x 2 tiles, of 1 x 1 at least, to memory with `stride` numbers between rows, or on top
/// of what that holds.
using AddProducts = void (*)(const LeftPanel& left, const uint16_t* right, int64_t num_steps,
                             bool adds, float* to, int64_t stride);

template <int64_t kRows, int64_t kColumns, int64_t kLeftParts, int64_t kRightParts>
void sum_tiles(const LeftPanel& left, const uint16_t* right, int64_t num_steps, bool adds,
               float* to, int64_t stride) {
  const int64_t bytes = stride * static_cast<int64_t>(sizeof(float));
  float* below = to + kTileRows * stride;
  if (adds) {
    _tile_loadd(0, to, bytes);
    if constexpr (kColumns == 2) _tile_loadd(1, to + kTileRows, bytes);
    if constexpr (kRows == 2) _tile_loadd(2, below, bytes);
    if constexpr (kRows == 2 && kColumns == 2) _tile_loadd(3, below + kTileRows, bytes);
  } else {
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
  }
  add_products<kRows, kColumns, kLeftParts, kRightParts>(left, right, num_steps);
  _tile_stored(0, to, bytes);
  if constexpr (kColumns == 2) _tile_stored(1, to + kTileRows, bytes);
  if constexpr (kRows == 2) _tile_stored(2, below, bytes);
  if constexpr (kRows == 2 && kColumns == 2) _tile_stored(3, below + kTileRows, bytes);
}

template <int64_t kLeftParts, int64_t kRightParts>
inline AddProducts sums_of(bool has_two_rows, bool has_two_columns) {
  if (has_two_rows) {
    return has_two_columns ? sum_tiles<2, 2, kLeftParts, kRightParts>
                           : sum_tiles<2, 1, kLeftParts, kRightParts>;
  }
  return has_two_columns ? sum_tiles<1, 2, kLeftParts, kRightParts>
                         : sum_tiles<1, 1, kLeftParts, kRightParts>;
}

inline AddProducts sums_of(const ProductPart& part, int64_t rows, int64_t columns) {
  const bool has_two_rows = rows > kTileRows, has_two_columns = columns > kTileRows;
  if (part.a.is_bfloat16) {
    return part.b.is_bfloat16 ? sums_of<1, 1>(has_two_rows, has_two_columns)
                              : sums_of<1, kFloatParts>(has_two_rows, has_two_columns);
  }
  return part.b.is_bfloat16 ? sums_of<kFloatParts, 1>(has_two_rows, has_two_columns)
                            : sums_of<kFloatParts, kFloatParts>(has_two_rows, has_two_columns);
}

inline void store_numbers(float* to, __mmask16 lanes, __m512 numbers) {
  _mm512_mask_storeu_ps(to, lanes, numbers);
}

inline void store_numbers(Bfloat16* to, __mmask16 lanes, __m512 numbers) {
  _mm256_mask_storeu_epi16(to, lanes, (__m256i)_mm512_cvtneps_pbh(numbers));
}

/// What becomes of sums: to = alpha * sums (+ bias) (+ to).
struct Finish {
  float alpha;
  const float* bias;  ///< of the first column; or null
  bool adds;
};

template <typename T>
inline void finish_rows(const float* sums, int64_t sums_stride, const Finish& finish, T* to,
                        int64_t stride, int64_t rows, int64_t columns) {
  const __m512 alpha = _mm512_set1_ps(finish.alpha);
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t c = 0; c < columns; c += 16) {
      const __mmask16 lanes = first_lanes(columns - c);
      __m512 sum = alpha * load_floats(sums + r * sums_stride + c, lanes);
      if (finish.bias != nullptr) sum += _mm512_loadu_ps(finish.bias + c);
      T* at = to + r * stride + c;
      if (finish.adds) sum += load_floats(at, lanes);
      store_numbers(at, lanes, sum);
    }
  }
}

inline bool are_both_bfloat16(const ProductPart& part) {
  return part.a.is_bfloat16 && part.b.is_bfloat16;
}

/// What panels hold at a time: steps; rows of the left matrix, of which a panel of 512 steps stays
/// in a core's first cache; columns of the right one, all in its second cache.
struct SlabSizes {
  int64_t steps, rows, columns;

  explicit SlabSizes(const ProductPart& part) {
    const bool are_halves = are_both_bfloat16(part);
    // Results that are complete after one slab are not read again: that is worth a deeper one.
    constexpr int64_t kDepth = 512;
    const bool is_one_slab = are_halves && part.depth > kDepth && part.depth <= 2 * kDepth;
    steps = is_one_slab ? 2 * kDepth : kDepth;
    rows = part.a.is_bfloat16 ? 128 : 64;
    columns = !are_halves ? 256 : is_one_slab ? 512 : 1024;
  }
};

/// How many rows of a range can be loaded where they lie: whole panels, if every row begins and
/// ends where a tile's does, and the rows are not so far apart that a cache has too few sets for
/// them.
inline int64_t num_readable(const ProductPart& part, int64_t count) {
  constexpr int64_t kFarNumbers = 1024;
  const ProductOperand& a = part.a;
  const bool is_readable = are_both_bfloat16(part) && !a.is_transposed && a.rows == nullptr &&
                           part.depth % kTileSteps == 0 && a.stride % kTileSteps == 0 &&
                           a.stride % kFarNumbers != 0 &&
                           reinterpret_cast<uintptr_t>(a.data) % kTileBytes == 0;
  return is_readable ? count / kPanelWidth * kPanelWidth : 0;
}

/// Where a slab's results go: sums in memory of their own, or c itself.
template <typename T>
struct Destination {
  T* data;  ///< the number of row `row` and column `column`
  int64_t stride, row, column;

  T* at(int64_t r, int64_t c) const { return data + (r - row) * stride + c - column; }
};

/// Asks for the next panel's rows where they lie, some of them beside each panel of columns: their
/// tiles would wait for memory.
inline void ask_for_rows(const ProductPart& part, int64_t row, const PanelRange& columns,
                         int64_t column) {
  const int64_t num_panels = tiles_of(columns.count, kPanelWidth);
  const int64_t panel = column / kPanelWidth;
  const int64_t end = std::min(part.row_end, row + kPanelWidth * (panel + 1) / num_panels);
  for (int64_t r = row + kPanelWidth * panel / num_panels; r < end; ++r) {
    const Bfloat16* numbers = part.a.row<Bfloat16>(r) + columns.step;
    for (int64_t step = 0; step < columns.num_steps; step += kTileSteps) {
      _mm_prefetch(reinterpret_cast<const char*>(numbers + step), _MM_HINT_T1);
    }
  }
}

/// Sums of a slab's rows and columns, and what becomes of them.
template <typename T>
void multiply_panels(const ProductPart& part, const PanelRange& rows, const PanelRange& columns,
                     const Finish& finish, const uint16_t* copied, const uint16_t* right,
                     const Destination<T>& to) {
  const int64_t num_step_tiles = tiles_of(columns.num_steps, kTileSteps);
  const int64_t left_numbers = panel_numbers(part.a, columns.num_steps);
  const int64_t right_numbers = panel_numbers(part.b, columns.num_steps);
  const bool is_plain = finish.alpha == 1 && finish.bias == nullptr;
  // Parts of float32 numbers begin new sums: small ones would be rounded beside large ones.
  const bool can_add_in_tiles = sizeof(T) == sizeof(float) && is_plain && are_both_bfloat16(part);
  alignas(64) float sums[kPanelWidth * kPanelWidth] = {};
  const int64_t readable = num_readable(part, rows.count);
  for (int64_t row = 0; row < rows.count; row += kPanelWidth) {
    const int64_t height = std::min(kPanelWidth, rows.count - row);
    LeftPanel left = LeftPanel::copied(copied, part.a.is_bfloat16 ? 1 : kFloatParts);
    if (row < readable) {
      const Bfloat16* lying = part.a.row<Bfloat16>(rows.first + row) + rows.step;
      left = {reinterpret_cast<const uint16_t*>(lying), kTileRows * part.a.stride, kTileSteps,
              2 * part.a.stride};
    } else {
      copied += left_numbers;
    }
    const uint16_t* panel = right;
    for (int64_t i = 0; i < columns.count; i += kPanelWidth, panel += right_numbers) {
      const int64_t width = std::min(kPanelWidth, columns.count - i);
      if (row < readable) ask_for_rows(part, rows.first + row + kPanelWidth, columns, i);
      const auto sum = sums_of(part, height, width);
      T* c = to.at(rows.first + row, columns.first + i);
      const bool adds_in_tiles = can_add_in_tiles && finish.adds;
      if constexpr (sizeof(T) == sizeof(float)) {
        const bool is_whole = height == kPanelWidth && width == kPanelWidth;
        if (is_whole && is_plain && finish.adds == adds_in_tiles) {
          sum(left, panel, num_step_tiles, adds_in_tiles, c, to.stride);
          settle_memory();
          continue;
        }
        if (adds_in_tiles) {
          finish_rows(c, to.stride, {1, nullptr, false}, sums, kPanelWidth, height, width);
          settle_memory();
        }
      }
      sum(left, panel, num_step_tiles, adds_in_tiles, sums, kPanelWidth);
      settle_memory();
      Finish here = finish;
      here.adds = finish.adds && !adds_in_tiles;
      if (finish.bias != nullptr) here.bias += columns.first + i;
      finish_rows(sums, kPanelWidth, here, c, to.stride, height, width);
    }
  }
}

/// All steps of some columns.
template <typename T>
void multiply_columns(const ProductPart& part, int64_t column, int64_t width, uint16_t* panels,
                      const Destination<T>& to) {
  const SlabSizes slab(part);
  const int64_t most_rows = std::min(slab.rows, part.row_end - part.row_begin);
  uint16_t* right = panels + tiles_of(most_rows, kPanelWidth) *
                                 panel_numbers(part.a, std::min(slab.steps, part.depth));
  const bool is_near = are_both_bfloat16(part);
  Finish finish{part.alpha, part.bias, part.adds};
  for (int64_t step = 0; step < part.depth; step += slab.steps) {
    const int64_t num_steps = std::min(slab.steps, part.depth - step);
    const PanelRange columns{column, width, step, num_steps};
    pack_panels(part.b, true, is_near, columns, right);
    for (int64_t row = part.row_begin; row < part.row_end; row += most_rows) {
      const PanelRange rows{row, std::min(most_rows, part.row_end - row), step, num_steps};
      const int64_t readable = num_readable(part, rows.count);
      pack_panels(part.a, false, is_near, {row + readable, rows.count - readable, step, num_steps},
                  panels);
      settle_memory();
      multiply_panels(part, rows, columns, finish, panels, right, to);
    }
    finish.bias = nullptr;
    finish.adds = true;
  }
}

/// Scratch in floats: of panels, and of sums behind them.
struct Scratch {
  int64_t panels, sums;

  explicit Scratch(const ProductPart& part) {
    const SlabSizes slab(part);
    const int64_t columns = std::min(slab.columns, part.column_end - part.column_begin);
    const int64_t steps = std::min(slab.steps, part.depth);
    const int64_t rows = std::min(slab.rows, part.row_end - part.row_begin);
    const int64_t left = tiles_of(rows, kPanelWidth) * panel_numbers(part.a, steps);
    const int64_t right = tiles_of(columns, kPanelWidth) * panel_numbers(part.b, steps);
    panels = (left + right) / 2;
    const bool has_sums = part.is_c_bfloat16 && part.depth > slab.steps;
    const int64_t rounded = std::min(kRoundedRows, part.row_end - part.row_begin);
    sums = has_sums ? rounded * sums_stride(columns) : 0;
  }

  /// Off the power of two: rows of a tile share no cache sets.
  static int64_t sums_stride(int64_t columns) {
    return tiles_of(columns, kPanelWidth) * kPanelWidth + kTileRows;
  }
};

/// Float32 sums of some rows and columns at a time, each rounded when it is complete.
void multiply_by_sums(const ProductPart& part, int64_t column, int64_t width, uint16_t* panels,
                      float* sums) {
  ProductPart piece = part;
  piece.adds = false;
  piece.alpha = 1;
  piece.bias = nullptr;
  auto* c = static_cast<Bfloat16*>(part.c);
  for (int64_t row = part.row_begin; row < part.row_end; row += kRoundedRows) {
    piece.row_begin = row;
    piece.row_end = std::min(part.row_end, row + kRoundedRows);
    const int64_t stride = Scratch::sums_stride(width);
    multiply_columns<float>(piece, column, width, panels, {sums, stride, row, column});
    const float* bias = part.bias != nullptr ? part.bias + column : nullptr;
    finish_rows(sums, stride, {part.alpha, bias, part.adds}, c + row * part.c_stride + column,
                part.c_stride, piece.row_end - row, width);
  }
}

/// Whether tiles may multiply what the matrices hold.
inline bool is_by_tiles(const ProductPart& part) {
  return are_both_bfloat16(part) || (allows_float_parts() && !part.is_narrow);
}

void multiply(const ProductPart& part, float* scratch) {
  if (!is_by_tiles(part)) return avx512_loops().multiply(part, scratch);
  const TileRegisters registers;
  const Scratch sizes(part);
  auto* aligned = reinterpret_cast<uint16_t*>(
      (reinterpret_cast<uintptr_t>(scratch) + kTileBytes - 1) / kTileBytes * kTileBytes);
  float* sums = reinterpret_cast<float*>(aligned) + sizes.panels;
  const int64_t most = SlabSizes(part).columns;
  for (int64_t column = part.column_begin; column < part.column_end; column += most) {
    const int64_t width = std::min(most, part.column_end - column);
    if (!part.is_c_bfloat16) {
      multiply_columns<float>(part, column, width, aligned,
                              {static_cast<float*>(part.c), part.c_stride, 0, 0});
    } else if (sizes.sums > 0) {
      multiply_by_sums(part, column, width, aligned, sums);
    } else {
      multiply_columns<Bfloat16>(part, column, width, aligned,
                                 {static_cast<Bfloat16*>(part.c), part.c_stride, 0, 0});
    }
  }
}

int64_t scratch_of(const ProductPart& part) {
  if (!is_by_tiles(part)) return avx512_loops().product_scratch(part);
  const Scratch sizes(part);
  return sizes.panels + sizes.sums + kTileBytes / static_cast<int64_t>(sizeof(float));
}
}  // namespace

const LoopTable& amx_loops() {
  static const LoopTable table = [] {
    LoopTable all = avx512_loops();
    all.isa = "amx";
    all.multiply = multiply;
    all.product_scratch = scratch_of;
    return all;
  }();
  return table;
}

}  // namespace automodel::kernels::cpu
