#include "models/diffusion_gemma/parity.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "core/error.h"

namespace automodel::models::diffusion_gemma {

namespace {

constexpr int64_t kNoLabel = -100;

const at::Tensor* find_tensor(const tensor::NamedTensors& tensors, const std::string& name) {
  for (const auto& [key, value] : tensors) {
    if (key == name) return &value;
  }
  return nullptr;
}

const at::Tensor& needed_tensor(const tensor::NamedTensors& tensors, const std::string& name) {
  const at::Tensor* found = find_tensor(tensors, name);
  if (found == nullptr) throw InputError(cat("the reference file has no tensor '", name, "'"));
  return *found;
}

BlockDiffusionBatch batch_of(const tensor::NamedTensors& reference) {
  BlockDiffusionBatch batch;
  const auto ids = [&](const std::string& name) {
    return needed_tensor(reference, name).to(at::kLong);
  };
  batch.input_ids = ids("input_ids");
  batch.text_labels = ids("text_labels");
  batch.prefix_lengths = ids("prefix_lengths");
  batch.response_lengths = ids("response_lengths");
  batch.canvas_ids = ids("canvas_ids");
  batch.canvas_labels = ids("canvas_labels");
  batch.is_conditioned = needed_tensor(reference, "is_conditioned").ne(0);
  batch.block_size = needed_tensor(reference, "block_size").item<int64_t>();
  if (const at::Tensor* mask = find_tensor(reference, "attention_mask")) {
    batch.padding_mask = mask->eq(0);
  }
  return batch;
}

double num_labels(const at::Tensor& labels) {
  return static_cast<double>(std::max<int64_t>(1, labels.ne(kNoLabel).sum().item<int64_t>()));
}

}  // namespace

ParityPass parity_pass(DiffusionGemmaModel& model, const tensor::NamedTensors& reference) {
  const BlockDiffusionBatch on_cpu = batch_of(reference);
  BlockDiffusionScale scale;
  scale.canvas_divisor = num_labels(on_cpu.canvas_labels);
  scale.text_divisor = num_labels(on_cpu.text_labels);
  scale.text_weight = needed_tensor(reference, "text_weight").item<double>();
  const BlockDiffusionBatch batch = on_cpu.to(model.parameters().front().device());
  ParityPass pass;
  pass.logits = [&model, batch] {
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
  };
  pass.loss = [&model, batch, scale] {
    return model.block_diffusion_loss(batch, scale, kNoLabel).total;
  };
  return pass;
}

}  // namespace automodel::models::diffusion_gemma
