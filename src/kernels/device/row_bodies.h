#pragma once

// What the kernels of device_kernels.h do, written once for the device and for tests on the host: a
// body is work of a team of threads. A team offers
//   kThreads          how many threads it has
//   index(), count()  which of how many teams it is
//   each(f)           f(thread) by each thread; then all wait for each other
//   sum(f), most(f)   of f(thread) over the threads, as float32; total(f) as float64
//   sum_in_groups(lanes, f, g)
//                     g(thread, sum of f over the thread's group of `lanes` neighbours); of teams
//                     of 32, lanes a power of 2
//   sum_between_groups(lanes, f, g)
//                     g(thread, sum of f over the threads of its place in all groups), likewise
//   scratch()         memory that the team's threads share, as many floats as the launch asked for
//   Own<S>            a value of each thread's own, own[thread]
//   refuse()          ends the device's work with an error
// Every thread of a team makes the same calls. kWidth is how many numbers are moved at once.

#include "kernels/device/kernel_table.h"
#include "kernels/device/storage.h"

namespace automodel::kernels::device {

struct SiluOf {
  AM_DEVICE static void of(float x, float& value, float& slope) {
    const float sigmoid = 1.0F / (1.0F + expf(-x));
    value = x * sigmoid;
    slope = sigmoid + value * (1.0F - sigmoid);
  }
};

struct TanhGeluOf {
  AM_DEVICE static void of(float x, float& value, float& slope) {
    constexpr float kScale = 0.79788456080286535588F;  // sqrt(2 / pi)
    constexpr float kCubic = 0.044715F;
    // (1 + tanh(z)) / 2 is the sigmoid of 2 z; far below, where the value is 0, expf would
    // overflow.
    constexpr float kFarBelow = -40.0F;
    const float z = kScale * (x + kCubic * x * x * x);
    const float sigmoid = 1.0F / (1.0F + expf(-2.0F * (z < kFarBelow ? kFarBelow : z)));
    const float inner = 2.0F * kScale * (1.0F + 3.0F * kCubic * x * x);
    value = x * sigmoid;
    slope = sigmoid + value * (1.0F - sigmoid) * inner;
  }
};

/// a / b, by 32 bits where they suffice: of 64 a device has no instruction.
AM_DEVICE int64_t quotient(int64_t a, int64_t b) {
  const bool is_narrow = ((a | b) >> 32) == 0;
  return is_narrow ? static_cast<int64_t>(static_cast<uint32_t>(a) / static_cast<uint32_t>(b))
                   : a / b;
}

/// f(i) for the first of each kWidth of a row's numbers that are a thread's.
template <int kWidth, typename Team, typename F>
AM_DEVICE void over_row(int thread, int64_t dim, const F& f) {
  for (int64_t i = int64_t{thread} * kWidth; i < dim; i += int64_t{Team::kThreads} * kWidth) f(i);
}

template <int kWidth, typename T>
struct RmsForward {
  const T* x;
  const T* residual;  // null: none
  T* sum;
  const T* w;
  T* y;
  float* rstd;
  int64_t rows, dim;
  float eps, one;

