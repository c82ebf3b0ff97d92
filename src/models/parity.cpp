#include "models/parity.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <utility>

#include "core/error.h"
#include "models/diffusion_gemma/diffusion_parity.h"

namespace automodel::models {

namespace {

using tensor::find_tensor;

constexpr std::string_view kGradPrefix = "grad.";

std::string shape_text(const at::Tensor& tensor) {
  return cat("[", join(std::span<const int64_t>(tensor.sizes().data(), tensor.sizes().size())),
             "]");
}

/// Adds one tensor; `scale` is the denominator of its relative difference.
void compare(ParityDifference& difference, const std::string& name, const at::Tensor& ours,
             const at::Tensor& theirs) {
  if (ours.sizes() != theirs.sizes()) {
    throw InputError(cat("the reference's ", name, " has shape ", shape_text(theirs),
                         ", the model's has ", shape_text(ours)));
  }
  const at::Tensor error = ours.to(at::kDouble) - theirs.to(at::kDouble);
  const double absolute = error.numel() == 0 ? 0 : error.abs().max().item<double>();
  const double size = theirs.to(at::kDouble).norm().item<double>();
  const double norm = error.norm().item<double>();
  const double relative = size == 0 ? norm : norm / size;
  // NaN counts as the worst difference.
  if (difference.num_compared == 0 || !(absolute <= difference.worst_absolute)) {
    difference.worst_absolute = absolute;
    difference.absolute_culprit = name;
  }
  if (difference.num_compared == 0 || !(relative <= difference.worst_relative)) {
    difference.worst_relative = relative;
    difference.relative_culprit = name;
  }
  ++difference.num_compared;
}

void clear_gradients(CausalLM& model) {
  for (const auto& item : model.named_parameters()) {
    const at::Tensor& gradient = item.value().grad();
    // An engine may give it memory with the next backward, zeroed.
    const bool is_there = gradient.defined() && gradient.storage().nbytes() > 0;
    if (is_there) gradient.detach().zero_();
  }
}

ParityDifference compare_gradients(CausalLM& model, const tensor::NamedTensors& reference) {
  ParityDifference difference;
  for (const auto& [name, theirs] : reference) {
    if (!name.starts_with(kGradPrefix)) continue;
    const std::string hf_name = name.substr(kGradPrefix.size());
    const tensor::ParameterPart* found = nullptr;
    for (const tensor::ParameterPart& part : model.key_map()) {
      if (part.name == hf_name) found = &part;
    }
    if (found == nullptr) {
      throw InputError(cat("the reference has ", name, ", but the model has no tensor ", hf_name));
    }
    compare(difference, hf_name, hf_gradient(model, *found).cpu(), theirs.cpu());
  }
  return difference;
}

bool has_gradients(const tensor::NamedTensors& reference) {
  for (const auto& [name, value] : reference) {
    if (name.starts_with(kGradPrefix)) return true;
  }
  return false;
}

/// Sets the model to evaluation mode for its own lifetime.
class EvaluationMode final {
 public:
  explicit EvaluationMode(CausalLM& model) : model_(model), was_training_(model.is_training()) {
    model_.train(false);
  }
  ~EvaluationMode() { model_.train(was_training_); }
  EvaluationMode(const EvaluationMode&) = delete;
  EvaluationMode& operator=(const EvaluationMode&) = delete;

