#include "kernels/attention.h"

#include <ATen/ATen.h>
#include <ATen/record_function.h>
#include <torch/csrc/autograd/custom_function.h>

#include <cmath>

#include "core/error.h"
#include "kernels/attention_block.h"
#include "kernels/fused.h"
#include "kernels/result_keeper.h"

namespace automodel::kernels {

namespace {

using torch::autograd::AutogradContext;
using torch::autograd::tensor_list;

/// Of whole sequences.
AttentionResult attend(const AttentionBlock& block, const tensor_list& qkv) {
  RECORD_FUNCTION("automodel::causal_attention", c10::ArrayRef<const c10::IValue>{});
  const at::Tensor& q = qkv[0];
  AttentionResult result{at::empty({q.size(0), q.size(1), q.size(2), qkv[2].size(3)}, q.options()),
                         at::empty({q.size(0), q.size(2), q.size(1)}, q.options())};
  attend_block(block, {q, qkv[1], qkv[2]}, result);
  return result;
}

/// {out, lse}, which are not computed when a keeper has them.
struct CausalAttention : torch::autograd::Function<CausalAttention> {
  static tensor_list forward(AutogradContext* context, const at::Tensor& q_in,
                             const at::Tensor& k_in, const at::Tensor& v_in,
                             const std::optional<at::Tensor>& sinks, const AttentionBlock* block) {
    const tensor_list qkv = {q_in.contiguous(), k_in.contiguous(), v_in.contiguous()};
    at::Tensor out, lse;
    if (const auto kept = take_result(ResultKind::kAttention)) {
      out = (*kept)[0].detach();
      lse = (*kept)[1].detach();
    } else {
      AttentionResult result = attend(*block, qkv);
      if (sinks) add_sinks(*sinks, result);
      offer_result(ResultKind::kAttention, {result.out, result.lse});
      out = result.out;
      lse = result.lse;
    }
    context->save_for_backward(
        {qkv[0], qkv[1], qkv[2], out, lse, block->visible_keys, sinks.value_or(at::Tensor())});
    context->saved_data["window"] = block->window;
    context->saved_data["scale"] = block->scale;
    context->saved_data["cap"] = block->softcap;
    context->mark_non_differentiable({lse});
    return {out, lse};
  }

  static tensor_list backward(AutogradContext* context, tensor_list gradients) {
    const auto saved = context->get_saved_variables();
    AttentionBlock block;
    block.window = context->saved_data["window"].toInt();
    block.scale = context->saved_data["scale"].toDouble();
    block.softcap = context->saved_data["cap"].toDouble();
    block.visible_keys = saved[5];
    Qkv d{at::zeros_like(saved[0]), at::zeros_like(saved[1]), at::zeros_like(saved[2])};
    const at::Tensor d_out = gradients[0].contiguous();
    attend_block_backward(block, {saved[0], saved[1], saved[2]}, {saved[3], saved[4]}, d_out, d);
    const at::Tensor& sinks = saved[6];
    at::Tensor d_sinks;
    if (sinks.defined()) d_sinks = sinks_gradient(sinks, {saved[3], saved[4]}, d_out);
    return {d.q, d.k, d.v, d_sinks, at::Tensor()};
  }
};

}  // namespace

AttentionResult causal_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                                 const AttentionOptions& options) {
  AM_CHECK(!options.visible_keys.defined(), "a part of sequences needs a core that sees the rest");
  const bool is_fused = is_fusable({q, k, v}) && q.numel() > 0 && options.dropout == 0;
  std::optional<at::Tensor> visible;
  if (is_fused) visible = visible_keys(options.padding_mask, options.document_ids);
  if (!visible) return causal_attention_reference(q, k, v, options);
  AttentionBlock block;
  block.scale =
      options.scale != 0 ? options.scale : 1.0 / std::sqrt(static_cast<double>(q.size(3)));
  block.window = options.window;
  block.softcap = options.softcap;
  block.visible_keys = *visible;
  const auto sinks = options.sinks.defined() ? std::optional(options.sinks) : std::nullopt;
  tensor_list result = CausalAttention::apply(q, k, v, sinks, &block);
  return {result[0], result[1]};
}

}  // namespace automodel::kernels
