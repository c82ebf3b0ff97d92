#pragma once

// What the kernels of device_kernels.h do, written once for the device and for tests on the host: a
// body is work of a team of threads. A team offers
//   kThreads          how many threads it has
//   index(), count()  which of how many teams it is
//   each(f)           f(thread) by each thread; then all wait for each other
//   sum(f), most(f)   of f(thread) over the threads, as float32; total(f) as float64
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

template <int kWidth, typename T>
struct RmsBackward {
  const T* dy;
  const T* x;
  const T* w;
  const float* rstd;
  const T* d_sum;  // null: none
  T* dx;
  float* partials;
  int64_t rows, dim;
  float one;

  template <typename Team>
  AM_DEVICE void operator()(Team& team) const {
    float* const sums = zeroed_sums<kWidth>(team, partials, dim);
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
            sums[i + k] += product;
            total += product * (widened(weights.numbers[k]) + one);
          }
        });
        return total;
      });
      const float mean = dot / static_cast<float>(dim) * scale;
      team.each([&](int thread) {
        over_row<kWidth, Team>(thread, dim, [&](int64_t i) {
          const Pack<T, kWidth> grad = load<kWidth>(dy + row * dim + i);
          const Pack<T, kWidth> in = load<kWidth>(x + row * dim + i);
          const Pack<T, kWidth> weights = load<kWidth>(w + i);
          Pack<T, kWidth> out{};
          if (d_sum != nullptr) out = load<kWidth>(d_sum + row * dim + i);
          for (int k = 0; k < kWidth; ++k) {
            const float through =
                scale * (widened(grad.numbers[k]) * (widened(weights.numbers[k]) + one)) -
                mean * scale * widened(in.numbers[k]);
            put(out.numbers[k], widened(out.numbers[k]) + through);
          }
          store<kWidth>(dx + row * dim + i, out);
        });
      });
    }
    keep_sums<kWidth>(team, sums, partials, dim);
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

/// One head of a token: of q, k or v.
template <typename T>
struct HeadPlace {
  int64_t unit;   ///< which of all heads of all tokens
  bool is_value;  ///< one of v: neither normed nor rotated
  bool is_query;
  const T* norm;   ///< its weight; null: none
  int64_t target;  ///< of its first number in q, k or v
  int64_t scale;   ///< of its rstd
  int64_t row;     ///< of its first cosine

  AM_DEVICE HeadPlace(const Heads<T>& heads, int64_t which) : unit(which) {
    const int64_t normed = heads.num_heads + heads.num_kv_heads;
    const int64_t token = which / (normed + heads.num_kv_heads);
    const int64_t head = which % (normed + heads.num_kv_heads);
    is_value = head >= normed;
    is_query = head < heads.num_heads;
    norm = is_value ? nullptr : is_query ? heads.q_norm : heads.k_norm;
    const int64_t of_kind = is_query ? head : is_value ? head - normed : head - heads.num_heads;
    target = (token * (is_query ? heads.num_heads : heads.num_kv_heads) + of_kind) * heads.head_dim;
    scale = token * normed + head;
    const int64_t position =
        heads.positions != nullptr ? heads.positions[token] : token % heads.length;
    row = position * heads.half;
  }
};

template <typename T>
AM_DEVICE int64_t num_units(const Heads<T>& heads) {
  return heads.tokens * (heads.num_heads + 2 * heads.num_kv_heads);
}

template <typename T>
struct HeadsForward {
  Heads<T> heads;
  const T* qkv;
  T* q;
  T* k;
  T* v;
  float* rstd;

  template <typename Team>
  AM_DEVICE void operator()(Team& team) const {
    const int64_t dim = heads.head_dim;
    const float one = heads.adds_one ? 1.0F : 0.0F;
    for (int64_t unit = team.index(); unit < num_units(heads); unit += team.count()) {
      const HeadPlace<T> place(heads, unit);
      const T* const in = qkv + unit * dim;
      T* const out = (place.is_value ? v : place.is_query ? q : k) + place.target;
      float scale = 1;
      if (place.norm != nullptr) {
        const float squares = team.sum([&](int thread) {
          float total = 0;
          over_row<1, Team>(thread, dim,
                            [&](int64_t i) { total += widened(in[i]) * widened(in[i]); });
          return total;
        });
        scale = 1.0F / sqrtf(squares / static_cast<float>(dim) + heads.eps);
      }
      const auto normed = [&](int64_t i) {
        return place.norm == nullptr ? widened(in[i])
                                     : widened(in[i]) * scale * (widened(place.norm[i]) + one);
      };
      const int64_t half = place.is_value ? 0 : heads.half;
      team.each([&](int thread) {
        if (thread == 0 && !place.is_value) rstd[place.scale] = scale;
        over_row<1, Team>(thread, half, [&](int64_t i) {
          const float a = normed(i), b = normed(i + half);
          const float cos = heads.cos[place.row + i], sin = heads.sin[place.row + i];
          put(out[i], a * cos - b * sin);
          put(out[i + half], b * cos + a * sin);
        });
        over_row<1, Team>(thread, dim - 2 * half,
                          [&](int64_t i) { put(out[2 * half + i], normed(2 * half + i)); });
      });
    }
  }
};

