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

/// A pack of a head's first half and its partner of the second, with which it turns.
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
  /// Number j of both, one pack behind the other.
  AM_DEVICE T& number(int j) {
    return j < kWidth ? first.numbers[j % kWidth] : second.numbers[j % kWidth];
  }
  AM_DEVICE const T& number(int j) const {
    return j < kWidth ? first.numbers[j % kWidth] : second.numbers[j % kWidth];
  }
};

/// A head's packs from i on, normed by `scale` unless it has no norm, and turned.
template <int kWidth, typename T>
AM_DEVICE HeadPacks<kWidth, T> normed_and_turned(const HeadPacks<kWidth, T>& in,
                                                 const Heads<T>& heads, const HeadPlace<T>& place,
                                                 float scale, int64_t i) {
  const float one = heads.adds_one ? 1.0F : 0.0F;
  const T* const of_a = place.norm == nullptr ? nullptr : place.norm + i;
  const T* const of_b = place.norm == nullptr ? nullptr : place.norm + heads.half + i;
  const Pack<float, kWidth> a = normed_pack<kWidth>(in.first, scale, of_a, one);
  const Pack<float, kWidth> b = normed_pack<kWidth>(in.second, scale, of_b, one);
  const Pack<float, kWidth> cos = load<kWidth>(heads.cos + place.row + i);
  const Pack<float, kWidth> sin = load<kWidth>(heads.sin + place.row + i);
  HeadPacks<kWidth, T> out;
  AM_UNROLL
  for (int j = 0; j < kWidth; ++j) {
    put(out.first.numbers[j], a.numbers[j] * cos.numbers[j] - b.numbers[j] * sin.numbers[j]);
    put(out.second.numbers[j], b.numbers[j] * cos.numbers[j] + a.numbers[j] * sin.numbers[j]);
  }
  return out;
}

/// The gradients before the rotation of those behind it, from i on.
template <int kWidth, typename T>
AM_DEVICE HeadPacks<kWidth, float> turned_back(const HeadPacks<kWidth, T>& grads,
                                               const Heads<T>& heads, const HeadPlace<T>& place,
                                               int64_t i) {
  const Pack<float, kWidth> cos = load<kWidth>(heads.cos + place.row + i);
  const Pack<float, kWidth> sin = load<kWidth>(heads.sin + place.row + i);
  HeadPacks<kWidth, float> out;
  AM_UNROLL
  for (int j = 0; j < kWidth; ++j) {
    const float a = widened(grads.first.numbers[j]), b = widened(grads.second.numbers[j]);
    out.first.numbers[j] = a * cos.numbers[j] + b * sin.numbers[j];
    out.second.numbers[j] = b * cos.numbers[j] - a * sin.numbers[j];
  }
  return out;
}

/// Heads of any size, of which a part may turn: a team's threads go over one head's numbers.
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
      const int64_t half = place.is_value ? 0 : heads.half;
      team.each([&](int thread) {
        if (thread == 0 && !place.is_value) rstd[place.scale] = scale;
        over_row<1, Team>(thread, half, [&](int64_t i) {
          const auto packs = HeadPacks<1, T>::read(in, half, i);
          normed_and_turned(packs, heads, place, scale, i).write(out, half, i);
        });
        over_row<1, Team>(thread, dim - 2 * half, [&](int64_t i) {
          const int64_t at = 2 * half + i;
          const T* const weights = place.norm == nullptr ? nullptr : place.norm + at;
          put(out[at], normed_pack<1>(load<1>(in + at), scale, weights, one).numbers[0]);
        });
      });
    }
  }
};

template <typename T>
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
          over_turned<Team>(thread, place, grad,
                            [&](int64_t i, float turned) { put(out[i], turned); });
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
        over_turned<Team>(thread, place, grad, [&](int64_t i, float turned) {
          const float product = turned * widened(in[i]) * scale;
          if (of_norm != nullptr) of_norm[i] += product;
          total += product * (widened(place.norm[i]) + one);
        });
        return total;
      });
      const float mean = dot / static_cast<float>(dim) * scale;
      team.each([&](int thread) {
        over_turned<Team>(thread, place, grad, [&](int64_t i, float turned) {
          put(out[i],
              scale * (turned * (widened(place.norm[i]) + one)) - mean * scale * widened(in[i]));
        });
      });
    }
    if (sums != nullptr) keep_sums<1>(team, sums, partials, 2 * dim);
  }

 private:
  /// f(i, number) for a thread's numbers of the gradient before the rotation.
  template <typename Team, typename F>
  AM_DEVICE void over_turned(int thread, const HeadPlace<T>& place, const T* grad,
                             const F& f) const {
    const int64_t half = place.is_value ? 0 : heads.half;
    over_row<1, Team>(thread, half, [&](int64_t i) {
      const auto turned = turned_back(HeadPacks<1, T>::read(grad, half, i), heads, place, i);
      f(i, turned.number(0));
      f(half + i, turned.number(1));
    });
    over_row<1, Team>(thread, heads.head_dim - 2 * half,
                      [&](int64_t i) { f(2 * half + i, widened(grad[2 * half + i])); });
  }
};

/// Heads whose numbers all turn: each of `lanes` threads has one pack of both halves of a head, so
/// a team has several heads, and as much at once of what is read as can be.
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
    using Packs = HeadPacks<kWidth, T>;
    typename Team::template Own<Packs> own;
    const int64_t at_once = Team::kThreads / lanes;
    const int64_t dim = heads.head_dim, half = heads.half;
    for (int64_t first = team.index() * at_once; first < num_units(heads);
         first += team.count() * at_once) {
      const auto squares = [&](int thread) {
        const int64_t unit = first + thread / lanes;
        if (unit >= num_units(heads)) return 0.0F;
        Packs& packs = own[thread];
        packs = Packs::read(qkv + unit * dim, half, thread % lanes * kWidth);
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
        normed_and_turned(own[thread], heads, place, scale, i).write(out, half, i);
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
    HeadPacks<kWidth, float> turned;
    HeadPacks<kWidth, T> inputs;
    float of_q[2 * kWidth], of_k[2 * kWidth];
  };

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
    kept.turned = turned_back(grads, heads, place, i);
    if (place.norm == nullptr) return 0.0F;
    const auto weights = HeadPacks<kWidth, T>::read(place.norm, half, i);
    const float one = heads.adds_one ? 1.0F : 0.0F;
    const float scale = rstd[place.scale];
    float total = 0;
    AM_UNROLL
    for (int j = 0; j < 2 * kWidth; ++j) {
      const float product = kept.turned.number(j) * widened(kept.inputs.number(j)) * scale;
      kept.of_q[j] += place.is_query ? product : 0.0F;
      kept.of_k[j] += place.is_query ? 0.0F : product;
      total += product * (widened(weights.number(j)) + one);
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
      float through = kept.turned.number(j);
      if (place.norm != nullptr) {
        through = scale * (through * (widened(weights.number(j)) + one)) -
                  mean * scale * widened(kept.inputs.number(j));
      }
      put(out.number(j), through);
    }
    out.write(d_qkv + unit * heads.head_dim, half, i);
  }
};

}  // namespace automodel::kernels::device
