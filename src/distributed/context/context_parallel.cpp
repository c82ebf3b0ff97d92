#include "distributed/context/context_parallel.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include <cmath>
#include <functional>

#include "core/error.h"
#include "kernels/attention/attention_block.h"
#include "kernels/base/fused.h"
#include "kernels/base/result_keeper.h"
#include "tensor/dtype.h"

namespace automodel::distributed {

namespace {

using kernels::AttentionBlock;
using kernels::AttentionResult;
using kernels::Qkv;
using tensor::PositionRun;
using torch::autograd::AutogradContext;
using torch::autograd::tensor_list;

// B batch, s tokens of this rank, N query heads, K kv heads, H head dim, V value dim.

/// One attention call: what all its blocks share, and its group.
struct ContextCall {
  comm::ProcessGroup group;
  CpRotateMethod method;
  SequenceLayout layout;
  AttentionBlock block;

  /// The rank whose keys arrive in the given step: in step 0 this rank's own, in step -1 the next
  /// rank's.
  int source(int step) const { return (group.rank() - step + group.size()) % group.size(); }
  std::vector<PositionRun> runs_of(int rank, int64_t num_tokens) const {
    return local_runs(num_tokens * group.size(), {rank, group.size(), layout});
  }
};

/// Keys and values of a rank in one flat tensor, so that they are sent as one message.
class KeyValues final {
 public:
  KeyValues(const at::Tensor& k, const at::Tensor& v)
      : k_sizes_(k.sizes().vec()), v_sizes_(v.sizes().vec()) {}

  at::Tensor join(const at::Tensor& k, const at::Tensor& v) const {
    return at::cat({k.reshape({-1}), v.reshape({-1})});
  }
  at::Tensor keys(const at::Tensor& flat) const {
    return flat.narrow(0, 0, c10::multiply_integers(k_sizes_)).view(k_sizes_);
  }
  at::Tensor values(const at::Tensor& flat) const {
    const int64_t begin = c10::multiply_integers(k_sizes_);
    return flat.narrow(0, begin, flat.size(0) - begin).view(v_sizes_);
  }