  template <typename Team>
  AM_DEVICE void operator()(Team& team) const {
    for (int64_t row = team.index(); row < rows; row += team.count()) {
      const T* const normed = (residual != nullptr ? sum : x) + row * dim;
      const float squares = team.sum([&](int thread) {
        float total = 0;
        over_row<kWidth, Team>(thread, dim, [&](int64_t i) {
          Pack<T, kWidth> in = load<kWidth>(x + row * dim + i);
          if (residual != nullptr) {
            const Pack<T, kWidth> other = load<kWidth>(residual + row * dim + i);
            for (int k = 0; k < kWidth; ++k) {
              put(in.numbers[k], widened(in.numbers[k]) + widened(other.numbers[k]));
            }
            store<kWidth>(sum + row * dim + i, in);
          }
          for (int k = 0; k < kWidth; ++k) total += widened(in.numbers[k]) * widened(in.numbers[k]);
        });
        return total;
      });
      const float scale = 1.0F / sqrtf(squares / static_cast<float>(dim) + eps);
      team.each([&](int thread) {
        if (thread == 0) rstd[row] = scale;
        over_row<kWidth, Team>(thread, dim, [&](int64_t i) {
          Pack<T, kWidth> out = load<kWidth>(normed + i);  // the thread's own numbers of `sum`
          const Pack<T, kWidth> weights = load<kWidth>(w + i);
          for (int k = 0; k < kWidth; ++k) {
            put(out.numbers[k],
                widened(out.numbers[k]) * scale * (widened(weights.numbers[k]) + one));
          }
          store<kWidth>(y + row * dim + i, out);
        });
      });
    }
  }
};

/// A team's row of partial sums, which its threads first make 0. Each thread adds to numbers of its
/// own, always the same.
template <int kWidth, typename Team>
AM_DEVICE float* zeroed_sums(Team& team, float* partials, int64_t dim) {
  float* const sums = team.scratch() != nullptr ? team.scratch() : partials + team.index() * dim;
  team.each([&](int thread) {
    over_row<kWidth, Team>(thread, dim, [&](int64_t i) {
      for (int k = 0; k < kWidth; ++k) sums[i + k] = 0;
    });
  });
  return sums;
}

template <int kWidth, typename Team>
AM_DEVICE void keep_sums(Team& team, const float* sums, float* partials, int64_t dim) {
  float* const to = partials + team.index() * dim;
  if (sums == to) return;
  team.each([&](int thread) {
    over_row<kWidth, Team>(thread, dim, [&](int64_t i) {
      for (int k = 0; k < kWidth; ++k) to[i + k] = sums[i + k];
    });
  });
}

/// The gradients of RMSNorms. A thread keeps its packs of a row, kPieces at most; 0: any number,
/// read twice.
template <int kWidth, int kPieces, typename T>
struct RmsBackward {
  const T* dy;
  const T* x;
  const T* w;
  const float* rstd;
  const T* d_sum;  // null: none
  T* dx;
  float* partials;  // null: the weight is not trained
  int64_t rows, dim;
  float one;

  template <typename Team>
  AM_DEVICE void operator()(Team& team) const {
    if constexpr (kPieces > 0) {
      by_kept_packs(team);
    } else {
      by_loops(team);
    }
  }

 private:
  /// What a thread keeps of a row, and its sums of all of them.
  struct Kept {
    Pack<T, kWidth> grads[kPieces > 0 ? kPieces : 1];
    Pack<T, kWidth> inputs[kPieces > 0 ? kPieces : 1];
    Pack<T, kWidth> others[kPieces > 0 ? kPieces : 1];  // of d_sum
    float sums[(kPieces > 0 ? kPieces : 1) * kWidth];
  };

  template <typename Team>
  AM_DEVICE void by_kept_packs(Team& team) const {
    typename Team::template Own<Kept> own;
    team.each([&](int thread) {
      for (float& sum : own[thread].sums) sum = 0;
    });
    for (int64_t row = team.index(); row < rows; row += team.count()) {
      const float scale = rstd[row];
      const float dot = team.sum([&](int thread) {
        Kept& kept = own[thread];
        float total = 0;
        AM_UNROLL
        for (int p = 0; p < kPieces; ++p) {
          const int64_t i = (int64_t{p} * Team::kThreads + thread) * kWidth;
          if (i >= dim) break;
          kept.grads[p] = load<kWidth>(dy + row * dim + i);
          kept.inputs[p] = load<kWidth>(x + row * dim + i);
          if (d_sum != nullptr) kept.others[p] = load<kWidth>(d_sum + row * dim + i);
          const Pack<T, kWidth> weights = load<kWidth>(w + i);
          AM_UNROLL
          for (int k = 0; k < kWidth; ++k) {
            const float product =
                widened(kept.grads[p].numbers[k]) * widened(kept.inputs[p].numbers[k]) * scale;
            kept.sums[p * kWidth + k] += product;
            total += product * (widened(weights.numbers[k]) + one);
          }
        }
        return total;
      });
      const float mean = dot / static_cast<float>(dim) * scale;
      team.each([&](int thread) {
        const Kept& kept = own[thread];
        AM_UNROLL
        for (int p = 0; p < kPieces; ++p) {
          const int64_t i = (int64_t{p} * Team::kThreads + thread) * kWidth;
          if (i >= dim) break;
          put_gradients(row * dim + i, i, kept.grads[p], kept.inputs[p],
                        d_sum != nullptr ? kept.others[p] : Pack<T, kWidth>{}, scale, mean);
        }
      });
    }
    if (partials == nullptr) return;
    float* const to = partials + team.index() * dim;
    team.each([&](int thread) {
      AM_UNROLL
      for (int p = 0; p < kPieces; ++p) {
        const int64_t i = (int64_t{p} * Team::kThreads + thread) * kWidth;
        if (i >= dim) break;
        for (int k = 0; k < kWidth; ++k) to[i + k] = own[thread].sums[p * kWidth + k];
      }
    });
  }

