#pragma once

// What the kernels of device_kernels.h do, written once for the device and for tests on the host: a
// body is work of a team of threads. A team offers
//   kThreads          how many threads it has
//   index(), count()  which of how many teams it is
//   each(f)           f(thread) by each thread; then all wait for each other
//   sum(f), most(f)   of f(thread) over the threads, as float32; total(f) as float64
//   sum_in_groups(lanes, f, g)       g(thread, sum of f over the thread's group of `lanes` neighbours)
//   sum_between_groups(lanes, f, g)  g(thread, sum of f over the threads of its place in all groups)
//                     of teams of 32; lanes: a power of 2
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

/// Of rows that a thread has at most kPieces packs of, which it keeps; 0: any.
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
    float* const sums =
        partials != nullptr ? zeroed_sums<kWidth>(team, partials, dim) : nullptr;
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

  /// Of the pack at `at`, whose weights are from `i` on; `out`: what is added to.
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
    const int64_t token = quotient(which, normed + heads.num_kv_heads);
    const int64_t head = which - token * (normed + heads.num_kv_heads);
    is_value = head >= normed;
    is_query = head < heads.num_heads;
    norm = is_value ? nullptr : is_query ? heads.q_norm : heads.k_norm;
    const int64_t of_kind = is_query ? head : is_value ? head - normed : head - heads.num_heads;
    target = (token * (is_query ? heads.num_heads : heads.num_kv_heads) + of_kind) * heads.head_dim;
    scale = token * normed + head;
    const int64_t position =
        heads.positions != nullptr ? heads.positions[token]
                                   : token - quotient(token, heads.length) * heads.length;
    row = position * heads.half;
  }
};

template <typename T>
AM_DEVICE int64_t num_units(const Heads<T>& heads) {
  return heads.tokens * (heads.num_heads + 2 * heads.num_kv_heads);
}

/// Numbers of a pack times a norm's factor and its weights from `weights` on; null: as they are.
template <int kWidth, typename T>
AM_DEVICE Pack<float, kWidth> normed_pack(const Pack<T, kWidth>& in, float scale, const T* weights,
                                          float one) {
  Pack<float, kWidth> out;
  if (weights == nullptr) {
    for (int k = 0; k < kWidth; ++k) out.numbers[k] = widened(in.numbers[k]);
    return out;
  }
  const Pack<T, kWidth> of = load<kWidth>(weights);
  for (int k = 0; k < kWidth; ++k) {
    out.numbers[k] = widened(in.numbers[k]) * scale * (widened(of.numbers[k]) + one);
  }
  return out;
}

template <int kWidth, typename T>
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
          over_row<kWidth, Team>(thread, dim, [&](int64_t i) {
            const Pack<T, kWidth> x = load<kWidth>(in + i);
            for (int j = 0; j < kWidth; ++j) total += widened(x.numbers[j]) * widened(x.numbers[j]);
          });
          return total;
        });
        scale = 1.0F / sqrtf(squares / static_cast<float>(dim) + heads.eps);
      }
      const auto normed = [&](int64_t i) {
        return normed_pack<kWidth>(load<kWidth>(in + i), scale,
                                   place.norm == nullptr ? nullptr : place.norm + i, one);
      };
      const int64_t half = place.is_value ? 0 : heads.half;
      team.each([&](int thread) {
        if (thread == 0 && !place.is_value) rstd[place.scale] = scale;
        over_row<kWidth, Team>(thread, half, [&](int64_t i) {
          const Pack<float, kWidth> a = normed(i), b = normed(i + half);
          const Pack<float, kWidth> cos = load<kWidth>(heads.cos + place.row + i);
          const Pack<float, kWidth> sin = load<kWidth>(heads.sin + place.row + i);
          Pack<T, kWidth> first, second;
          for (int j = 0; j < kWidth; ++j) {
            put(first.numbers[j],
                a.numbers[j] * cos.numbers[j] - b.numbers[j] * sin.numbers[j]);
            put(second.numbers[j],
                b.numbers[j] * cos.numbers[j] + a.numbers[j] * sin.numbers[j]);
          }
          store<kWidth>(out + i, first);
          store<kWidth>(out + i + half, second);
        });
        over_row<kWidth, Team>(thread, dim - 2 * half, [&](int64_t i) {
          const Pack<float, kWidth> x = normed(2 * half + i);
          Pack<T, kWidth> kept;
          for (int j = 0; j < kWidth; ++j) put(kept.numbers[j], x.numbers[j]);
          store<kWidth>(out + 2 * half + i, kept);
        });
      });
    }
  }
};

