#include "comm/joined_group.h"

#include <ATen/ATen.h>

namespace automodel::comm {

namespace {

class JoinedBackend final : public GroupBackend {
 public:
  using Started = std::unique_ptr<BackendWork>;

  JoinedBackend(ProcessGroup outer, ProcessGroup inner)
      : outer_(std::move(outer)), inner_(std::move(inner)) {}

  int rank() const override { return outer_.rank() * inner_.size() + inner_.rank(); }
  int size() const override { return outer_.size() * inner_.size(); }

  Started all_reduce(at::Tensor tensor, ReduceOp op) override {
    inner_.all_reduce(tensor, op);
    outer_.all_reduce(tensor, op);  // parts are equally many: an average of averages is right
    return nullptr;
  }

  Started broadcast(at::Tensor tensor, int root) override {
    const int column = root % inner_.size();
    if (inner_.rank() == column) outer_.broadcast(tensor, root / inner_.size());
    inner_.broadcast(tensor, column);
    return nullptr;
  }

  Started all_gather(at::Tensor out, const at::Tensor& in) override {
    const at::Tensor row = at::empty({inner_.size() * in.numel()}, in.options());
    inner_.all_gather(row, in.contiguous());  // `in` may lie in `out`
    outer_.all_gather(out, row);
    return nullptr;
  }

  Started reduce_scatter(at::Tensor out, const at::Tensor& in, ReduceOp op) override {
    const at::Tensor row = at::empty({inner_.size() * out.numel()}, in.options());
    outer_.reduce_scatter(row, in, op);
    inner_.reduce_scatter(out, row, op);
    return nullptr;
  }

  Started barrier() override {
    inner_.barrier();
    outer_.barrier();  // of ranks whose rows are all there
    return nullptr;
  }

  Started all_to_all(at::Tensor, const at::Tensor&, const ExchangeCounts&) override { refuse(); }
  Started send(const at::Tensor&, int, int) override { refuse(); }
  Started recv(at::Tensor, int, int) override { refuse(); }

 private:
  [[noreturn]] static void refuse() { AM_CHECK(false, "joined groups have no exchanges"); }

  ProcessGroup outer_;
  ProcessGroup inner_;
};

}  // namespace

ProcessGroup joined_group(std::string name, const ProcessGroup& outer, const ProcessGroup& inner) {
  return {std::move(name), std::make_shared<JoinedBackend>(outer, inner)};
}

}  // namespace automodel::comm