  template <typename Team>
  AM_DEVICE void by_loops(Team& team) const {
    float* const sums = partials != nullptr ? zeroed_sums<kWidth>(team, partials, dim) : nullptr;
    for (int64_t row = team.index(); row < rows; row += team.count()) {
      const float scale = rstd[row];
      const float dot = team.sum([&](int thread) {
        float total = 0;
        over_row<kWidth, Team>(thread, dim, [&](int64_t i) {
          const Pack<T, kWidth> grad = load<kWidth>(dy + row * dim + i);
          const Pack<T, kWidth> in = load<kWidth>(x + row * dim + i);
          const Pack<T, kWidth> weights = load<kWidth>(w + i);
          for (int k = 0; k < kWidth; ++k) {
            const float product = widened(grad.numbers[k]) * widened(in.numbers[k]) * scale;
            if (sums != nullptr) sums[i + k] += product;
            total += product * (widened(weights.numbers[k]) + one);
          }
        });
        return total;
      });
      const float mean = dot / static_cast<float>(dim) * scale;
      team.each([&](int thread) {
        over_row<kWidth, Team>(thread, dim, [&](int64_t i) {
          const int64_t at = row * dim + i;
          put_gradients(at, i, load<kWidth>(dy + at), load<kWidth>(x + at),
                        d_sum != nullptr ? load<kWidth>(d_sum + at) : Pack<T, kWidth>{}, scale,
                        mean);
        });
      });
    }
    if (sums != nullptr) keep_sums<kWidth>(team, sums, partials, dim);
  }

  /// Writes the gradients of the pack at `at`, whose weights are from `i` on; `out`: d_sum's pack,
  /// to which they are added.
  AM_DEVICE void put_gradients(int64_t at, int64_t i, const Pack<T, kWidth>& grads,
                               const Pack<T, kWidth>& inputs, Pack<T, kWidth> out, float scale,
                               float mean) const {
    const Pack<T, kWidth> weights = load<kWidth>(w + i);
    AM_UNROLL
    for (int k = 0; k < kWidth; ++k) {
      const float through =
          scale * (widened(grads.numbers[k]) * (widened(weights.numbers[k]) + one)) -
          mean * scale * widened(inputs.numbers[k]);
      put(out.numbers[k], widened(out.numbers[k]) + through);
    }
    store<kWidth>(dx + at, out);
  }
};

template <int kWidth, typename Function, typename T>
struct GatedForward {
  const T* gate_up;
  T* out;
  int64_t rows, half;

  template <typename Team>
  AM_DEVICE void operator()(Team& team) const {
    for (int64_t row = team.index(); row < rows; row += team.count()) {
      team.each([&](int thread) {
        over_row<kWidth, Team>(thread, half, [&](int64_t i) {
          Pack<T, kWidth> gate = load<kWidth>(gate_up + row * 2 * half + i);
          const Pack<T, kWidth> up = load<kWidth>(gate_up + row * 2 * half + half + i);
          for (int k = 0; k < kWidth; ++k) {
            float value, slope;
            Function::of(widened(gate.numbers[k]), value, slope);
            put(gate.numbers[k], value * widened(up.numbers[k]));
          }
          store<kWidth>(out + row * half + i, gate);
        });
      });
    }
  }
};

template <int kWidth, typename Function, typename T>
struct GatedBackward {
  const T* d_out;
  const T* gate_up;
  T* d_gate_up;
  int64_t rows, half;

