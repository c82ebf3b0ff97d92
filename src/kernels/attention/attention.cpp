#include "kernels/attention/attention.h"

#include <ATen/ATen.h>
#include <ATen/record_function.h>
#include <torch/csrc/autograd/custom_function.h>

#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include "core/error.h"
#include "kernels/attention/attention_block.h"
#include "kernels/attention/flash_attention.h"
#include "kernels/attention/visible_keys.h"
#include "kernels/base/fused.h"
#include "kernels/base/made_again.h"
#include "kernels/base/result_keeper.h"
#include "tensor/dtype.h"

namespace automodel::kernels {

namespace {

using torch::autograd::AutogradContext;
using torch::autograd::tensor_list;

/// Attention of whole sequences by blocks, in float32 or, for float64 queries, float64. The fused
/// loops and FlashAttention may give `out` in q's dtype; otherwise it has lse's.
AttentionResult attend(const AttentionBlock& block, const tensor_list& qkv, bool is_wide) {
  RECORD_FUNCTION("automodel::causal_attention", c10::ArrayRef<const c10::IValue>{});
  const at::Tensor& q = qkv[0];
  const auto wide = q.options().dtype(tensor::wide_dtype(q.scalar_type()));
  if (const auto flash = FlashAttention::of(block, {q, qkv[1], qkv[2]})) {
    AttentionResult result = flash->forward({q, qkv[1], qkv[2]});
    if (is_wide) result.out = result.out.to(wide);
    return result;
  }
  const bool is_fused = has_attention_loops(block, {q, qkv[1], qkv[2]});
  AttentionResult result{at::empty({q.size(0), q.size(1), q.size(2), qkv[2].size(3)},
                                   is_fused && !is_wide ? q.options() : wide),
                         at::empty({q.size(0), q.size(2), q.size(1)}, wide)};
  attend_block(block, {q, qkv[1], qkv[2]}, result);
  return result;
}

/// A block whose tensors are kept apart, as the graph's own, and the path that its forward took: a
/// device's backward runs in another thread, which PlainPathScope does not reach.
struct KeptBlock : torch::CustomClassHolder {
  explicit KeptBlock(AttentionBlock whole) : block(std::move(whole)) {
    block.visible_keys.reset();
    block.chosen_keys.reset();
    block.distance_bias.reset();
  }
  AttentionBlock block;
  bool is_plain = is_plain_path_asked();
};

/// {out, lse}; a keeper's results are used instead of computing them. Heads that can be split again
/// from what their norms keep are not kept.
struct CausalAttention : torch::autograd::Function<CausalAttention> {
  static tensor_list forward(AutogradContext* context, const at::Tensor& q_in,
                             const at::Tensor& k_in, const at::Tensor& v_in,
                             const std::optional<at::Tensor>& sinks,
                             const std::optional<at::Tensor>& bias, const AttentionBlock* whole) {
    AttentionBlock own = *whole;
    own.distance_bias = bias.value_or(at::Tensor());
    const AttentionBlock* const block = &own;
    const tensor_list qkv = {q_in.contiguous(), k_in.contiguous(), v_in.contiguous()};
    at::Tensor out, lse;
    if (const auto kept = take_result(ResultKind::kAttention)) {
      out = (*kept)[0].detach();
      lse = (*kept)[1].detach();
    } else {
      AttentionResult result = attend(*block, qkv, sinks.has_value());
      if (sinks) add_sinks(*sinks, result);
      offer_result(ResultKind::kAttention, {result.out, result.lse});
      out = result.out;
      lse = result.lse;
    }
    const bool is_split_again = can_split_again({q_in, k_in, v_in});
    if (is_split_again) note_maker(*context, q_in.grad_fn());
    const auto kept = [&](const at::Tensor& x) { return is_split_again ? at::Tensor() : x; };
    context->save_for_backward({kept(qkv[0]), kept(qkv[1]), kept(qkv[2]), out, lse,
                                block->visible_keys, sinks.value_or(at::Tensor()),
                                block->chosen_keys, block->distance_bias});
    context->saved_data["block"] =
        c10::IValue::make_capsule(c10::make_intrusive<KeptBlock>(*block));
    context->mark_non_differentiable({lse});
    return {out.to(q_in.scalar_type()), lse};
  }

