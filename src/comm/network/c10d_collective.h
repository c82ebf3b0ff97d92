#pragma once

#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <vector>

#include "comm/groups/collective.h"
#include "core/error.h"

namespace automodel::comm {

/// c10d's name of an operation.
inline c10d::ReduceOp to_c10d(ReduceOp op) {
  switch (op) {
    case ReduceOp::kSum:
      return c10d::ReduceOp::SUM;
    case ReduceOp::kAvg:
      return c10d::ReduceOp::AVG;
    case ReduceOp::kMax:
      return c10d::ReduceOp::MAX;
    case ReduceOp::kMin:
      return c10d::ReduceOp::MIN;
  }
  AM_CHECK(false);
}

/// Gives one of c10d's backends a collective to do; a barrier runs on `device`, where it is not the
/// CPU. Inline, because the CUDA library has its own copy.
inline c10::intrusive_ptr<c10d::Work> start_c10d(c10d::Backend& backend, const Collective& it,
                                                 std::optional<at::Device> device) {
  // c10d takes its arguments by reference and changes none of them.
  at::Tensor in = it.in, out = it.out;
  std::vector<at::Tensor> tensors{in.defined() ? in : out};
  switch (it.kind) {
    case CollectiveKind::kAllReduce: {
      c10d::AllreduceOptions options;
      options.reduceOp = to_c10d(it.op);
      return backend.allreduce(tensors, options);
    }
    case CollectiveKind::kBroadcast: {
      c10d::BroadcastOptions options;
      options.rootRank = it.peer;
      return backend.broadcast(tensors, options);
    }
    case CollectiveKind::kAllGather: {
      at::Tensor flat_in = in.view({-1}), flat_out = out.view({-1});
      return backend._allgather_base(flat_out, flat_in);
    }
    case CollectiveKind::kReduceScatter: {
      at::Tensor flat_in = in.view({-1}), flat_out = out.view({-1});
      c10d::ReduceScatterOptions options;
      options.reduceOp = to_c10d(it.op);
      return backend._reduce_scatter_base(flat_out, flat_in, options);
    }
    case CollectiveKind::kAllToAll: {
      std::vector<int64_t> out_counts = it.counts.out, in_counts = it.counts.in;
      return backend.alltoall_base(out, in, out_counts, in_counts);
    }
    case CollectiveKind::kSend:
      return backend.send(tensors, it.peer, it.tag);
    case CollectiveKind::kRecv:
      return backend.recv(tensors, it.peer, it.tag);
    case CollectiveKind::kBarrier:
      break;
  }
  c10d::BarrierOptions options;
  options.device = device;
  return backend.barrier(options);
}

}  // namespace automodel::comm