  template <typename Team>
  AM_DEVICE void operator()(Team& team) const {
    for (int64_t row = team.index(); row < rows; row += team.count()) {
      team.each([&](int thread) {
        over_row<kWidth, Team>(thread, half, [&](int64_t i) {
          const Pack<T, kWidth> d = load<kWidth>(d_out + row * half + i);
          Pack<T, kWidth> gate = load<kWidth>(gate_up + row * 2 * half + i);
          Pack<T, kWidth> up = load<kWidth>(gate_up + row * 2 * half + half + i);
          for (int k = 0; k < kWidth; ++k) {
            float value, slope;
            Function::of(widened(gate.numbers[k]), value, slope);
            const float gradient = widened(d.numbers[k]);
            put(gate.numbers[k], gradient * widened(up.numbers[k]) * slope);
            put(up.numbers[k], gradient * value);
          }
          store<kWidth>(d_gate_up + row * 2 * half + i, gate);
          store<kWidth>(d_gate_up + row * 2 * half + half + i, up);
        });
      });
    }
  }
};

template <int kWidth, typename T>
struct CrossEntropy {
  T* logits;
  const int64_t* labels;
  float* losses;
  int64_t rows, width;
  LogitsToLosses options;

  template <typename Team>
  AM_DEVICE void operator()(Team& team) const {
    const auto scaled = [&](T logit) {
      const float z = widened(logit) * options.scale;
      return options.cap > 0 ? options.cap * tanhf(z / options.cap) : z;
    };
    for (int64_t row = team.index(); row < rows; row += team.count()) {
      T* const z = logits + row * width;
      const int64_t label = labels[row];
      if (label == options.ignore_index) {
        team.each([&](int thread) {
          if (thread == 0) losses[row] = 0;
          Pack<T, kWidth> zeros;
          for (int k = 0; k < kWidth; ++k) put(zeros.numbers[k], 0.0F);
          over_row<kWidth, Team>(thread, width, [&](int64_t i) { store<kWidth>(z + i, zeros); });
        });
        continue;
      }
      if (label < 0 || label >= width) team.refuse();
      // The largest so far, and the sum of exponentials beside it: one pass over the logits.
      constexpr float kLowest = -3.0e38F;
      typename Team::template Own<float> own_most, own_sum;
      const float most = team.most([&](int thread) {
        float top = kLowest, sum = 0;
        over_row<kWidth, Team>(thread, width, [&](int64_t i) {
          const Pack<T, kWidth> in = load<kWidth>(z + i);
          float values[kWidth];
          float largest = top;
          for (int k = 0; k < kWidth; ++k) {
            values[k] = scaled(in.numbers[k]);
            largest = values[k] > largest ? values[k] : largest;
          }
          if (largest > top) sum *= expf(top - largest);
          top = largest;
          for (int k = 0; k < kWidth; ++k) sum += expf(values[k] - top);
        });
        own_most[thread] = top;
        own_sum[thread] = sum;
        return top;
      });
      const float sum =
          team.sum([&](int thread) { return own_sum[thread] * expf(own_most[thread] - most); });
      const float share = 1.0F / sum;
      team.each([&](int thread) {
        if (thread == 0) losses[row] = logf(sum) + most - scaled(z[label]);
      });
      team.each([&](int thread) {
        over_row<kWidth, Team>(thread, width, [&](int64_t i) {
          Pack<T, kWidth> pack = load<kWidth>(z + i);
          for (int k = 0; k < kWidth; ++k) {
            const float value = scaled(pack.numbers[k]);
            const float ratio = options.cap > 0 ? value / options.cap : 0.0F;
            const float probability = expf(value - most) * share;
            const float error = probability - (i + k == label ? 1.0F : 0.0F);
            put(pack.numbers[k], error * (1.0F - ratio * ratio) * options.scale * options.factor);
          }
          store<kWidth>(z + i, pack);
        });
      });
    }
  }
};

/// A thread has the factors of kWidth columns, and goes over rows. kRank: at least the rank.
template <int kWidth, int kRank, typename T>
struct LowRankProduct {
  LowRank<T> product;
  int64_t column_parts;  ///< how many teams share a row

