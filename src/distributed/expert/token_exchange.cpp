// Exchange of tokens and results with the ranks that hold the experts.
#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include "core/error.h"
#include "distributed/expert/token_exchange.h"
#include "distributed/tensor/tp_collectives.h"
#include "kernels/products/expert_rows.h"

// T tokens of D dims choose k of E experts; this rank sends N rows and receives M.

namespace automodel::distributed {

namespace {

using torch::autograd::AutogradContext;
using torch::autograd::tensor_list;

/// Which rows are sent where; kept by autograd nodes and by the layer between dispatch and combine.
struct TokenRoute final : torch::CustomClassHolder {
  explicit TokenRoute(comm::ProcessGroup ep) : group(std::move(ep)) {}

  comm::ProcessGroup group;
  at::Tensor token;  ///< [N] int64: the token of each sent row, ordered by receiving rank
  at::Tensor row;    ///< [T, ranks] int64: of each token's sent rows; -1: none
  comm::ExchangeCounts counts;
  int64_t num_tokens = 0;        ///< T
  int64_t num_whole_tokens = 0;  ///< tokens of all ranks with the same tokens
  int64_t num_received = 0;

  /// Sends [N, W], returns the received [M, W].
  at::Tensor there(const at::Tensor& rows) const {
    at::Tensor out = at::empty({num_received, rows.size(1)}, rows.options());
    group.all_to_all(out, rows.contiguous(), counts);
    return out;
  }

  /// Sends [M, W] back, returns [N, W].
  at::Tensor back(const at::Tensor& rows) const {
    at::Tensor out = at::empty({token.size(0), rows.size(1)}, rows.options());
    group.all_to_all(out, rows.contiguous(), {counts.in, counts.out});
    return out;
  }

  at::Tensor rows_of(const at::Tensor& x) const { return x.index_select(0, token); }

  /// The sum of each token's rows, adding those of lower ranks first.
  at::Tensor sums_of(const at::Tensor& rows) const { return kernels::sum_rows(rows, row); }
};

using RoutePointer = c10::intrusive_ptr<TokenRoute>;

RoutePointer kept_route(AutogradContext* context) {
  return c10::static_intrusive_pointer_cast<TokenRoute>(context->saved_data["route"].toCapsule());
}

/// Sends x [T, W] and returns [M, W]; backward sends the gradients back.
struct SendTokens : torch::autograd::Function<SendTokens> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x,
                            const RoutePointer& route) {
    context->saved_data["route"] = c10::IValue::make_capsule(route);
    return route->there(route->rows_of(x));
  }

  static tensor_list backward(AutogradContext* context, tensor_list gradients) {
    const RoutePointer route = kept_route(context);
    return {route->sums_of(route->back(gradients[0])), at::Tensor()};
  }
};

/// Sends y [M, D] back and returns [T, D]; backward sends the gradients to the experts.
struct ReturnTokens : torch::autograd::Function<ReturnTokens> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& y,
                            const RoutePointer& route) {
    context->saved_data["route"] = c10::IValue::make_capsule(route);
    return route->sums_of(route->back(y));
  }

  static tensor_list backward(AutogradContext* context, tensor_list gradients) {
    const RoutePointer route = kept_route(context);
    return {route->there(route->rows_of(gradients[0])), at::Tensor()};
  }
};

struct RouteState final : nn::DispatchState {
  explicit RouteState(RoutePointer kept) : route(std::move(kept)) {}
  RoutePointer route;
};

class AllToAllDispatcher final : public nn::TokenDispatcher {
 public:
  AllToAllDispatcher(const ExpertGroups& groups, int64_t num_experts)
      : group_(groups.ep),
        same_tokens_(groups.same_tokens),
        num_local_(num_experts / groups.ep.size()) {}

