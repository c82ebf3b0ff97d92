#pragma once

// How many teams of how many threads run a body, and how wide they read: the same for the device
// and for tests on the host. A launcher offers
//   run<kThreads>(num_teams, scratch_floats, body)
//       body(team) by each team; scratch_floats: what a team's scratch() holds; 0: it is null
//   num_processors()  each of which runs some teams at once
//   has_flash_attention(), has_cudnn_attention(), has_grouped_products()  as DeviceKernels

#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <type_traits>

#include "core/divide.h"
#include "kernels/device/four_bit_bodies.h"
#include "kernels/device/head_bodies.h"
#include "kernels/device/row_bodies.h"

namespace automodel::kernels::device {

/// The most floats of a team's scratch that any device has without being asked for more, beside
/// what a team's sums take.
constexpr int64_t kMostScratch = 12 * 1024 - 64;

/// Whether rows of `dim` numbers may be read by packs of `width`.
template <typename T>
bool fits_packs(int64_t width, int64_t dim, std::initializer_list<const T*> rows) {
  const auto is_aligned = [&](const T* row) {
    return reinterpret_cast<uintptr_t>(row) % (sizeof(T) * static_cast<size_t>(width)) == 0;
  };
  return dim % width == 0 && std::all_of(rows.begin(), rows.end(), is_aligned);
}

template <int kNumber>
using Width = std::integral_constant<int, kNumber>;

template <typename Launcher, typename T>
struct RowLaunches {
  static constexpr int kFull = kFullWidth<T>;
  static constexpr int kRowThreads = 256;
  static constexpr int kHeadThreads = 32;
  static constexpr int kLogitThreads = 512;

  static int64_t teams(int64_t rows, int64_t of_processor) {
    return std::clamp<int64_t>(rows, 1, of_processor * Launcher::num_processors());
  }

  static void rms_forward(const T* x, const T* residual, T* sum, const T* w, T* y, float* rstd,
                          int64_t rows, int64_t dim, float eps, bool adds_one) {
    const auto run = [&](auto width) {
      const RmsForward<width, T> body{x,    residual, sum, w,   y,
                                      rstd, rows,     dim, eps, adds_one ? 1.0F : 0.0F};
      Launcher::template run<kRowThreads>(teams(rows, 16), 0, body);
    };
    by_width(dim, {x, residual, sum, w, y}, run);
  }

  static void rms_backward(const T* dy, const T* x, const T* w, const float* rstd, const T* d_sum,
                           T* dx, float* partials, int64_t num_partials, int64_t rows, int64_t dim,
                           bool adds_one) {
    const int64_t num_teams = partials != nullptr ? num_partials : teams(rows, 16);
    const auto run_pieces = [&](auto width, auto pieces) {
      const RmsBackward<width, pieces, T> body{dy, x,        w,    rstd, d_sum,
                                               dx, partials, rows, dim,  adds_one ? 1.0F : 0.0F};
      const bool has_scratch = pieces == 0 && partials != nullptr && dim <= kMostScratch;
      Launcher::template run<kRowThreads>(num_teams, has_scratch ? dim : 0, body);
    };
    const auto run = [&](auto width) {
      const int64_t at_once = int64_t{kRowThreads} * width;
      if (dim <= at_once) {
        run_pieces(width, Width<1>());
      } else if (dim <= 2 * at_once) {
        run_pieces(width, Width<2>());
      } else if (dim <= 4 * at_once) {
        run_pieces(width, Width<4>());
      } else {
        run_pieces(width, Width<0>());
      }
    };
    by_width(dim, {dy, x, w, d_sum, dx}, run);
  }

  static void gated_forward(const T* gate_up, T* out, int64_t rows, int64_t half, int act) {
    const auto run = [&](auto width) {
      if (act == 0) {
        const GatedForward<width, SiluOf, T> body{gate_up, out, rows, half};
        Launcher::template run<kRowThreads>(teams(rows, 16), 0, body);
      } else {
        const GatedForward<width, TanhGeluOf, T> body{gate_up, out, rows, half};
        Launcher::template run<kRowThreads>(teams(rows, 16), 0, body);
      }
    };
    by_width(half, {gate_up, out}, run);
  }

