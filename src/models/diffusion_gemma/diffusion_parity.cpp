#include "models/diffusion_gemma/diffusion_parity.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <initializer_list>

namespace automodel::models::diffusion_gemma {

namespace {

using tensor::find_tensor;

BlockDiffusionBatch batch_of(const tensor::NamedTensors& reference) {
  BlockDiffusionBatch batch;
  const auto ids = [&](const std::string& name) {
    return reference_tensor(reference, name).to(at::kLong);
  };
  batch.input_ids = ids("input_ids");
  batch.text_labels = ids("text_labels");
  batch.prefix_lengths = ids("prefix_lengths");
  batch.response_lengths = ids("response_lengths");
  batch.canvas_ids = ids("canvas_ids");
  batch.canvas_labels = ids("canvas_labels");
  batch.is_conditioned = reference_tensor(reference, "is_conditioned").ne(0);
  batch.block_size = reference_tensor(reference, "block_size").item<int64_t>();
  if (const at::Tensor* mask = find_tensor(reference, "attention_mask")) {
    batch.padding_mask = mask->eq(0);
  }
  return batch;
}

tensor::NamedTensors all_logits(DiffusionGemmaModel& model, const BlockDiffusionBatch& batch) {
  const at::NoGradGuard no_grad;
  const EncodedText text = model.encode(batch.input_ids, batch.padding_mask);
  const at::Tensor first = model.decode(batch, text, {});
  const at::Tensor expected = model.expected_canvas(first, batch.is_conditioned);
  at::Tensor text_logits = model.logits(text.hidden);
  if (batch.padding_mask.defined()) {
    text_logits = text_logits.masked_fill(batch.padding_mask.unsqueeze(-1), 0.0);
  }
  return tensor::NamedTensors{{"encoder_logits", text_logits},
                              {"first_logits", model.logits(first)},
                              {"logits", model.logits(model.decode(batch, text, expected))}};
}

}  // namespace

ParityPass parity_pass(DiffusionGemmaModel& model, const tensor::NamedTensors& reference) {
  const BlockDiffusionBatch on_cpu = batch_of(reference);
  BlockDiffusionScale scale;
  scale.canvas_divisor = num_parity_labels(on_cpu.canvas_labels);
  scale.text_divisor = num_parity_labels(on_cpu.text_labels);
  scale.text_weight = reference_tensor(reference, "text_weight").item<double>();
  const BlockDiffusionBatch batch = on_cpu.to(model.parameters().front().device());
  ParityPass pass;
  const bool has_logits = std::ranges::any_of(
      std::initializer_list<const char*>{"encoder_logits", "first_logits", "logits"},
      [&](const char* name) { return find_tensor(reference, name) != nullptr; });
  if (has_logits) pass.logits = [&model, batch] { return all_logits(model, batch); };
  pass.loss = [&model, batch, scale] {
    return model.block_diffusion_loss(batch, scale, kParityIgnoreIndex).total;
  };
  return pass;
}

}  // namespace automodel::models::diffusion_gemma