  static tensor_list backward(AutogradContext* context, tensor_list gradients) {
    const auto saved = context->get_saved_variables();
    const auto kept_block =
        c10::static_intrusive_pointer_cast<KeptBlock>(context->saved_data["block"].toCapsule());
    const PlainPathScope path(kept_block->is_plain || is_plain_path_asked());
    AttentionBlock block = kept_block->block;
    block.visible_keys = saved[5];
    block.chosen_keys = saved[7];
    block.distance_bias = saved[8];
    torch::autograd::Node* const maker = noted_maker(*context);
    const Qkv qkv = maker != nullptr ? split_again(*maker) : Qkv{saved[0], saved[1], saved[2]};
    const at::Tensor d_out = gradients[0].to(saved[3].scalar_type()).contiguous();
    Qkv d;
    at::Tensor d_bias;
    if (const auto flash = FlashAttention::of(block, qkv)) {
      d = flash->backward(qkv, {saved[3], saved[4]}, d_out);
    } else {
      const auto zeros = [&](const at::Tensor& x) {
        return at::zeros(x.sizes(), saved[4].options());
      };
      d = {zeros(qkv.q), zeros(qkv.k), zeros(qkv.v)};
      at::Tensor of_sequences;
      if (const at::Tensor& bias = block.distance_bias; bias.defined()) {
        of_sequences = at::zeros({qkv.q.size(0), bias.size(0), bias.size(1)}, bias.options());
      }
      attend_block_backward(block, qkv, {saved[3], saved[4]}, d_out, d, of_sequences);
      if (of_sequences.defined()) d_bias = of_sequences.sum(0);
    }
    const at::Tensor& sinks = saved[6];
    at::Tensor d_sinks;
    if (sinks.defined()) d_sinks = sinks_gradient(sinks, {saved[3], saved[4]}, d_out);
    const at::ScalarType dtype = qkv.q.scalar_type();
    return {d.q.to(dtype), d.k.to(dtype), d.v.to(dtype), d_sinks, d_bias, at::Tensor()};
  }
};

/// The keys that padding, documents, chunks and windows both ways leave visible, as of
/// visible_keys(). Throws UnsupportedError for chunks of documents that are not one run of tokens
/// each.
std::optional<at::Tensor> keys_in_reach(const at::Tensor& q, const AttentionOptions& options) {
  const std::optional<at::Tensor> visible =
      visible_keys(options.padding_mask, options.document_ids);
  if (!options.is_causal && visible) return windows_of(*visible, q, options.window);
  if (options.chunk == 0 || options.chunk >= q.size(1)) return visible;
  if (!visible) {
    throw UnsupportedError(
        "attention by chunks takes documents that are one run of tokens each, padded at their ends "
        "alone; here padding is inside a document, or a document begins again");
  }
  return chunks_of(*visible, q, options.chunk);
}

/// True where a query may see a key: [1 or B, 1, Q, T].
at::Tensor visible(const at::Tensor& q, int64_t num_keys, const AttentionOptions& options) {
  const int64_t length = q.size(1);
  const at::TensorOptions of_positions = q.options().dtype(at::kLong);
  const at::Tensor distance =
      at::arange(length, of_positions).unsqueeze(1) - at::arange(num_keys, of_positions);
  at::Tensor mask = options.is_causal
                        ? distance.ge(0)
                        : at::ones_like(distance, distance.options().dtype(at::kBool));
  if (options.window > 0) {
    const at::Tensor size = options.is_causal ? distance : distance.abs();
    mask = mask.logical_and(size.lt(options.window));
  }
  mask = mask.unsqueeze(0).unsqueeze(0);
  if (options.padding_mask.defined()) {
    mask = mask.logical_and(options.padding_mask.logical_not().unsqueeze(1).unsqueeze(1));
  }
  if (options.document_ids.defined()) {
    const at::Tensor& ids = options.document_ids;
    mask = mask.logical_and(ids.unsqueeze(2).eq(ids.unsqueeze(1)).unsqueeze(1));
  }
  if (options.chunk > 0 && options.chunk < length) {
    const at::Tensor runs = keys_in_reach(q, options)->to(q.device()).unsqueeze(1);
    const at::Tensor keys = at::arange(num_keys, of_positions);
    mask = mask.logical_and(keys.ge(runs.narrow(-1, 0, 1)))
               .logical_and(keys.lt(runs.narrow(-1, 1, 1)));
  }
  if (options.chosen_keys.defined()) {
    const at::Tensor is_chosen = at::zeros({q.size(0), length, length}, mask.options());
    is_chosen.scatter_(-1, options.chosen_keys.to(at::kLong), true);
    mask = mask.logical_and(is_chosen.unsqueeze(1));
  }
  return mask;
}

/// The dropout of q's probabilities, q and its keys being whole sequences, with all members set.
AttentionDropout of_whole(AttentionDropout dropout, const at::Tensor& q, const at::Tensor& k) {
  if (dropout.num_heads == 0) dropout.num_heads = q.size(2);
  dropout.length = std::max(q.size(1), k.size(1));
  return dropout;
}

/// Where the probabilities [B, N, Q, T] of q's heads lie in the mask.
std::vector<DropoutSpan> dropout_spans(const AttentionDropout& dropout, const at::Tensor& q,
                                       int64_t num_keys) {
  std::vector<DropoutSpan> spans;
  for (int64_t b = 0; b < q.size(0); ++b) {
    for (int64_t head = 0; head < q.size(2); ++head) {
      for (int64_t query = 0; query < q.size(1); ++query) {
        add_span(spans, {dropout.first_of(b, head, query), num_keys});
      }
    }
  }
  return spans;
}

/// The bias of distances, if there is one, in the dtype of the scores of q.
std::optional<at::Tensor> bias_of(const AttentionOptions& options, const at::Tensor& q) {
  if (!options.distance_bias.defined()) return std::nullopt;
  AM_CHECK(options.softcap == 0 && options.distance_bias.size(1) == 2 * q.size(1) - 1);
  return options.distance_bias.to(tensor::wide_dtype(q.scalar_type())).contiguous();
}

double scale_of(const AttentionOptions& options, const at::Tensor& q) {
  return options.scale != 0 ? options.scale : 1.0 / std::sqrt(static_cast<double>(q.size(3)));
}

/// k or v [B, S, K, H] as [B, N, S, H].
at::Tensor expand_heads(const at::Tensor& x, int64_t num_heads) {
  const int64_t repeats = num_heads / x.size(2);
  at::Tensor heads = x.transpose(1, 2);
  if (repeats == 1) return heads;
  return heads.unsqueeze(2)
      .expand({x.size(0), x.size(2), repeats, x.size(1), x.size(3)})
      .reshape({x.size(0), num_heads, x.size(1), x.size(3)});
}

}  // namespace

std::optional<AttentionResult> causal_attention_by_blocks(const at::Tensor& q, const at::Tensor& k,
                                                          const at::Tensor& v,
                                                          const AttentionOptions& options) {
  const bool is_chosen_on_cpu = options.chosen_keys.defined() && is_fusable({q});
  if (q.numel() == 0) return std::nullopt;
  if (options.dropout.mask.drops() && (is_chosen_on_cpu || !has_attention_dropout(q))) {
    return std::nullopt;
  }
  const std::optional<at::Tensor> visible = keys_in_reach(q, options);
  if (!visible) return std::nullopt;
  AttentionBlock block;
  block.scale = scale_of(options, q);
  block.window = options.is_causal ? options.window : 0;
  if (!options.is_causal) block.first_query = k.size(1);  // queries behind all keys see them all
  block.softcap = options.softcap;
  block.visible_keys = *visible;
  block.chosen_keys = options.chosen_keys;
  block.dropout = of_whole(options.dropout, q, k);
  const auto sinks = options.sinks.defined() ? std::optional(options.sinks) : std::nullopt;
  tensor_list result = CausalAttention::apply(q, k, v, sinks, bias_of(options, q), &block);
  return AttentionResult{result[0], result[1]};
}

AttentionResult causal_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                 const AttentionOptions& options) {
  AM_CHECK(!options.visible_keys.defined(), "a part of sequences needs a core that sees the rest");
  AM_CHECK(options.chunk == 0 || (options.is_causal && options.window == 0),
           "chunks are of the tokens before a query, without a window");
  if (is_fusable({q, k, v}) || !q.device().is_cpu()) {
    if (auto result = causal_attention_by_blocks(q, k, v, options)) return *result;
  }
  return causal_attention_reference(q, k, v, options);
}