  static void gated_backward(const T* d_out, const T* gate_up, T* d_gate_up, int64_t rows,
                             int64_t half, int act) {
    const auto run = [&](auto width) {
      if (act == 0) {
        const GatedBackward<width, SiluOf, T> body{d_out, gate_up, d_gate_up, rows, half};
        Launcher::template run<kRowThreads>(teams(rows, 16), 0, body);
      } else {
        const GatedBackward<width, TanhGeluOf, T> body{d_out, gate_up, d_gate_up, rows, half};
        Launcher::template run<kRowThreads>(teams(rows, 16), 0, body);
      }
    };
    by_width(half, {d_out, gate_up, d_gate_up}, run);
  }

  static void heads_forward(const Heads<T>& heads, const T* qkv, T* q, T* k, T* v, float* rstd) {
    const int64_t units = heads.tokens * (heads.num_heads + 2 * heads.num_kv_heads);
    if (const int lanes = lanes_of(heads, {qkv, q, k, v}); lanes > 0) {
      const HeadsForwardByLanes<kFull, T> body{heads, qkv, q, k, v, rstd, lanes};
      const int64_t at_once = kHeadThreads / lanes;
      Launcher::template run<kHeadThreads>(teams(ceil_div(units, at_once), 64), 0, body);
      return;
    }
    const HeadsForward<T> body{heads, qkv, q, k, v, rstd};
    Launcher::template run<kHeadThreads>(teams(units, 256), 0, body);
  }

  static void heads_backward(const Heads<T>& heads, const T* qkv, const float* rstd, const T* dq,
                             const T* dk, const T* dv, T* d_qkv, float* partials,
                             int64_t num_partials) {
    const int64_t units = heads.tokens * (heads.num_heads + 2 * heads.num_kv_heads);
    const bool has_sums = partials != nullptr;
    if (const int lanes = lanes_of(heads, {qkv, dq, dk, dv, d_qkv}); lanes > 0) {
      const HeadsBackwardByLanes<kFull, T> body{heads, qkv,   rstd,     dq,   dk,
                                                dv,    d_qkv, partials, lanes};
      const int64_t at_once = kHeadThreads / lanes;
      const int64_t num_teams = has_sums ? num_partials : teams(ceil_div(units, at_once), 64);
      Launcher::template run<kHeadThreads>(num_teams, 0, body);
      return;
    }
    constexpr int64_t kMostHeadScratch = 1024;  // several teams share a processor's memory
    const bool fits = has_sums && 2 * heads.head_dim <= kMostHeadScratch;
    const HeadsBackward<T> body{heads, qkv, rstd, dq, dk, dv, d_qkv, partials};
    Launcher::template run<kHeadThreads>(has_sums ? num_partials : teams(units, 256),
                                         fits ? 2 * heads.head_dim : 0, body);
  }

  static void cross_entropy(T* logits, const int64_t* labels, float* losses, int64_t rows,
                            int64_t width, const LogitsToLosses& options) {
    const auto run = [&](auto pack) {
      const CrossEntropy<pack, T> body{logits, labels, losses, rows, width, options};
      Launcher::template run<kLogitThreads>(teams(rows, 4), 0, body);
    };
    by_width(width, {logits}, run);
  }

  static void squares(const T* numbers, int64_t count, double* partials, int64_t num_partials) {
    const auto run = [&](auto width) {
      const Squares<width, T> body{numbers, count, partials};
      Launcher::template run<kRowThreads>(num_partials, 0, body);
    };
    by_width(count, {numbers}, run);
  }

  static bool low_rank(const LowRank<T>& product) {
    const bool is_read_by_packs =
        product.rank % kFull == 0 && fits_packs(kFull, product.h_stride, {product.h});
    if (!is_read_by_packs || product.rank > 32 || product.rows == 0 || product.width == 0) {
      return false;
    }
    // So wide that the factors fit into a thread's registers.
    const auto run = [&](auto width, auto rank) {
      if (product.width % width != 0) return false;
      if (!fits_packs<T>(width, product.out_stride, {product.out})) return false;
      const int64_t in_team = int64_t{kRowThreads} * width;
      const int64_t parts = ceil_div(product.width, in_team);
      const int64_t most = std::max<int64_t>(4 * Launcher::num_processors() / parts, 1);
      const LowRankProduct<width, rank, T> body{product, parts};
      Launcher::template run<kRowThreads>(parts * std::min(product.rows, most), 0, body);
      return true;
    };
    if (product.rank <= 8) return run(Width<kFull>(), Width<8>());
    if (product.rank <= 16) return run(Width<4>(), Width<16>());
    if (product.rank <= 24) return run(Width<4>(), Width<24>());
    return run(Width<2>(), Width<32>());
  }