 private:
  std::vector<int64_t> k_sizes_, v_sizes_;
};

/// A block of this rank's queries and a source's keys, with their first positions in both tensors.
struct Pair {
  AttentionBlock block;
  int64_t query = 0, num_queries = 0;
  int64_t key = 0, num_keys = 0;
};

/// The blocks in which some query sees some key; for each run of queries the latest keys first.
std::vector<Pair> visible_pairs(const ContextCall& call, int64_t num_tokens, int source) {
  std::vector<Pair> pairs;
  int64_t query = 0;
  for (const PositionRun& queries : call.runs_of(call.group.rank(), num_tokens)) {
    const std::vector<PositionRun> keys = call.runs_of(source, num_tokens);
    int64_t key = num_tokens;
    for (auto run = keys.rbegin(); run != keys.rend(); ++run) {
      key -= run->count;
      Pair pair{call.block, query, queries.count, key, run->count};
      pair.block.first_query = queries.first;
      pair.block.first_key = run->first;
      pair.block.dropout.first_query = queries.first;
      if (pair.block.visible_keys.defined()) {
        pair.block.visible_keys = pair.block.visible_keys.narrow(1, query, queries.count);
      }
      if (has_visible_pair(pair.block, queries.count, run->count)) pairs.push_back(pair);
    }
    query += queries.count;
  }
  return pairs;
}

Qkv part_of(const Qkv& x, const Pair& pair) {
  return {x.q.narrow(1, pair.query, pair.num_queries), x.k.narrow(1, pair.key, pair.num_keys),
          x.v.narrow(1, pair.key, pair.num_keys)};
}

AttentionResult part_of(const AttentionResult& x, const Pair& pair) {
  return {x.out.narrow(1, pair.query, pair.num_queries),
          x.lse.narrow(2, pair.query, pair.num_queries)};
}

/// x in the dtype that fused blocks compute in: on the CPU float32 (float64 stays), else x's own.
at::Tensor computed(const at::Tensor& x) {
  const bool is_narrow = x.is_cpu() && x.scalar_type() != at::kDouble;
  return is_narrow ? x.to(at::kFloat).contiguous() : x.contiguous();
}

/// Adds the attention to a source's keys to the result; the rank's own keys come first and start
/// it.
void attend_source(const ContextCall& call, const Qkv& qkv, int source, AttentionResult& result) {
  const bool is_own = source == call.group.rank();
  int64_t next_query = 0;
  for (Pair& pair : visible_pairs(call, qkv.q.size(1), source)) {
    pair.block.adds = !is_own || pair.query < next_query;
    next_query = pair.query + pair.num_queries;
    AttentionResult part = part_of(result, pair);
    attend_block(pair.block, part_of(qkv, pair), part);
  }
}

void attend_source_backward(const ContextCall& call, const Qkv& qkv, int source,
                            const AttentionResult& result, const at::Tensor& d_out,
                            const Qkv& gradients) {
  for (const Pair& pair : visible_pairs(call, qkv.q.size(1), source)) {
    Qkv part = part_of(gradients, pair);
    attend_block_backward(pair.block, part_of(qkv, pair), part_of(result, pair),
                          d_out.narrow(1, pair.query, pair.num_queries), part);
  }
}

/// Calls visit(source, its keys and values) for every rank, this one first, while the next ones'
/// are being received.
using Visit = std::function<void(int source, const at::Tensor& flat)>;

void gather_all(const ContextCall& call, const at::Tensor& own, const Visit& visit) {
  at::Tensor all = at::empty({call.group.size(), own.size(0)}, own.options());
  comm::Work work = call.group.start_all_gather(all, own);
  visit(call.group.rank(), own);
  work.wait();
  for (int step = 1; step < call.group.size(); ++step) {
    visit(call.source(step), all.select(0, call.source(step)));
  }
}

/// Sends every rank's tensor to the next rank of the ring and receives the previous rank's into
/// `coming`. It is one operation of the whole group: separate sends and receives would wait for
/// each other in a circle where a communicator runs one after the other.
comm::Work start_rotation(const ContextCall& call, const at::Tensor& coming,
                          const at::Tensor& going) {
  const auto num_ranks = static_cast<size_t>(call.group.size());
  comm::ExchangeCounts counts{std::vector<int64_t>(num_ranks), std::vector<int64_t>(num_ranks)};
  counts.out[static_cast<size_t>(call.source(1))] = coming.size(0);
  counts.in[static_cast<size_t>(call.source(-1))] = going.size(0);
  return call.group.start_all_to_all(coming, going, counts);
}

void go_round(const ContextCall& call, const at::Tensor& own, const Visit& visit) {
  at::Tensor here = own;
  for (int step = 0; step < call.group.size(); ++step) {
    at::Tensor coming;
    comm::Work rotation;
    if (step + 1 < call.group.size()) {
      coming = at::empty_like(own);
      rotation = start_rotation(call, coming, here);
    }
    visit(call.source(step), here);
    rotation.wait();
    here = coming;
  }
}

/// Returns gradients of keys and values [cp, n] to their owners: each gets its own, summed over all
/// ranks.
class GradientReturn final {
 public:
  GradientReturn(const ContextCall& call, int64_t numel, const at::TensorOptions& options)
      : call_(call) {
    const bool is_gathered = call.method == CpRotateMethod::kAllGather;
    shares_ = at::zeros({is_gathered ? call.group.size() : 1, numel}, options);
  }

  /// The tensor, zero at first, to which the gradients of a source's keys are added.
  at::Tensor begin(int source) {
    if (call_.method == CpRotateMethod::kAllGather) return shares_.select(0, source);
    return shares_.select(0, 0).zero_();
  }

  /// Called when this share is complete: adds what earlier ranks summed and sends it to the next
  /// rank.
  void end() {
    if (call_.method == CpRotateMethod::kAllGather || call_.group.size() == 1) return;
    const at::Tensor sum = shares_.select(0, 0).clone();
    rotation_.wait();
    if (coming_.defined()) sum.add_(coming_);
    coming_ = at::empty_like(sum);
    rotation_ = start_rotation(call_, coming_, sum);
  }

  at::Tensor finish() {
    if (call_.group.size() == 1) return shares_.select(0, 0);
    if (call_.method == CpRotateMethod::kAllGather) {
      at::Tensor own = at::empty_like(shares_.select(0, 0));
      call_.group.reduce_scatter(own, shares_, comm::ReduceOp::kSum);
      return own;
    }
    rotation_.wait();  // the last message holds the sum of all ranks
    return coming_;
  }