  template <typename Team>
  AM_DEVICE void operator()(Team& team) const {
    struct Factors {
      float of[kRank][kWidth];
    };
    typename Team::template Own<Factors> own;
    const int64_t part = team.index() - quotient(team.index(), column_parts) * column_parts;
    const int64_t first = quotient(team.index(), column_parts);
    const int64_t step = quotient(team.count(), column_parts);
    team.each([&](int thread) {
      const int64_t column = (part * Team::kThreads + thread) * kWidth;
      if (column >= product.width) return;
      Factors& factors = own[thread];
      AM_UNROLL
      for (int r = 0; r < kRank; ++r) {
        AM_UNROLL
        for (int j = 0; j < kWidth; ++j) {
          const int64_t at = r * product.rank_stride + (column + j) * product.column_stride;
          factors.of[r][j] =
              r < product.rank ? widened(product.factors[at]) * product.factor : 0.0F;
        }
      }
      for (int64_t row = first; row < product.rows; row += step) {
        float sums[kWidth] = {};
        AM_UNROLL
        for (int r = 0; r < kRank; r += kFullWidth<T>) {
          if (r >= product.rank) break;
          const auto h = load<kFullWidth<T>>(product.h + row * product.h_stride + r);
          AM_UNROLL
          for (int i = 0; i < kFullWidth<T>; ++i) {
            const float of_row = widened(h.numbers[i]);
            AM_UNROLL
            for (int j = 0; j < kWidth; ++j) sums[j] += of_row * factors.of[r + i][j];
          }
        }
        Pack<T, kWidth> out;
        AM_UNROLL
        for (int j = 0; j < kWidth; ++j) put(out.numbers[j], sums[j]);
        store<kWidth>(product.out + row * product.out_stride + column, out);
      }
    });
  }
};

/// `numbers` in a row of `count`, of which each team takes pieces.
template <int kWidth, typename T>
struct Squares {
  const T* numbers;
  int64_t count;
  double* partials;

  template <typename Team>
  AM_DEVICE void operator()(Team& team) const {
    const int64_t stride = int64_t{Team::kThreads} * kWidth;
    const double sum = team.total([&](int thread) {
      double total = 0;
      for (int64_t i = team.index() * stride + int64_t{thread} * kWidth; i < count;
           i += team.count() * stride) {
        const Pack<T, kWidth> in = load<kWidth>(numbers + i);
        for (int k = 0; k < kWidth; ++k) {
          const auto wide = static_cast<double>(widened(in.numbers[k]));
          total += wide * wide;
        }
      }
      return total;
    });
    team.each([&](int thread) {
      if (thread == 0) partials[team.index()] = sum;
    });
  }
};

/// Block `block` of a stream of Philox-4x32-10 (Salmon et al. 2011), as tensor/random.h draws it.
struct RandomWords {
  uint32_t of[4];

  AM_DEVICE RandomWords(const cpu::DropoutStream& key, uint64_t block)
      : of{static_cast<uint32_t>(block), static_cast<uint32_t>(block >> 32),
           static_cast<uint32_t>(key.stream), static_cast<uint32_t>(key.stream >> 32)} {
    auto key0 = static_cast<uint32_t>(key.seed), key1 = static_cast<uint32_t>(key.seed >> 32);
    for (int round = 0; round < 10; ++round) {
      const uint64_t left = uint64_t{0xD2511F53} * of[0], right = uint64_t{0xCD9E8D57} * of[2];
      of[0] = static_cast<uint32_t>(right >> 32) ^ of[1] ^ key0;
      of[1] = static_cast<uint32_t>(right);
      of[2] = static_cast<uint32_t>(left >> 32) ^ of[3] ^ key1;
      of[3] = static_cast<uint32_t>(left);
      key0 += 0x9E3779B9U;
      key1 += 0xBB67AE85U;
    }
  }
};

/// A thread's piece of a row is what one block of the stream decides about.
template <typename T>
struct Drop {
  cpu::DropoutStream dropout;
  RandomRows where;
  const T* x;
  T* out;