 private:
  CausalLM& model_;
  bool was_training_;
};

}  // namespace

const at::Tensor& reference_tensor(const tensor::NamedTensors& reference, const std::string& name) {
  const at::Tensor* found = find_tensor(reference, name);
  if (found == nullptr) throw InputError(cat("the reference file has no tensor '", name, "'"));
  return *found;
}

double num_parity_labels(const at::Tensor& labels) {
  const int64_t count = labels.ne(kParityIgnoreIndex).sum().item<int64_t>();
  return static_cast<double>(std::max<int64_t>(count, 1));
}

tensor::Batch parity_batch(const tensor::NamedTensors& reference) {
  tensor::Batch batch;
  batch.input_ids = reference_tensor(reference, "input_ids").to(at::kLong);
  if (batch.input_ids.dim() == 1) batch.input_ids = batch.input_ids.unsqueeze(0);
  if (batch.input_ids.dim() != 2) {
    throw InputError(cat("the reference's input_ids have shape ", shape_text(batch.input_ids),
                         "; [batch, sequence] is needed"));
  }
  if (const at::Tensor* target = find_tensor(reference, "decoder_input_ids")) {
    batch.source_ids = std::exchange(batch.input_ids, target->to(at::kLong));
    if (const at::Tensor* mask = find_tensor(reference, "attention_mask")) {
      batch.source_padding = mask->reshape_as(batch.source_ids).eq(0);
    }
  }
  if (const at::Tensor* labels = find_tensor(reference, "labels")) {
    batch.labels = labels->to(at::kLong).reshape_as(batch.input_ids);
  }
  const at::Tensor* mask = find_tensor(reference, "attention_mask");
  if (mask != nullptr && !batch.source_ids.defined()) {
    batch.padding_mask = mask->reshape_as(batch.input_ids).eq(0);
  }
  if (const at::Tensor* types = find_tensor(reference, "token_type_ids")) {
    batch.token_types = types->to(at::kLong).reshape_as(batch.input_ids);
  }
  return batch;
}

at::Tensor hf_gradient(const CausalLM& model, const tensor::ParameterPart& part) {
  const auto parameters = model.named_parameters();
  const at::Tensor* parameter = parameters.find(part.parameter);
  AM_CHECK(parameter != nullptr, part.parameter);
  if (!parameter->grad().defined()) return at::zeros(part.shape, parameter->options());
  return tensor::part_of(parameter->grad().contiguous(), part);
}

namespace {

ParityPass text_pass(CausalLM& model, const tensor::NamedTensors& reference) {
  tensor::Batch batch = parity_batch(reference).to(model.parameters().front().device());
  ParityPass pass;
  if (find_tensor(reference, "logits") != nullptr) {
    pass.logits = [&model, batch] {
      return tensor::NamedTensors{{"logits", model.logits(model.hidden_states(batch))}};
    };
  }
  pass.loss = [&model, batch] {
    if (!batch.labels.defined()) throw InputError("the reference file has no tensor 'labels'");
    return model.loss(batch, num_parity_labels(batch.labels), kParityIgnoreIndex);
  };
  return pass;
}

}  // namespace

ParityPass parity_pass(CausalLM& model, const tensor::NamedTensors& reference) {
  auto* const diffusion = dynamic_cast<diffusion_gemma::DiffusionGemmaModel*>(&model);
  if (diffusion != nullptr) return diffusion_gemma::parity_pass(*diffusion, reference);
  return text_pass(model, reference);
}

ParityReport run_parity(CausalLM& model, const tensor::NamedTensors& reference) {
  const EvaluationMode evaluation(model);
  const ParityPass pass = parity_pass(model, reference);
  ParityReport report;
  double largest_logit = 1e-30;
  for (const auto& [name, ours] : pass.logits()) {
    const at::Tensor* theirs = find_tensor(reference, name);
    if (theirs == nullptr) continue;
    if (!report.logits) report.logits.emplace();
    compare(*report.logits, name, ours.detach().cpu(), theirs->cpu().reshape_as(ours));
    largest_logit = std::max(largest_logit, theirs->abs().max().item<double>());
  }
  if (report.logits) report.logits->worst_relative = report.logits->worst_absolute / largest_logit;
  const at::Tensor* theirs = find_tensor(reference, "loss");
  const bool has_grad = has_gradients(reference);
  if (theirs == nullptr && !has_grad) return report;
  clear_gradients(model);
  const at::Tensor loss = pass.loss();
  if (theirs != nullptr) {
    compare(report.loss.emplace(), "loss", loss.detach().cpu().reshape({}),
            theirs->cpu().reshape({}));
  }
  if (has_grad) {
    loss.backward();
    report.gradients = compare_gradients(model, reference);
  }
  return report;
}

}  // namespace automodel::models
