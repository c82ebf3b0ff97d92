#include "comm/groups/joined_group.h"

#include <ATen/ATen.h>

#include "comm/groups/group_backend.h"

namespace automodel::comm {

namespace {

class JoinedBackend final : public GroupBackend {
 public:
  JoinedBackend(ProcessGroup outer, ProcessGroup inner)
      : outer_(std::move(outer)), inner_(std::move(inner)) {}

  int rank() const override { return outer_.rank() * inner_.size() + inner_.rank(); }
  int size() const override { return outer_.size() * inner_.size(); }

  std::unique_ptr<BackendWork> start(const Collective& it) override {
    switch (it.kind) {
      case CollectiveKind::kAllReduce:
        inner_.all_reduce(it.out, it.op);
        outer_.all_reduce(it.out,
                          it.op);  // parts are equally many: an average of averages is right
        return nullptr;
      case CollectiveKind::kBroadcast:
        broadcast(it.out, it.peer);
        return nullptr;
      case CollectiveKind::kAllGather:
        all_gather(it.out, it.in);
        return nullptr;
      case CollectiveKind::kReduceScatter:
        reduce_scatter(it.out, it.in, it.op);
        return nullptr;
      case CollectiveKind::kBarrier:
        inner_.barrier();
        outer_.barrier();  // of ranks whose rows are all there
        return nullptr;
      case CollectiveKind::kAllToAll:
      case CollectiveKind::kSend:
      case CollectiveKind::kRecv:
        break;
    }
    AM_CHECK(false, "joined groups have no exchanges");
  }

 private:
  void broadcast(const at::Tensor& tensor, int root) const {
    const int column = root % inner_.size();
    if (inner_.rank() == column) outer_.broadcast(tensor, root / inner_.size());
    inner_.broadcast(tensor, column);
  }

  void all_gather(const at::Tensor& out, const at::Tensor& in) const {
    const at::Tensor row = at::empty({inner_.size() * in.numel()}, in.options());
    inner_.all_gather(row, in.contiguous());  // `in` may lie in `out`
    outer_.all_gather(out, row);
  }

  void reduce_scatter(const at::Tensor& out, const at::Tensor& in, ReduceOp op) const {
    const at::Tensor row = at::empty({inner_.size() * out.numel()}, in.options());
    outer_.reduce_scatter(row, in, op);
    inner_.reduce_scatter(out, row, op);
  }

  ProcessGroup outer_;
  ProcessGroup inner_;
};

}  // namespace

ProcessGroup joined_group(std::string name, const ProcessGroup& outer, const ProcessGroup& inner) {
  return {std::move(name), std::make_shared<JoinedBackend>(outer, inner)};
}

}  // namespace automodel::comm