template <typename T>
struct HeadsBackward {
  Heads<T> heads;
  const T* qkv;  // null, as rstd and partials, without norms
  const float* rstd;
  const T* dq;
  const T* dk;
  const T* dv;
  T* d_qkv;
  float* partials;

  template <typename Team>
  AM_DEVICE void operator()(Team& team) const {
    const int64_t dim = heads.head_dim;
    const float one = heads.adds_one ? 1.0F : 0.0F;
    const bool has_norm = qkv != nullptr;
    float* const sums = has_norm ? zeroed_sums<1>(team, partials, 2 * dim) : nullptr;
    for (int64_t unit = team.index(); unit < num_units(heads); unit += team.count()) {
      const HeadPlace<T> place(heads, unit);
      const T* const grad = (place.is_value ? dv : place.is_query ? dq : dk) + place.target;
      T* const out = d_qkv + unit * dim;
      const int64_t half = place.is_value ? 0 : heads.half;
      /// The gradient before the rotation.
      const auto turned_back = [&](int64_t i) {
        if (i >= 2 * half) return widened(grad[i]);
        const int64_t pair = i < half ? i : i - half;
        const float cos = heads.cos[place.row + pair], sin = heads.sin[place.row + pair];
        const float a = widened(grad[pair]), b = widened(grad[pair + half]);
        return i < half ? a * cos + b * sin : b * cos - a * sin;
      };
      if (place.norm == nullptr) {
        team.each([&](int thread) {
          over_row<1, Team>(thread, dim, [&](int64_t i) { put(out[i], turned_back(i)); });
        });
        continue;
      }
      const T* const in = qkv + unit * dim;
      const float scale = rstd[place.scale];
      float* const of_norm = sums + (place.is_query ? 0 : dim);
      // A thread's numbers of a row of 2 dim are not those of a row of dim: what one has made 0
      // another adds to, after all have waited.
      const float dot = team.sum([&](int thread) {
        float total = 0;
        over_row<1, Team>(thread, dim, [&](int64_t i) {
          const float product = turned_back(i) * widened(in[i]) * scale;
          of_norm[i] += product;
          total += product * (widened(place.norm[i]) + one);
        });
        return total;
      });
      const float mean = dot / static_cast<float>(dim) * scale;
      team.each([&](int thread) {
        over_row<1, Team>(thread, dim, [&](int64_t i) {
          put(out[i], scale * (turned_back(i) * (widened(place.norm[i]) + one)) -
                          mean * scale * widened(in[i]));
        });
      });
    }
    if (has_norm) keep_sums<1>(team, sums, partials, 2 * dim);
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
          for (int k = 0; k < kWidth; ++k) {
            const float value = scaled(in.numbers[k]);
            if (value > top) {
              sum = sum * expf(top - value) + 1.0F;
              top = value;
            } else {
              sum += expf(value - top);
            }
          }
        });
        own_most[thread] = top;
        own_sum[thread] = sum;
        return top;
      });
      const float sum =
          team.sum([&](int thread) { return own_sum[thread] * expf(own_most[thread] - most); });
      team.each([&](int thread) {
        if (thread == 0) losses[row] = logf(sum) + most - scaled(z[label]);
      });
      team.each([&](int thread) {
        over_row<kWidth, Team>(thread, width, [&](int64_t i) {
          Pack<T, kWidth> pack = load<kWidth>(z + i);
          for (int k = 0; k < kWidth; ++k) {
            const float value = scaled(pack.numbers[k]);
            const float ratio = options.cap > 0 ? value / options.cap : 0.0F;
            const float probability = expf(value - most) / sum;
            const float error = probability - (i + k == label ? 1.0F : 0.0F);
            put(pack.numbers[k], error * (1.0F - ratio * ratio) * options.scale * options.factor);
          }
          store<kWidth>(z + i, pack);
        });
      });
    }
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
