#include "comm/shared_memory/rounds.h"

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "comm/shared_memory/reduce.h"
#include "core/divide.h"

namespace automodel::comm {

namespace {

constexpr int64_t kLaneAlignment = 64;

std::byte* bytes_of(const at::Tensor& tensor) {
  return static_cast<std::byte*>(tensor.data_ptr());
}

/// A range of elements or bytes.
struct Range {
  int64_t begin = 0;
  int64_t end = 0;
  int64_t size() const { return end - begin; }
};

/// The index-th piece of a range; empty behind its end.
Range piece_of(const Range& range, int64_t index, int64_t piece) {
  const int64_t begin = std::min(range.begin + index * piece, range.end);
  return {begin, std::min(begin + piece, range.end)};
}

class GatherRounds final : public Rounds {
 public:
  GatherRounds(const RoundsPlace& place, at::Tensor out, at::Tensor in)
      : place_(place),
        out_(std::move(out)),
        in_(std::move(in)),
        part_bytes_(static_cast<int64_t>(in_.nbytes())) {}

  int64_t num_rounds() const override { return ceil_div(part_bytes_, place_.slot_bytes); }

  void write(int64_t round, std::byte* slot) override {
    const Range piece = piece_of({0, part_bytes_}, round, place_.slot_bytes);
    const std::byte* from = bytes_of(in_) + piece.begin;
    std::memcpy(slot, from, static_cast<size_t>(piece.size()));
    std::byte* own = bytes_of(out_) + place_.rank * part_bytes_ + piece.begin;
    if (own != from) std::memcpy(own, from, static_cast<size_t>(piece.size()));
  }

  void take(int64_t round, std::span<const std::byte* const> slots) override {
    const Range piece = piece_of({0, part_bytes_}, round, place_.slot_bytes);
    std::byte* to = bytes_of(out_) + piece.begin;
    for (const std::byte* slot : slots) {
      if (slot != nullptr) std::memcpy(to, slot, static_cast<size_t>(piece.size()));
      to += part_bytes_;
    }
  }

 private:
  RoundsPlace place_;
  at::Tensor out_, in_;
  int64_t part_bytes_;
};

/// Sends every other rank the pieces of its part and reduces what the others send of this rank's
/// part. A slot holds a lane for each of the others.
class PartReduction final {
 public:
  /// `data` has `numel` elements in parts of `part`, of which the last ones may be short or empty.
  PartReduction(const RoundsPlace& place, const at::Tensor& data, int64_t part, ReduceOp op)
      : place_(place),
        data_(bytes_of(data)),
        numel_(data.numel()),
        part_(part),
        element_(static_cast<int64_t>(data.element_size())),
        lane_bytes_(place.slot_bytes / (place.size - 1) / kLaneAlignment * kLaneAlignment),
        dtype_(data.scalar_type()),
        op_(op),
        sources_(static_cast<size_t>(place.size)) {}

  int64_t num_rounds() const { return ceil_div(part_, piece()); }
  int64_t element_size() const { return element_; }

  /// The elements of a rank's part that a round is about.
  Range elements(int64_t round, int rank) const {
    const Range part{std::min(rank * part_, numel_), std::min((rank + 1) * part_, numel_)};
    return piece_of(part, round, piece());
  }

  void write(int64_t round, std::byte* slot) const {
    for (int rank = 0; rank < place_.size; ++rank) {
      if (rank == place_.rank) continue;
      const Range range = elements(round, rank);
      std::memcpy(slot + lane(place_.rank, rank), data_ + range.begin * element_,
                  static_cast<size_t>(range.size() * element_));
    }
  }

  /// `out` of the round's first element.
  void take(int64_t round, std::span<const std::byte* const> slots, std::byte* out) {
    const Range range = elements(round, place_.rank);
    for (int rank = 0; rank < place_.size; ++rank) {
      const auto i = static_cast<size_t>(rank);
      sources_[i] =
          rank == place_.rank ? data_ + range.begin * element_ : slots[i] + lane(rank, place_.rank);
    }
    reduce_sources(dtype_, op_, out, sources_, range.size());
  }

 private:
  int64_t piece() const { return lane_bytes_ / element_; }
  int64_t lane(int writer, int reader) const {
    return (reader < writer ? reader : reader - 1) * lane_bytes_;
  }

  RoundsPlace place_;
  const std::byte* data_;
  int64_t numel_, part_, element_, lane_bytes_;
  at::ScalarType dtype_;
  ReduceOp op_;
  std::vector<const std::byte*> sources_;
};

class ReduceScatterRounds final : public Rounds {
 public:
  ReduceScatterRounds(const RoundsPlace& place, at::Tensor out, at::Tensor in, ReduceOp op)
      : place_(place),
        out_(std::move(out)),
        in_(std::move(in)),
        reduction_(place, in_, out_.numel(), op) {}

  int64_t num_rounds() const override { return reduction_.num_rounds(); }

  void write(int64_t round, std::byte* slot) override { reduction_.write(round, slot); }