template <int kWidth, typename T>
struct HeadsBackward {
  Heads<T> heads;
  const T* qkv;  // null, as rstd, without norms
  const float* rstd;
  const T* dq;
  const T* dk;
  const T* dv;
  T* d_qkv;
  float* partials;  // null: no norm is trained

  template <typename Team>
  AM_DEVICE void operator()(Team& team) const {
    const int64_t dim = heads.head_dim;
    const float one = heads.adds_one ? 1.0F : 0.0F;
    float* const sums =
        partials != nullptr ? zeroed_sums<1>(team, partials, 2 * dim) : nullptr;
    for (int64_t unit = team.index(); unit < num_units(heads); unit += team.count()) {
      const HeadPlace<T> place(heads, unit);
      const T* const grad = (place.is_value ? dv : place.is_query ? dq : dk) + place.target;
      T* const out = d_qkv + unit * dim;
      if (place.norm == nullptr) {
        team.each([&](int thread) {
          over_turned<Team>(thread, place, grad, [&](int64_t i, const Pack<float, kWidth>& turned) {
            put_pack(out + i, turned);
          });
        });
        continue;
      }
      const T* const in = qkv + unit * dim;
      const float scale = rstd[place.scale];
      // A thread's numbers of a row of 2 dim are not those of a row of dim: what one has made 0
      // another adds to, after all have waited.
      float* const of_norm = sums == nullptr ? nullptr : sums + (place.is_query ? 0 : dim);
      const float dot = team.sum([&](int thread) {
        float total = 0;
        over_turned<Team>(thread, place, grad, [&](int64_t i, const Pack<float, kWidth>& turned) {
          const Pack<T, kWidth> x = load<kWidth>(in + i);
          const Pack<T, kWidth> weights = load<kWidth>(place.norm + i);
          for (int j = 0; j < kWidth; ++j) {
            const float product = turned.numbers[j] * widened(x.numbers[j]) * scale;
            if (of_norm != nullptr) of_norm[i + j] += product;
            total += product * (widened(weights.numbers[j]) + one);
          }
        });
        return total;
      });
      const float mean = dot / static_cast<float>(dim) * scale;
      team.each([&](int thread) {
        over_turned<Team>(thread, place, grad, [&](int64_t i, const Pack<float, kWidth>& turned) {
          const Pack<T, kWidth> x = load<kWidth>(in + i);
          const Pack<T, kWidth> weights = load<kWidth>(place.norm + i);
          Pack<float, kWidth> through;
          for (int j = 0; j < kWidth; ++j) {
            through.numbers[j] =
                scale * (turned.numbers[j] * (widened(weights.numbers[j]) + one)) -
                mean * scale * widened(x.numbers[j]);
          }
          put_pack(out + i, through);
        });
      });
    }
    if (sums != nullptr) keep_sums<1>(team, sums, partials, 2 * dim);
  }

 private:
  AM_DEVICE static void put_pack(T* to, const Pack<float, kWidth>& numbers) {
    Pack<T, kWidth> out;
    for (int j = 0; j < kWidth; ++j) put(out.numbers[j], numbers.numbers[j]);
    store<kWidth>(to, out);
  }

  /// f(i, pack) for a thread's packs of the gradient before the rotation.
  template <typename Team, typename F>
  AM_DEVICE void over_turned(int thread, const HeadPlace<T>& place, const T* grad,
                             const F& f) const {
    const int64_t half = place.is_value ? 0 : heads.half;
    over_row<kWidth, Team>(thread, half, [&](int64_t i) {
      const Pack<T, kWidth> a = load<kWidth>(grad + i), b = load<kWidth>(grad + half + i);
      const Pack<float, kWidth> cos = load<kWidth>(heads.cos + place.row + i);
      const Pack<float, kWidth> sin = load<kWidth>(heads.sin + place.row + i);
      Pack<float, kWidth> first, second;
      for (int j = 0; j < kWidth; ++j) {
        const float of_a = widened(a.numbers[j]), of_b = widened(b.numbers[j]);
        first.numbers[j] = of_a * cos.numbers[j] + of_b * sin.numbers[j];
        second.numbers[j] = of_b * cos.numbers[j] - of_a * sin.numbers[j];
      }
      f(i, first);
      f(half + i, second);
    });
    over_row<kWidth, Team>(thread, heads.head_dim - 2 * half, [&](int64_t i) {
      const Pack<T, kWidth> in = load<kWidth>(grad + 2 * half + i);
      Pack<float, kWidth> wide;
      for (int j = 0; j < kWidth; ++j) wide.numbers[j] = widened(in.numbers[j]);
      f(2 * half + i, wide);
    });
  }
};