AttentionResult cross_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                const AttentionOptions& options) {
  const std::optional<at::Tensor> visible = visible_keys(options.padding_mask, at::Tensor());
  const bool has_dropout = options.dropout.mask.drops() && !has_attention_dropout(q);
  const bool is_plain = !is_fusable({q, k, v}) && q.device().is_cpu();
  if (!visible || has_dropout || is_plain || q.numel() == 0) {
    return cross_attention_reference(q, k, v, options);
  }
  AttentionBlock block;
  block.scale = scale_of(options, q);
  block.has_others_keys = true;
  block.first_query = k.size(1);  // queries behind all keys see them all
  if (visible->defined()) {       // what is left of the keys is one run, the same for all queries
    block.visible_keys = visible->narrow(1, 0, 1).expand({q.size(0), q.size(1), 2});
  }
  block.dropout = of_whole(options.dropout, q, k);
  tensor_list result = CausalAttention::apply(q, k, v, std::nullopt, std::nullopt, &block);
  return {result[0], result[1]};
}

AttentionResult attention_of_last(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                  const AttentionOptions& options) {
  AttentionBlock block;
  block.scale = scale_of(options, q);
  block.softcap = options.softcap;
  block.first_query = k.size(1) - q.size(1);
  block.visible_keys = options.visible_keys;
  const auto wide = q.options().dtype(tensor::wide_dtype(q.scalar_type()));
  AttentionResult result{at::empty({q.size(0), q.size(1), q.size(2), v.size(3)}, wide),
                         at::empty({q.size(0), q.size(2), q.size(1)}, wide)};
  attend_block(block, {q.contiguous(), k, v}, result);
  if (options.sinks.defined()) add_sinks(options.sinks, result);
  result.out = result.out.to(q.scalar_type());
  return result;
}