  nn::DispatchedTokens dispatch(const at::Tensor& x, const at::Tensor& expert_ids,
                                const at::Tensor& weights) override {
    // take_sequence fills the last run with zeros: ids are shifted by 1, so that 0 becomes -1, no
    // expert.
    const at::Tensor own_ids = same_tokens_.size() == 1 ? expert_ids : run_of(expert_ids + 1) - 1;
    const RoutePointer route = plan(own_ids);
    route->num_whole_tokens = x.size(0);
    const int64_t k = expert_ids.size(1);
    const at::Tensor ids = route->there(route->rows_of(own_ids)) - group_.rank() * num_local_;
    const at::Tensor is_elsewhere = ids.lt(0).logical_or(ids.ge(num_local_));
    // One exchange for tokens and weights together.
    const at::Tensor received = SendTokens::apply(run_of(at::cat({x, weights}, 1)), route);
    // Copies: a view would keep the whole received tensor until backward.
    return {received.narrow(1, 0, x.size(1)).contiguous(), ids.masked_fill(is_elsewhere, -1),
            received.narrow(1, x.size(1), k).contiguous(), std::make_shared<RouteState>(route)};
  }

  at::Tensor combine(const at::Tensor& y, const nn::DispatchedTokens& dispatched) override {
    const auto* state = dynamic_cast<const RouteState*>(dispatched.state.get());
    AM_CHECK(state != nullptr);
    const at::Tensor own = ReturnTokens::apply(y, state->route);
    if (same_tokens_.size() == 1) return own;
    return gather_sequence(own.unsqueeze(0), state->route->num_whole_tokens, same_tokens_,
                           OutputGradient::kWhole)
        .squeeze(0);
  }

 private:
  /// This rank's run of rows that all ranks with the same tokens hold.
  at::Tensor run_of(const at::Tensor& rows) const {
    if (same_tokens_.size() == 1) return rows;
    return take_sequence(rows.unsqueeze(0), same_tokens_).squeeze(0);
  }

  /// Reads a device once, for the counts.
  RoutePointer plan(const at::Tensor& expert_ids) const {
    const at::NoGradGuard no_grad;
    const int64_t num_ranks = group_.size();
    auto route = c10::make_intrusive<TokenRoute>(group_);
    route->num_tokens = expert_ids.size(0);
    const at::Tensor owner = at::div(expert_ids, num_local_, "floor");
    const at::Tensor is_sent =  // [ranks, T]; a rank behind the last takes choices of none
        at::zeros({route->num_tokens, num_ranks + 1}, expert_ids.options().dtype(at::kBool))
            .scatter_(1, at::where(owner.lt(0), num_ranks, owner), true)
            .narrow(1, 0, num_ranks)
            .t()
            .contiguous();
    const at::Tensor sent = is_sent.sum(1);
    const at::Tensor received = at::empty_like(sent);
    const std::vector<int64_t> one_each(static_cast<size_t>(num_ranks), 1);
    group_.all_to_all(received, sent, {one_each, one_each});
    const at::Tensor counts = at::stack({sent, received}).cpu();
    const int64_t* count = counts.const_data_ptr<int64_t>();
    route->counts.in.assign(count, count + num_ranks);
    route->counts.out.assign(count + num_ranks, count + 2 * num_ranks);
    int64_t num_sent = 0;
    for (const int64_t rows : route->counts.in) num_sent += rows;
    for (const int64_t rows : route->counts.out) route->num_received += rows;
    // Rows are numbered by rank, then by token; what is not sent falls into a row behind the last.
    const at::Tensor flags = is_sent.view({-1});
    const at::Tensor places = flags.cumsum(0) - 1;
    const at::Tensor tokens = at::arange(route->num_tokens, sent.options()).repeat({num_ranks});
    route->token = at::empty({num_sent + 1}, sent.options())
                       .scatter_(0, at::where(flags, places, num_sent), tokens)
                       .narrow(0, 0, num_sent);
    route->row = at::where(flags, places, -1).view({num_ranks, -1}).t().contiguous();
    return route;
  }

  comm::ProcessGroup group_;
  comm::ProcessGroup same_tokens_;
  int64_t num_local_;
};

}  // namespace

std::shared_ptr<nn::TokenDispatcher> make_all_to_all_dispatcher(const ExpertGroups& groups,
                                                                int64_t num_experts) {
  return std::make_shared<AllToAllDispatcher>(groups, num_experts);
}

}  // namespace automodel::distributed
