#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string_view>
#include <vector>

namespace automodel::comm {

enum class ReduceOp { kSum, kAvg, kMax, kMin };

/// Numbers of rows (dim 0) that each rank receives and sends.
struct ExchangeCounts {
  std::vector<int64_t> out;  ///< by the rank that sends them
  std::vector<int64_t> in;   ///< by the rank that receives them
};

/// What a group of ranks can be asked to do; ProcessGroup says what each does.
enum class CollectiveKind {
  kAllReduce,
  kBroadcast,
  kAllGather,
  kReduceScatter,
  kAllToAll,
  kSend,
  kRecv,
  kBarrier
};

inline constexpr size_t kNumCollectiveKinds = 8;

/// "all_reduce", "all_gather", ...
std::string_view collective_name(CollectiveKind kind);

/// One operation of a group, as a value: what one rank gives and where it wants the result. Members
/// that a kind has no use for keep their defaults.
struct Collective {
  CollectiveKind kind = CollectiveKind::kBarrier;
  at::Tensor out;  ///< undefined in kSend and kBarrier; kAllReduce and kBroadcast work in place
  at::Tensor in;   ///< undefined in kRecv and kBarrier; the same tensor as `out` where in place
  ReduceOp op = ReduceOp::kSum;
  int peer = 0;           ///< the root of kBroadcast, the other rank of kSend and kRecv
  int tag = 0;            ///< of kSend and kRecv
  ExchangeCounts counts;  ///< of kAllToAll

  bool is_message() const { return kind == CollectiveKind::kSend || kind == CollectiveKind::kRecv; }
  /// Where the tensors lie; the CPU for kBarrier.
  at::Device device() const;
};

}  // namespace automodel::comm
