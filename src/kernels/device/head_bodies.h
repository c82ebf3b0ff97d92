#pragma once

// What the kernels do that split, norm and rotate the heads of q, k and v, as row_bodies.h has the
// others: bodies, which teams of threads run.

#include "kernels/device/row_bodies.h"

namespace automodel::kernels::device {

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
    const int64_t position = heads.positions != nullptr
                                 ? heads.positions[token]
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
            put(first.numbers[j], a.numbers[j] * cos.numbers[j] - b.numbers[j] * sin.numbers[j]);
            put(second.numbers[j], b.numbers[j] * cos.numbers[j] + a.numbers[j] * sin.numbers[j]);
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
    float* const sums = partials != nullptr ? zeroed_sums<1>(team, partials, 2 * dim) : nullptr;
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
            through.numbers[j] = scale * (turned.numbers[j] * (widened(weights.numbers[j]) + one)) -
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

/// A head whose numbers all turn, of which each of `lanes` threads has one pack of the first half
/// and its partner of the second: several heads a team, and as much at once of what is read as can
/// be.
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
        const float scale =
            place.norm == nullptr ? 1.0F : 1.0F / sqrtf(sum / static_cast<float>(dim) + heads.eps);
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
      const float weight = widened(j < kWidth ? weights.first.numbers[j % kWidth]
                                              : weights.second.numbers[j % kWidth]);
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

}  // namespace automodel::kernels::device