 private:
  const ContextCall& call_;
  at::Tensor shares_, coming_;
  comm::Work rotation_;
};

void visit_sources(const ContextCall& call, const at::Tensor& own, const Visit& visit) {
  switch (call.method) {
    case CpRotateMethod::kAllGather:
      return gather_all(call, own, visit);
    case CpRotateMethod::kAllToAll:
      return go_round(call, own, visit);
  }
}

/// {out, lse} in float32, of q, k, v in their stored dtype.
AttentionResult attend_all(const ContextCall& call, const Qkv& qkv) {
  const at::Tensor q = computed(qkv.q);
  const auto wide = q.options().dtype(tensor::wide_dtype(q.scalar_type()));
  AttentionResult result{at::empty({q.size(0), q.size(1), q.size(2), qkv.v.size(3)}, wide),
                         at::empty({q.size(0), q.size(2), q.size(1)}, wide)};
  const KeyValues pack(qkv.k, qkv.v);
  visit_sources(call, pack.join(qkv.k, qkv.v), [&](int source, const at::Tensor& flat) {
    attend_source(call, {q, computed(pack.keys(flat)), computed(pack.values(flat))}, source,
                  result);
  });
  return result;
}

Qkv attend_all_backward(const ContextCall& call, const Qkv& qkv, const AttentionResult& result,
                        const at::Tensor& d_out) {
  const at::Tensor q = computed(qkv.q);
  const at::Tensor d = d_out.to(result.out.scalar_type()).contiguous();
  const KeyValues pack(qkv.k, qkv.v);
  const at::Tensor own = pack.join(qkv.k, qkv.v);
  const at::Tensor dq = at::zeros(q.sizes(), result.out.options());
  GradientReturn back(call, own.size(0), result.out.options());
  visit_sources(call, own, [&](int source, const at::Tensor& flat) {
    const at::Tensor share = back.begin(source);
    attend_source_backward(call, {q, computed(pack.keys(flat)), computed(pack.values(flat))},
                           source, result, d, {dq, pack.keys(share), pack.values(share)});
    back.end();
  });
  const at::Tensor sum = back.finish();
  return {dq.to(qkv.q.scalar_type()), pack.keys(sum).to(qkv.k.scalar_type()),
          pack.values(sum).to(qkv.v.scalar_type())};
}

/// A call, kept by an autograd node.
struct KeptCall : torch::CustomClassHolder {
  explicit KeptCall(ContextCall kept) : call(std::move(kept)) {}
  ContextCall call;
};

/// out [B, s, N, V] and lse for q, k, v of this rank's tokens.
struct ContextAttention : torch::autograd::Function<ContextAttention> {
  static tensor_list forward(AutogradContext* context, const at::Tensor& q, const at::Tensor& k,
                             const at::Tensor& v, const std::optional<at::Tensor>& sinks,
                             const c10::intrusive_ptr<KeptCall>& kept) {
    AttentionResult result;
    if (const auto found = kernels::take_result(kernels::ResultKind::kAttention)) {
      result = {(*found)[0].detach(), (*found)[1].detach()};
    } else {
      result = attend_all(kept->call, {q, k, v});
      if (sinks) kernels::add_sinks(*sinks, result);
      kernels::offer_result(kernels::ResultKind::kAttention, {result.out, result.lse});
    }
    context->save_for_backward({q, k, v, result.out, result.lse, sinks.value_or(at::Tensor())});
    context->saved_data["call"] = c10::IValue::make_capsule(kept);
    context->mark_non_differentiable({result.lse});
    return {result.out.to(q.scalar_type()), result.lse};
  }

  static tensor_list backward(AutogradContext* context, tensor_list gradients) {
    const auto saved = context->get_saved_variables();
    const auto holder = context->saved_data["call"].toCapsule();
    const AttentionResult result{saved[3], saved[4]};
    const Qkv d = attend_all_backward(static_cast<const KeptCall&>(*holder).call,
                                      {saved[0], saved[1], saved[2]}, result, gradients[0]);
    const at::Tensor& sinks = saved[5];
    at::Tensor d_sinks;  // of this rank's queries; averaged over ranks like any parameter's
    if (sinks.defined()) {
      d_sinks = kernels::sinks_gradient(sinks, result, gradients[0].to(result.out.scalar_type()));
    }
    return {d.q, d.k, d.v, d_sinks, at::Tensor()};
  }
};

class ContextParallelCore final : public nn::AttentionCore {
 public:
  ContextParallelCore(comm::ProcessGroup group, CpRotateMethod method, SequenceLayout layout)
      : group_(std::move(group)), method_(method), layout_(layout) {}