/// A head whose numbers all turn, of which each of `lanes` threads has one pack of the first half and
/// its partner of the second: several heads a team, and as much at once of what is read as can be.
template <int kWidth, typename T>
struct HeadPacks {
  Pack<T, kWidth> first, second;

  AM_DEVICE static HeadPacks read(const T* head, int64_t half, int64_t i) {
    return {load<kWidth>(head + i), load<kWidth>(head + half + i)};
  }
  AM_DEVICE void write(T* head, int64_t half, int64_t i) const {
    store<kWidth>(head + i, first);
    store<kWidth>(head + half + i, second);
  }
};

template <int kWidth, typename T>
struct HeadsForwardByLanes {
  Heads<T> heads;
  const T* qkv;
  T* q;
  T* k;
  T* v;
  float* rstd;
  int lanes;

  template <typename Team>
  AM_DEVICE void operator()(Team& team) const {
    typename Team::template Own<HeadPacks<kWidth, T>> own;
    const int64_t at_once = Team::kThreads / lanes;
    const int64_t dim = heads.head_dim, half = heads.half;
    const float one = heads.adds_one ? 1.0F : 0.0F;
    for (int64_t first = team.index() * at_once; first < num_units(heads);
         first += team.count() * at_once) {
      const auto squares = [&](int thread) {
        const int64_t unit = first + thread / lanes;
        if (unit >= num_units(heads)) return 0.0F;
        HeadPacks<kWidth, T>& packs = own[thread];
        packs = HeadPacks<kWidth, T>::read(qkv + unit * dim, half, thread % lanes * kWidth);
        float total = 0;
        AM_UNROLL
        for (int j = 0; j < kWidth; ++j) {
          const float a = widened(packs.first.numbers[j]), b = widened(packs.second.numbers[j]);
          total += a * a + b * b;
        }
        return total;
      };
      team.sum_in_groups(lanes, squares, [&](int thread, float sum) {
        const int64_t unit = first + thread / lanes;
        if (unit >= num_units(heads)) return;
        const HeadPlace<T> place(heads, unit);
        const int64_t i = thread % lanes * kWidth;
        T* const out = (place.is_value ? v : place.is_query ? q : k) + place.target;
        if (place.is_value) return own[thread].write(out, half, i);
        const float scale = place.norm == nullptr
                                ? 1.0F
                                : 1.0F / sqrtf(sum / static_cast<float>(dim) + heads.eps);
        if (i == 0) rstd[place.scale] = scale;
        const T* const of_a = place.norm == nullptr ? nullptr : place.norm + i;
        const T* const of_b = place.norm == nullptr ? nullptr : place.norm + half + i;
        const Pack<float, kWidth> a = normed_pack<kWidth>(own[thread].first, scale, of_a, one);
        const Pack<float, kWidth> b = normed_pack<kWidth>(own[thread].second, scale, of_b, one);
        const Pack<float, kWidth> cos = load<kWidth>(heads.cos + place.row + i);
        const Pack<float, kWidth> sin = load<kWidth>(heads.sin + place.row + i);
        HeadPacks<kWidth, T> turned;
        AM_UNROLL
        for (int j = 0; j < kWidth; ++j) {
          put(turned.first.numbers[j],
              a.numbers[j] * cos.numbers[j] - b.numbers[j] * sin.numbers[j]);
          put(turned.second.numbers[j],
              b.numbers[j] * cos.numbers[j] + a.numbers[j] * sin.numbers[j]);
        }
        turned.write(out, half, i);
      });
    }
  }
};

template <int kWidth, typename T>
struct HeadsBackwardByLanes {
  Heads<T> heads;
  const T* qkv;
  const float* rstd;
  const T* dq;
  const T* dk;
  const T* dv;
  T* d_qkv;
  float* partials;  // null: no norm is trained
  int lanes;

  template <typename Team>
  AM_DEVICE void operator()(Team& team) const {
    typename Team::template Own<Kept> own;
    team.each([&](int thread) {
      AM_UNROLL
      for (int j = 0; j < 2 * kWidth; ++j) own[thread].of_q[j] = own[thread].of_k[j] = 0;
    });
    const int64_t at_once = Team::kThreads / lanes;
    for (int64_t first = team.index() * at_once; first < num_units(heads);
         first += team.count() * at_once) {
      team.sum_in_groups(
          lanes, [&](int thread) { return turn_back(own[thread], first, thread); },
          [&](int thread, float dot) { finish(own[thread], first, thread, dot); });
    }
    if (partials == nullptr) return;
    float* const to = partials + team.index() * 2 * heads.head_dim;
    for (int j = 0; j < 2 * kWidth; ++j) {
      // Numbers of the first half, then of the second.
      const int64_t place = j < kWidth ? j : heads.half + j - kWidth;
      const auto keep = [&](int64_t begin) {
        return [=, this](int thread, float sum) {
          if (thread < lanes) to[begin + place + int64_t{thread} * kWidth] = sum;
        };
      };
      team.sum_between_groups(
          lanes, [&](int thread) { return own[thread].of_q[j]; }, keep(0));
      team.sum_between_groups(
          lanes, [&](int thread) { return own[thread].of_k[j]; }, keep(heads.head_dim));
    }
  }