AttentionResult causal_attention_reference(const at::Tensor& q, const at::Tensor& k,
                                           const at::Tensor& v, const AttentionOptions& options) {
  const int64_t num_heads = q.size(2);
  const at::ScalarType wide = tensor::wide_dtype(q.scalar_type());
  const double scale = scale_of(options, q);
  const at::Tensor keys = expand_heads(k, num_heads).to(wide);
  const at::Tensor values = expand_heads(v, num_heads).to(wide);
  at::Tensor scores = at::matmul(q.transpose(1, 2).to(wide), keys.transpose(-1, -2)) * scale;
  if (options.softcap > 0) scores = at::tanh(scores / options.softcap) * options.softcap;
  if (const auto bias = bias_of(options, q)) {
    const at::Tensor positions = at::arange(q.size(1), q.options().dtype(at::kLong));
    const at::Tensor distances = positions - positions.unsqueeze(1) + (q.size(1) - 1);
    scores = scores + bias->index({at::indexing::Slice(), distances});
  }
  const at::Tensor mask = visible(q, k.size(1), options);
  const at::Tensor is_blind = mask.any(-1, true).logical_not();
  // A query that sees nothing gets finite scores and then zeros, so that no NaN arises.
  scores = scores.masked_fill(mask.logical_not().logical_and(is_blind.logical_not()),
                              -std::numeric_limits<float>::infinity());
  const int64_t num_keys = scores.size(-1);
  if (options.sinks.defined()) {
    const at::Tensor sinks = options.sinks.to(wide).view({1, -1, 1, 1});
    scores = at::cat({scores, sinks.expand({scores.size(0), -1, scores.size(2), 1})}, -1);
  }
  AttentionResult result;
  result.lse = scores.logsumexp(-1);
  at::Tensor probabilities = at::softmax(scores, -1).masked_fill(is_blind, 0.0);
  if (options.sinks.defined()) probabilities = probabilities.narrow(-1, 0, num_keys);
  if (options.dropout.mask.drops()) {
    probabilities = dropout_reference(probabilities, options.dropout.mask,
                                      dropout_spans(of_whole(options.dropout, q, k), q, num_keys));
  }
  result.out = at::matmul(probabilities, values).transpose(1, 2).to(q.scalar_type());
  return result;
}

AttentionResult cross_attention_reference(const at::Tensor& q, const at::Tensor& k,
                                          const at::Tensor& v, const AttentionOptions& options) {
  AttentionOptions own;
  own.scale = options.scale;
  own.is_causal = false;
  own.dropout = options.dropout;
  own.padding_mask = options.padding_mask;
  return causal_attention_reference(q, k, v, own);
}

}  // namespace automodel::kernels
