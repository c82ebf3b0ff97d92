#include "distributed/tensor/tp_collectives.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include "core/error.h"

namespace automodel::distributed {

namespace {

/// What is done to a tensor in forward, or to a gradient in backward.
enum class Move : int64_t {
  kKeep,
  kSum,
  kGatherFeatures,
  kTakeFeatures,
  kGatherSequence,
  kSumSequence,
  kTakeSequence,
};

at::Tensor sum_copy(const at::Tensor& x, const comm::ProcessGroup& group) {
  at::Tensor sum = x.clone(at::MemoryFormat::Contiguous);
  group.all_reduce(sum, comm::ReduceOp::kSum);
  return sum;
}

/// [T, sizes of x]: the x of every rank.
at::Tensor gather(const at::Tensor& x, const comm::ProcessGroup& group) {
  std::vector<int64_t> sizes = x.sizes().vec();
  sizes.insert(sizes.begin(), group.size());
  at::Tensor out = at::empty(sizes, x.options());
  group.all_gather(out, x.contiguous());
  return out;
}

at::Tensor gather_last_dim(const at::Tensor& x, const comm::ProcessGroup& group) {
  std::vector<int64_t> sizes = x.sizes().vec();
  sizes.back() *= group.size();
  return gather(x, group).movedim(0, -2).reshape(sizes);
}

at::Tensor take_last_dim(const at::Tensor& x, const comm::ProcessGroup& group) {
  AM_CHECK(x.size(-1) % group.size() == 0, x.size(-1), " features on ", group.size(), " ranks");
  const int64_t size = x.size(-1) / group.size();
  return x.narrow(-1, group.rank() * size, size).contiguous();
}

/// Pads [B, S, D] to [B, T * ceil(S / T), D].
at::Tensor pad_sequence(const at::Tensor& x, const comm::ProcessGroup& group) {
  const int64_t rest = x.size(1) % group.size();
  if (rest == 0) return x;
  return at::constant_pad_nd(x, {0, 0, 0, group.size() - rest});
}

at::Tensor gather_positions(const at::Tensor& x, int64_t length, const comm::ProcessGroup& group) {
  const at::Tensor all = gather(x, group).transpose(0, 1);  // [B, T, s, D]
  const at::Tensor joined = all.reshape({x.size(0), group.size() * x.size(1), x.size(2)});
  return joined.narrow(1, 0, length).contiguous();
}

at::Tensor sum_positions(const at::Tensor& x, const comm::ProcessGroup& group) {
  const at::Tensor padded = pad_sequence(x, group);
  const int64_t run = padded.size(1) / group.size();
  const at::Tensor by_rank = padded.reshape({x.size(0), group.size(), run, x.size(2)})
                                 .transpose(0, 1)
                                 .contiguous();  // [T, B, s, D]
  at::Tensor out = at::empty({x.size(0), run, x.size(2)}, x.options());
  group.reduce_scatter(out, by_rank, comm::ReduceOp::kSum);
  return out;
}

at::Tensor take_positions(const at::Tensor& x, const comm::ProcessGroup& group) {
  const at::Tensor padded = pad_sequence(x, group);
  const int64_t run = padded.size(1) / group.size();
  return padded.narrow(1, group.rank() * run, run).contiguous();
}

at::Tensor apply_move(Move move, const at::Tensor& x, int64_t length,
                      const comm::ProcessGroup& group) {
  switch (move) {
    case Move::kKeep:
      return x.view_as(x);
    case Move::kSum:
      return sum_copy(x, group);
    case Move::kGatherFeatures:
      return gather_last_dim(x, group);
    case Move::kTakeFeatures:
      return take_last_dim(x, group);
    case Move::kGatherSequence:
      return gather_positions(x, length, group);
    case Move::kSumSequence:
      return sum_positions(x, group);
    case Move::kTakeSequence:
      return take_positions(x, group);
  }
  AM_CHECK(false);
}

using torch::autograd::AutogradContext;
using torch::autograd::tensor_list;

/// A group, kept by an autograd node.
struct KeptGroup : torch::CustomClassHolder {
  explicit KeptGroup(comm::ProcessGroup kept) : group(std::move(kept)) {}
  comm::ProcessGroup group;
};

struct Exchange : torch::autograd::Function<Exchange> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, Move forward_move,
                            Move backward_move, int64_t length,
                            const c10::intrusive_ptr<KeptGroup>& kept) {
    context->saved_data["group"] = c10::IValue::make_capsule(kept);
    context->saved_data["move"] = static_cast<int64_t>(backward_move);
    context->saved_data["length"] = length;
    return apply_move(forward_move, x, length, kept->group);
  }

  static tensor_list backward(AutogradContext* context, tensor_list gradients) {
    const auto holder = context->saved_data["group"].toCapsule();
    const auto& kept = static_cast<const KeptGroup&>(*holder);
    const auto move = static_cast<Move>(context->saved_data["move"].toInt());
    const int64_t length = context->saved_data["length"].toInt();
    return {apply_move(move, gradients[0], length, kept.group), at::Tensor(), at::Tensor(),
            at::Tensor(), at::Tensor()};
  }
};

at::Tensor exchange(const at::Tensor& x, Move forward_move, Move backward_move,
                    const comm::ProcessGroup& group, int64_t length = 0) {
  return Exchange::apply(x, forward_move, backward_move, length,
                         c10::make_intrusive<KeptGroup>(group));
}

}  // namespace

at::Tensor enter_parts(const at::Tensor& x, const comm::ProcessGroup& group) {
  return exchange(x, Move::kKeep, Move::kSum, group);
}

at::Tensor sum_parts(const at::Tensor& x, const comm::ProcessGroup& group) {
  return exchange(x, Move::kSum, Move::kKeep, group);
}

at::Tensor gather_features(const at::Tensor& x, const comm::ProcessGroup& group) {
  return exchange(x, Move::kGatherFeatures, Move::kTakeFeatures, group);
}

at::Tensor take_features(const at::Tensor& x, const comm::ProcessGroup& group) {
  return exchange(x, Move::kTakeFeatures, Move::kGatherFeatures, group);
}

at::Tensor gather_sequence(const at::Tensor& x, int64_t length, const comm::ProcessGroup& group,
                           OutputGradient gradient) {
  const Move back = gradient == OutputGradient::kSummand ? Move::kSumSequence : Move::kTakeSequence;
  return exchange(x, Move::kGatherSequence, back, group, length);
}

at::Tensor sum_sequence_parts(const at::Tensor& x, const comm::ProcessGroup& group) {
  return exchange(x, Move::kSumSequence, Move::kGatherSequence, group, x.size(1));
}

at::Tensor take_sequence(const at::Tensor& x, const comm::ProcessGroup& group) {
  return exchange(x, Move::kTakeSequence, Move::kGatherSequence, group, x.size(1));
}

}  // namespace automodel::distributed