 private:
  /// What a thread keeps of a head, and its sums of all of them for the norms' weights.
  struct Kept {
    float turned[2 * kWidth];
    HeadPacks<kWidth, T> inputs;
    float of_q[2 * kWidth], of_k[2 * kWidth];
  };

  AM_DEVICE static float input(const Kept& kept, int j) {
    return widened(j < kWidth ? kept.inputs.first.numbers[j % kWidth]
                              : kept.inputs.second.numbers[j % kWidth]);
  }

  /// Reads a head's gradients and turns them back; returns a thread's share of their product with
  /// what the norm returned.
  AM_DEVICE float turn_back(Kept& kept, int64_t first_unit, int thread) const {
    const int64_t unit = first_unit + thread / lanes;
    if (unit >= num_units(heads)) return 0.0F;
    const HeadPlace<T> place(heads, unit);
    const int64_t half = heads.half, i = thread % lanes * kWidth;
    const T* const grad = (place.is_value ? dv : place.is_query ? dq : dk) + place.target;
    const auto grads = HeadPacks<kWidth, T>::read(grad, half, i);
    if (place.is_value) {
      grads.write(d_qkv + unit * heads.head_dim, half, i);
      return 0.0F;
    }
    if (place.norm != nullptr) {
      kept.inputs = HeadPacks<kWidth, T>::read(qkv + unit * heads.head_dim, half, i);
    }
    const Pack<float, kWidth> cos = load<kWidth>(heads.cos + place.row + i);
    const Pack<float, kWidth> sin = load<kWidth>(heads.sin + place.row + i);
    AM_UNROLL
    for (int j = 0; j < kWidth; ++j) {
      const float a = widened(grads.first.numbers[j]), b = widened(grads.second.numbers[j]);
      kept.turned[j] = a * cos.numbers[j] + b * sin.numbers[j];
      kept.turned[kWidth + j] = b * cos.numbers[j] - a * sin.numbers[j];
    }
    if (place.norm == nullptr) return 0.0F;
    const auto weights = HeadPacks<kWidth, T>::read(place.norm, half, i);
    const float one = heads.adds_one ? 1.0F : 0.0F;
    const float scale = rstd[place.scale];
    float total = 0;
    AM_UNROLL
    for (int j = 0; j < 2 * kWidth; ++j) {
      const float weight =
          widened(j < kWidth ? weights.first.numbers[j % kWidth] : weights.second.numbers[j % kWidth]);
      const float product = kept.turned[j] * input(kept, j) * scale;
      kept.of_q[j] += place.is_query ? product : 0.0F;
      kept.of_k[j] += place.is_query ? 0.0F : product;
      total += product * (weight + one);
    }
    return total;
  }

  AM_DEVICE void finish(const Kept& kept, int64_t first_unit, int thread, float dot) const {
    const int64_t unit = first_unit + thread / lanes;
    if (unit >= num_units(heads)) return;
    const HeadPlace<T> place(heads, unit);
    if (place.is_value) return;
    const int64_t half = heads.half, i = thread % lanes * kWidth;
    HeadPacks<kWidth, T> out, weights;
    float scale = 1.0F, mean = 0.0F;
    if (place.norm != nullptr) {
      weights = HeadPacks<kWidth, T>::read(place.norm, half, i);
      scale = rstd[place.scale];
      mean = dot / static_cast<float>(heads.head_dim) * scale;
    }
    const float one = heads.adds_one ? 1.0F : 0.0F;
    AM_UNROLL
    for (int j = 0; j < 2 * kWidth; ++j) {
      float through = kept.turned[j];
      if (place.norm != nullptr) {
        const float weight = widened(j < kWidth ? weights.first.numbers[j % kWidth]
                                                : weights.second.numbers[j % kWidth]);
        through = scale * (through * (weight + one)) - mean * scale * input(kept, j);
      }
      put(j < kWidth ? out.first.numbers[j % kWidth] : out.second.numbers[j % kWidth], through);
    }
    out.write(d_qkv + unit * heads.head_dim, half, i);
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
          factors.of[r][j] = r < product.rank ? widened(product.factors[at]) * product.factor : 0.0F;
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