  static void drop(const cpu::DropoutStream& dropout, const RandomRows& where, const T* x, T* out) {
    const Drop<T> body{dropout, where, x, out};
    const int64_t pieces = where.rows * ((where.width + 3) / 4 + 1);
    Launcher::template run<kRowThreads>(teams(ceil_div(pieces, kRowThreads), 16), 0, body);
  }

  static void four_bit_values(const uint8_t* bytes, const float* factors, const float* codes,
                              T* out, int64_t count) {
    FourBitValues<T> body{bytes, factors, {}, out, count};
    std::copy(codes, codes + 16, body.codes.of);
    Launcher::template run<kRowThreads>(teams(ceil_div(count, 8 * kRowThreads), 16), 16, body);
  }

  static constexpr DeviceRows<T> table() {
    return {rms_forward,   rms_backward,   gated_forward,  gated_backward,
            heads_forward, heads_backward, cross_entropy,  squares,
            low_rank,      drop,           four_bit_values};
  }

 private:
  /// How many threads have a pack of each half of a head, all of which turns; 0: not by lanes.
  static int lanes_of(const Heads<T>& heads, std::initializer_list<const T*> rows) {
    const int64_t lanes = heads.half / kFull;
    const bool is_power_of_2 = lanes > 0 && (lanes & (lanes - 1)) == 0;
    const bool fits = is_power_of_2 && lanes <= kHeadThreads && 2 * heads.half == heads.head_dim &&
                      fits_packs(kFull, heads.half, rows) &&
                      fits_packs(kFull, heads.half, {heads.q_norm, heads.k_norm}) &&
                      fits_packs(kFull, heads.half, {heads.cos, heads.sin});
    return fits ? static_cast<int>(lanes) : 0;
  }

  template <typename Run>
  static void by_width(int64_t dim, std::initializer_list<const T*> rows, const Run& run) {
    // Threads of which half have nothing to read wait longer for memory than narrower ones.
    const bool is_short = dim < int64_t{kRowThreads} * kFull;
    if (!is_short && fits_packs(kFull, dim, rows)) {
      run(Width<kFull>());
    } else if (fits_packs(kFull / 2, dim, rows)) {
      run(Width<kFull / 2>());
    } else {
      run(Width<1>());
    }
  }
};

template <typename Launcher, typename P, typename G, typename S>
void launch_adam(void* p_in, const void* g_in, void* m_in, void* v_in, void* v_max_in,
                 const float* factors, int64_t count) {
  // 16 bytes where all are as narrow.
  constexpr int kThreads = 256, kWidth = sizeof(P) + sizeof(G) + sizeof(S) == 6 ? 8 : 4;
  auto* const p = static_cast<P*>(p_in);
  const auto* const g = static_cast<const G*>(g_in);
  auto* const m = static_cast<S*>(m_in);
  auto* const v = static_cast<S*>(v_in);
  auto* const v_max = static_cast<S*>(v_max_in);
  AdamFactors values{};
  std::copy(factors, factors + cpu::kNumAdamFactors, values.of);
  const auto run = [&](auto width) {
    const Adam<width, P, G, S> body{p, g, m, v, v_max, values, count};
    const int64_t pieces = (count + kThreads * width - 1) / (kThreads * width);
    Launcher::template run<kThreads>(
        std::clamp<int64_t>(pieces, 1, 16 * Launcher::num_processors()), 0, body);
  };
  const bool fits = fits_packs<P>(kWidth, count, {p}) && fits_packs<G>(kWidth, count, {g}) &&
                    fits_packs<S>(kWidth, count, {m, v, v_max});
  if (fits) {
    run(Width<kWidth>());
  } else {
    run(Width<1>());
  }
}

template <typename Launcher>
constexpr DeviceKernels kernels_by() {
  using B = Bfloat16;
  return {[] { return 4 * Launcher::num_processors(); },
          [] { return 16 * Launcher::num_processors(); },
          Launcher::has_flash_attention,
          Launcher::has_cudnn_attention,
          Launcher::has_grouped_products,
          RowLaunches<Launcher, float>::table(),
          RowLaunches<Launcher, B>::table(),
          {{{launch_adam<Launcher, float, float, float>, launch_adam<Launcher, float, float, B>},
            {launch_adam<Launcher, float, B, float>, launch_adam<Launcher, float, B, B>}},
           {{launch_adam<Launcher, B, float, float>, launch_adam<Launcher, B, float, B>},
            {launch_adam<Launcher, B, B, float>, launch_adam<Launcher, B, B, B>}}}};
}

}  // namespace automodel::kernels::device