  template <typename Team>
  AM_DEVICE void operator()(Team& team) const {
    // A row that begins inside a block may end inside one block more.
    const int64_t row_pieces = (where.width + 3) / 4 + 1;
    const int64_t stride = team.count() * Team::kThreads;
    team.each([&](int thread) {
      for (int64_t piece = team.index() * Team::kThreads + thread; piece < where.rows * row_pieces;
           piece += stride) {
        apply(piece / row_pieces, piece % row_pieces);
      }
    });
  }

 private:
  AM_DEVICE void apply(int64_t row, int64_t piece) const {
    const uint64_t first = where.first +
                           static_cast<uint64_t>(row / where.inner) * where.outer_stride +
                           static_cast<uint64_t>(row % where.inner) * where.inner_stride;
    // The column of the block's first number; the row may begin behind it.
    const int64_t column = piece * 4 - static_cast<int64_t>(first % 4);
    if (column >= where.width) return;
    const RandomWords words(dropout, first / 4 + static_cast<uint64_t>(piece));
    for (int k = 0; k < 4; ++k) {
      const int64_t at = column + k;
      if (at < 0 || at >= where.width) continue;
      const float factor = (words.of[k] >> 8) >= dropout.least ? dropout.scale : 0.0F;
      put(out[row * where.width + at], widened(x[row * where.width + at]) * factor);
    }
  }
};

/// The factors of AdamFactor, as a value that a launch can pass on.
struct AdamFactors {
  float of[cpu::kNumAdamFactors];
};

template <int kWidth, typename P, typename G, typename S>
struct Adam {
  P* p;
  const G* g;
  S* m;
  S* v;
  S* v_max;  // null: none
  AdamFactors factors;
  int64_t count;

  template <typename Team>
  AM_DEVICE void operator()(Team& team) const {
    const float* const f = factors.of;
    const int64_t stride = int64_t{Team::kThreads} * kWidth;
    team.each([&](int thread) {
      for (int64_t i = team.index() * stride + int64_t{thread} * kWidth; i < count;
           i += team.count() * stride) {
        Pack<P, kWidth> weights = load<kWidth>(p + i);
        const Pack<G, kWidth> grads = load<kWidth>(g + i);
        Pack<S, kWidth> first = load<kWidth>(m + i), second = load<kWidth>(v + i);
        Pack<S, kWidth> largest = v_max != nullptr ? load<kWidth>(v_max + i) : second;
        for (int k = 0; k < kWidth; ++k) {
          const float old = widened(weights.numbers[k]);
          const float grad = widened(grads.numbers[k]) * f[cpu::kGradScale] + f[cpu::kL2] * old;
          const float average =
              f[cpu::kBeta1] * widened(first.numbers[k]) + f[cpu::kOneMinusBeta1] * grad;
          float square =
              f[cpu::kBeta2] * widened(second.numbers[k]) + f[cpu::kOneMinusBeta2] * grad * grad;
          put(first.numbers[k], average);
          put(second.numbers[k], square);
          if (v_max != nullptr) {
            const float before = widened(largest.numbers[k]);
            square = square <= before ? before : square;  // a NaN in v stays one
            put(largest.numbers[k], square);
          }
          const float root = sqrtf(square) / f[cpu::kRootCorrection] + f[cpu::kEps];
          put(weights.numbers[k], old * f[cpu::kDecay] - f[cpu::kStepSize] * average / root);
        }
        store<kWidth>(p + i, weights);
        store<kWidth>(m + i, first);
        store<kWidth>(v + i, second);
        if (v_max != nullptr) store<kWidth>(v_max + i, largest);
      }
    });
  }
};

}  // namespace automodel::kernels::device