  void take(int64_t round, std::span<const std::byte* const> slots) override {
    const int64_t begin =
        reduction_.elements(round, place_.rank).begin - place_.rank * out_.numel();
    reduction_.take(round, slots, bytes_of(out_) + begin * reduction_.element_size());
  }

 private:
  RoundsPlace place_;
  at::Tensor out_, in_;
  PartReduction reduction_;
};

/// Reduces parts and gathers them. The gather of a piece follows one round behind its reduction, so
/// that the piece is still in a cache: R0 R1 G0 R2 G1 ... G(n-1).
class AllReduceRounds final : public Rounds {
 public:
  AllReduceRounds(const RoundsPlace& place, at::Tensor tensor, ReduceOp op)
      : place_(place),
        tensor_(std::move(tensor)),
        reduction_(place, tensor_, ceil_div(tensor_.numel(), place.size), op) {}

  int64_t num_rounds() const override { return 2 * reduction_.num_rounds(); }

  bool is_ready(int64_t round, int64_t num_taken) const override {
    return is_reduction(round) || num_taken > round_of_reduction(piece_of_round(round));
  }

  void write(int64_t round, std::byte* slot) override {
    if (is_reduction(round)) return reduction_.write(piece_of_round(round), slot);
    const Range range = reduction_.elements(piece_of_round(round), place_.rank);
    std::memcpy(slot, at_element(range.begin), num_bytes(range));
  }

  void take(int64_t round, std::span<const std::byte* const> slots) override {
    const int64_t piece = piece_of_round(round);
    if (is_reduction(round)) {
      return reduction_.take(piece, slots,
                             at_element(reduction_.elements(piece, place_.rank).begin));
    }
    for (int rank = 0; rank < place_.size; ++rank) {
      if (rank == place_.rank) continue;
      const Range range = reduction_.elements(piece, rank);
      std::memcpy(at_element(range.begin), slots[static_cast<size_t>(rank)], num_bytes(range));
    }
  }

 private:
  bool is_reduction(int64_t round) const {
    return round == 0 || (round % 2 == 1 && round < num_rounds() - 1);
  }
  static int64_t round_of_reduction(int64_t piece) { return std::max<int64_t>(2 * piece - 1, 0); }
  int64_t piece_of_round(int64_t round) const {
    if (is_reduction(round)) return (round + 1) / 2;
    return round == num_rounds() - 1 ? reduction_.num_rounds() - 1 : round / 2 - 1;
  }
  std::byte* at_element(int64_t index) const {
    return bytes_of(tensor_) + index * reduction_.element_size();
  }
  size_t num_bytes(const Range& range) const {
    return static_cast<size_t>(range.size() * reduction_.element_size());
  }

  RoundsPlace place_;
  at::Tensor tensor_;
  PartReduction reduction_;
};

class BroadcastRounds final : public Rounds {
 public:
  BroadcastRounds(const RoundsPlace& place, at::Tensor tensor, int root)
      : place_(place), tensor_(std::move(tensor)), root_(root) {}

  int64_t num_rounds() const override { return ceil_div(whole().end, place_.slot_bytes); }
  bool is_writer(int rank) const override { return rank == root_; }

  void write(int64_t round, std::byte* slot) override {
    const Range piece = piece_of(whole(), round, place_.slot_bytes);
    std::memcpy(slot, bytes_of(tensor_) + piece.begin, static_cast<size_t>(piece.size()));
  }

  void take(int64_t round, std::span<const std::byte* const> slots) override {
    if (place_.rank == root_) return;
    const Range piece = piece_of(whole(), round, place_.slot_bytes);
    std::memcpy(bytes_of(tensor_) + piece.begin, slots[static_cast<size_t>(root_)],
                static_cast<size_t>(piece.size()));
  }

 private:
  Range whole() const { return {0, static_cast<int64_t>(tensor_.nbytes())}; }

  RoundsPlace place_;
  at::Tensor tensor_;
  int root_;
};

class BarrierRounds final : public Rounds {
 public:
  int64_t num_rounds() const override { return 1; }
  void write(int64_t, std::byte*) override {}
  void take(int64_t, std::span<const std::byte* const>) override {}
};

}  // namespace

std::unique_ptr<Rounds> rounds_of(const RoundsPlace& place, const Collective& it) {
  switch (it.kind) {
    case CollectiveKind::kAllReduce:
      return std::make_unique<AllReduceRounds>(place, it.out, it.op);
    case CollectiveKind::kBroadcast:
      return std::make_unique<BroadcastRounds>(place, it.out, it.peer);
    case CollectiveKind::kAllGather:
      return std::make_unique<GatherRounds>(place, it.out, it.in);
    case CollectiveKind::kReduceScatter:
      return std::make_unique<ReduceScatterRounds>(place, it.out, it.in, it.op);
    case CollectiveKind::kBarrier:
      return std::make_unique<BarrierRounds>();
    case CollectiveKind::kAllToAll:
    case CollectiveKind::kSend:
    case CollectiveKind::kRecv:
      return nullptr;
  }
  AM_CHECK(false);
}

}  // namespace automodel::comm