  AttentionResult attend(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                         const kernels::AttentionOptions& options) override {
    if (options.dropout.mask.drops() && !kernels::has_attention_dropout(q)) {
      throw UnsupportedError(
          "attention dropout with cp_size > 1 is for float32 and bfloat16 on CPUs and NVIDIA GPUs");
    }
    AM_CHECK(options.is_causal,
             "a plan refuses context parallelism of attention in both directions");
    const bool has_masks = options.padding_mask.defined() || options.document_ids.defined();
    AM_CHECK(!has_masks || options.visible_keys.defined(), "masks of a batch that was not split");
    AttentionBlock block;
    block.scale =
        options.scale != 0 ? options.scale : 1.0 / std::sqrt(static_cast<double>(q.size(3)));
    block.window = options.window;
    block.softcap = options.softcap;
    block.visible_keys = options.visible_keys;
    block.dropout = options.dropout;
    if (block.dropout.num_heads == 0) block.dropout.num_heads = q.size(2);
    if (block.dropout.length == 0) block.dropout.length = q.size(1) * group_.size();
    const auto sinks = options.sinks.defined() ? std::optional(options.sinks) : std::nullopt;
    const tensor_list result = ContextAttention::apply(
        q, k, v, sinks,
        c10::make_intrusive<KeptCall>(ContextCall{group_, method_, layout_, std::move(block)}));
    return {result[0], result[1]};
  }

 private:
  comm::ProcessGroup group_;
  CpRotateMethod method_;
  SequenceLayout layout_;
};

/// A sharder's share and group, kept by an autograd node.
struct KeptShare : torch::CustomClassHolder {
  KeptShare(comm::ProcessGroup kept, SequenceLayout layout)
      : group(std::move(kept)), layout(layout) {}
  comm::ProcessGroup group;
  SequenceLayout layout;
};

struct GatherTokens : torch::autograd::Function<GatherTokens> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& x, int64_t length,
                            const c10::intrusive_ptr<KeptShare>& kept) {
    context->saved_data["share"] = c10::IValue::make_capsule(kept);
    std::vector<int64_t> sizes = x.sizes().vec();
    sizes.insert(sizes.begin(), kept->group.size());
    at::Tensor shares = at::empty(sizes, x.options());
    kept->group.all_gather(shares, x.contiguous());
    return join_tokens(shares, kept->layout).narrow(1, 0, length).contiguous();
  }

  static tensor_list backward(AutogradContext* context, tensor_list gradients) {
    const auto holder = context->saved_data["share"].toCapsule();
    const auto& kept = static_cast<const KeptShare&>(*holder);
    std::vector<at::Tensor> shares;
    for (int rank = 0; rank < kept.group.size(); ++rank) {
      shares.push_back(split_tokens(gradients[0], 0, {rank, kept.group.size(), kept.layout}));
    }
    at::Tensor own = at::empty_like(shares[0]);
    kept.group.reduce_scatter(own, at::stack(shares), comm::ReduceOp::kSum);
    return {own, at::Tensor(), at::Tensor()};
  }
};

}  // namespace

std::shared_ptr<nn::AttentionCore> make_context_parallel_core(const comm::ProcessGroup& group,
                                                              CpRotateMethod method,
                                                              SequenceLayout layout) {
  return std::make_shared<ContextParallelCore>(group, method, layout);
}

tensor::Batch ContextParallelSharder::shard(const tensor::Batch& batch) const {
  if (group_.size() == 1) return batch;
  return split_batch(batch, ignore_index_, share());
}

at::Tensor ContextParallelSharder::shard_token_tensor(const at::Tensor& x, double fill) const {
  return split_tokens(x, fill, share());
}

at::Tensor ContextParallelSharder::gather_token_tensor(const at::Tensor& x, int64_t length) const {
  if (group_.size() == 1) return x;
  return GatherTokens::apply(x, length, c10::make_intrusive<KeptShare>(group_, layout_));
}

}  // namespace automodel::distributed
