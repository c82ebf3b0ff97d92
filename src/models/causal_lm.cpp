#include "models/causal_lm.h"

#include <ATen/ATen.h>

#include "core/error.h"

namespace automodel::models {

namespace {

[[noreturn]] void refuse_stages(const CausalLM& model) {
  throw UnsupportedError(cat("pipeline parallelism of ", model.architecture(),
                             " is not in this version: the family has no stages"));
}

}  // namespace

void check_token_ids(const at::Tensor& ids, int64_t vocab_size) {
  if (!ids.is_cpu() || ids.numel() == 0) return;
  const auto [smallest, largest] = at::aminmax(ids);
  const int64_t low = smallest.item<int64_t>();
  const int64_t high = largest.item<int64_t>();
  if (low >= 0 && high < vocab_size) return;
  throw InputError(cat("token id ", low < 0 ? low : high, " is outside the model's vocabulary of ",
                       vocab_size, " (vocab_size in config.json): is this the model's tokenizer?"));
}

at::Tensor scored_tokens(const at::Tensor& labels, int64_t ignore_index) {
  if (!labels.is_cpu()) return {};
  at::Tensor rows = labels.ne(ignore_index).nonzero().squeeze(1);
  const bool is_some = rows.size(0) > 0 && rows.size(0) < labels.size(0);
  return is_some ? rows : at::Tensor();
}

std::vector<std::string> CausalLM::saved_modules() const {
  std::vector<std::string> modules = class_head();
  modules.insert(modules.end(), saved_modules_.begin(), saved_modules_.end());
  return modules;
}

nn::TensorList CausalLM::forward_through_hook(
    const std::function<nn::TensorList()>& forward) const {
  return hook_({}, [forward](const nn::TensorList&) { return forward(); });
}

at::Tensor CausalLM::through_hook(const std::function<at::Tensor()>& forward) const {
  return forward_through_hook([forward] { return nn::TensorList{forward()}; })[0];
}

void CausalLM::add_parameters(const tensor::KeyMap&, const std::vector<ParameterInit>&) {
  throw UnsupportedError(cat("adapters (peft) of ", architecture(), " are not in this version"));
}

void CausalLM::replace_parts(const tensor::KeyMap&) {
  throw UnsupportedError(
      cat("weights in 4 bits (quantization) of ", architecture(), " are not in this version"));
}

void CausalLM::adapt_tied_head(nn::LoraOptions) {
  throw UnsupportedError(cat("an adapter of lm_head of ", architecture(),
                             " is not in this version: name other layers in target_modules, such "
                             "as '*_proj'"));
}

void CausalLM::set_embedding_noise(double) {
  throw UnsupportedError(
      cat("noise on embeddings (neftune) of ", architecture(), " is not in this version"));
}

void CausalLM::set_fake_quantizer(std::shared_ptr<nn::FakeQuantizer>) {
  throw UnsupportedError(
      cat("quantization-aware training (qat) of ", architecture(), " is not in this version"));
}

void CausalLM::keep_stage(const std::vector<std::string>&) {
  refuse_stages(*this);
}

at::Tensor CausalLM::run_stage(const tensor::Batch&, const at::Tensor&) {
  refuse_stages(*this);
}

at::Tensor CausalLM::loss_of_hidden(const tensor::Batch&, const at::Tensor&, double, int64_t) {
  refuse_stages(*this);
}

std::vector<int64_t> CausalLM::hidden_sizes(const tensor::Batch&) const {
  refuse_stages(*this);
}

}  // namespace automodel::models
