#include "models/diffusion_gemma/diffusion_model.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include "core/error.h"
#include "kernels/loss/cross_entropy.h"
#include "kernels/loss/expected_embedding.h"
#include "kernels/products/linear.h"
#include "models/decoder/decoder_activations.h"
#include "models/diffusion_gemma/config.h"
#include "nn/layer_list.h"
#include "tensor/dtype.h"

namespace automodel::models::diffusion_gemma {

namespace {

class ModelContainer final : public torch::nn::Module {};

int64_t num_positions_of(const BlockDiffusionBatch& batch) {
  const int64_t last = batch.prefix_lengths.max().item<int64_t>() + batch.canvas_ids.size(1);
  return std::max(last, batch.input_ids.size(1));
}

}  // namespace

DiffusionGemmaModel::DiffusionGemmaModel(DiffusionGemmaConfig config, Json hf_config,
                                         at::ScalarType dtype)
    : config_(std::move(config)),
      hf_config_(std::move(hf_config)),
      dtype_(dtype),
      key_map_(diffusion_gemma::key_map(config_)) {
  const decoder::DecoderConfig& text = config_.text;
  for (const nn::RopeOptions& rope : text.ropes) ropes_.emplace_back(rope);
  auto model = register_module("model", std::make_shared<ModelContainer>());
  embed_tokens_ = model->register_module(
      "embed_tokens",
      std::make_shared<nn::Embedding>(
          nn::EmbeddingOptions{text.vocab_size, text.hidden_size, text.padding_idx}, dtype));
  auto layers = model->register_module("layers", std::make_shared<nn::LayerList>());
  for (size_t i = 0; i < config_.layers.size(); ++i) {
    layers_.push_back(
        layers->register_module(cat(i), std::make_shared<DiffusionLayer>(config_, i, dtype)));
  }
  norm_ = model->register_module(
      "norm", std::make_shared<nn::RmsNorm>(text.hidden_size,
                                            kernels::NormOptions{.eps = text.norm_eps}, dtype));
  self_conditioning_ = model->register_module("self_conditioning",
                                              std::make_shared<SelfConditioning>(config_, dtype));
}

std::shared_ptr<PassContext> DiffusionGemmaModel::make_context(int64_t num_positions,
                                                               at::Device device, Pass pass) {
  auto context = std::make_shared<PassContext>();
  context->adapter_dropout = adapter_dropout_;
  const auto keyed = static_cast<uint64_t>(pass) << 32U;
  context->dropout = {
      .seed = dropout_.seed ^ keyed, .step = dropout_.step, .micro_batch = dropout_.micro_batch};
  for (size_t i = 0; i < ropes_.size(); ++i) {
    context->ropes[i] = ropes_[i].table(num_positions, device);
  }
  return context;
}

at::Tensor DiffusionGemmaModel::embed(const at::Tensor& ids) const {
  const at::Tensor x = embed_tokens_->forward(ids);
  return x * embedding_scale(x.scalar_type());
}

double DiffusionGemmaModel::embedding_scale(at::ScalarType dtype) const {
  return at::scalar_tensor(config_.text.embedding_scale, at::TensorOptions().dtype(dtype))
      .item<double>();
}

EncodedText DiffusionGemmaModel::encode(const at::Tensor& input_ids,
                                        const at::Tensor& padding_mask) {
  const auto context = make_context(input_ids.size(1), input_ids.device(), Pass::kText);
  context->padding_mask = padding_mask;
  EncodedText text;
  at::Tensor x = embed(input_ids);
  for (const auto& layer : layers_) x = layer->encode(x, context, text.keys.emplace_back());
  text.hidden = norm_->forward(x);
  return text;
}

at::Tensor DiffusionGemmaModel::decode(const BlockDiffusionBatch& batch, const EncodedText& text,
                                       const at::Tensor& expected) {
  const at::Device device = batch.canvas_ids.device();
  const auto context =
      make_context(num_positions_of(batch), device,
                   at::GradMode::is_enabled() ? Pass::kCanvas : Pass::kFirstCanvas);
  const CanvasVisibility visible = canvas_visibility(batch, config_.window);
  context->position_ids = canvas_positions(batch);
  context->padding_mask = canvas_padding(batch);
  context->visible_text = {visible.text, visible.sliding_text};
  context->visible_canvas = visible.canvas;
  context->key_adapters();
  at::Tensor x = self_conditioning_->forward(embed(batch.canvas_ids), expected);
  for (size_t i = 0; i < layers_.size(); ++i) x = layers_[i]->decode(x, context, text.keys[i]);
  return norm_->forward(x);
}

at::Tensor DiffusionGemmaModel::expected_canvas(const at::Tensor& hidden,
                                                const at::Tensor& is_conditioned) const {
  const at::Tensor rows = is_conditioned.nonzero().squeeze(1);
  if (rows.size(0) == 0) return {};
  kernels::ExpectedEmbeddingOptions options;
  options.softcap = config_.text.final_softcap;
  const at::ScalarType dtype = embed_tokens_->weight().scalar_type();
  options.scale = embedding_scale(dtype);
  const at::Tensor chosen = hidden.index_select(0, rows);
  const at::Tensor expected =
      kernels::expected_embedding(head_input(chosen.reshape({-1, chosen.size(-1)})), head(),
                                  options)
          .to(dtype)
          .view(chosen.sizes());
  if (rows.size(0) == hidden.size(0)) return expected;
  return at::zeros_like(hidden, dtype).index_copy(0, rows, expected);
}

at::Tensor DiffusionGemmaModel::head_input(const at::Tensor& hidden) const {
  // Hidden states of a wider dtype are cast to the head's weight's here.
  return product_dtype_.of(hidden.to(embed_tokens_->weight().scalar_type()));
}

at::Tensor DiffusionGemmaModel::loss_of(const at::Tensor& hidden, const at::Tensor& labels,
                                        double divisor, int64_t ignore_index) const {
  at::Tensor states = hidden.reshape({-1, hidden.size(-1)});
  at::Tensor targets = labels.reshape({-1});
  // The head costs hidden_size * vocab_size a row: skip rows without a label.
  at::Tensor rows = targets.ne(ignore_index).nonzero().squeeze(1);
  if (rows.size(0) == 0)
    rows = at::zeros({1}, rows.options());  // any row, so that the loss has a graph
  states = states.index_select(0, rows);
  targets = targets.index_select(0, rows);
  kernels::CrossEntropyOptions options;
  options.ignore_index = ignore_index;
  options.softcap = config_.text.final_softcap;
  options.divisor = divisor;
  options.logits_dtype = logits_dtype_;
  return kernels::linear_cross_entropy(head_input(states), head(), targets, options);
}

BlockDiffusionLoss DiffusionGemmaModel::block_diffusion_loss(const BlockDiffusionBatch& batch,
                                                             const BlockDiffusionScale& scale,
                                                             int64_t ignore_index) {
  const nn::TensorList losses = forward_through_hook([this, batch, scale, ignore_index] {
    const BlockDiffusionLoss loss = losses_of(batch, scale, ignore_index);
    return nn::TensorList{loss.total, loss.canvas};
  });
  return {losses[0], losses[1]};
}

BlockDiffusionLoss DiffusionGemmaModel::losses_of(const BlockDiffusionBatch& batch,
                                                  const BlockDiffusionScale& scale,
                                                  int64_t ignore_index) {
  const EncodedText text = encode(batch.input_ids, batch.padding_mask);
  at::Tensor first;
  if (config_.has_self_conditioning && batch.is_conditioned.defined()) {
    // Runs even if no row is conditioned, so that all ranks gather the same units.
    const at::NoGradGuard no_grad;
    first = decode(batch, text, {});
  }
  const at::Tensor expected =
      first.defined() ? expected_canvas(first, batch.is_conditioned) : at::Tensor();
  first.reset();
  const at::Tensor hidden = decode(batch, text, expected);
  const at::Tensor canvas =
      loss_of(hidden, batch.canvas_labels, scale.canvas_divisor, ignore_index);
  BlockDiffusionLoss loss{canvas, canvas.detach()};
  if (batch.text_labels.defined() && scale.text_weight > 0) {
    const double divisor = scale.text_divisor / scale.text_weight;
    loss.total = canvas + loss_of(text.hidden, batch.text_labels, divisor, ignore_index);
  }
  return loss;
}

at::Tensor DiffusionGemmaModel::hidden_states(const tensor::Batch& batch) {
  return through_hook([this, batch] { return encode(batch.input_ids, batch.padding_mask).hidden; });
}

at::Tensor DiffusionGemmaModel::logits(const at::Tensor& hidden) {
  const auto wide = at::promote_types(hidden.scalar_type(), at::kFloat);
  const at::Tensor out = through_hook(
      [this, hidden, wide] { return kernels::linear(head_input(hidden), head(), {}).to(wide); });
  const double cap = config_.text.final_softcap;
  return cap == 0 ? out : at::tanh(out / cap) * cap;
}

at::Tensor DiffusionGemmaModel::loss(const tensor::Batch& batch, double divisor,
                                     int64_t ignore_index) {
  return through_hook([this, batch, divisor, ignore_index] {
    return loss_of(encode(batch.input_ids, batch.padding_mask).hidden, batch.labels, divisor,
                   ignore_index);
  });
}

std::vector<ParameterInit> DiffusionGemmaModel::initial_values() const {
  using tensor::InitRule;
  return added_.initial_values(*this, [this](const std::string& name) {
    InitRule rule = InitRule::normal(0.0, config_.text.initializer_range);
    if (name.ends_with("norm.weight") || name.ends_with("scale") || name.ends_with("scalar")) {
      rule = InitRule::constant(1.0);
    } else if (name.ends_with("embed_tokens.weight")) {
      rule.zero_row = config_.text.padding_idx;
    }
    return rule;
  });
}

ModelDims DiffusionGemmaModel::dims() const {
  const decoder::DecoderConfig& text = config_.text;
  return {.vocab_size = text.vocab_size,
          .hidden_size = text.hidden_size,
          .num_layers = text.num_layers(),
          .num_heads = text.num_heads,
          .num_kv_heads = text.num_kv_heads,
          .head_dim = text.head_dim,
          .intermediate_size = text.intermediate_size,
          .max_positions = text.max_positions};
}

nn::ActivationSizes DiffusionGemmaModel::activation_sizes(const nn::ActivationShape& shape) const {
  // Two passes keep at most twice what one keeps: a canvas is no longer than its text.
  nn::ActivationSizes sizes = decoder::activation_sizes(config_.text, shape);
  for (int64_t* kept : {&sizes.embedding, &sizes.block_kept, &sizes.block_input,
                        &sizes.final_norm_kept, &sizes.head_kept}) {
    *kept *= 2;
  }
  return sizes;
}

Json DiffusionGemmaModel::hf_config() const {
  Json out = hf_config_;
  for (const char* key : {"torch_dtype", "self_conditioning", "freeze_router"}) out.erase(key);
  out["dtype"] = tensor::dtype_name(dtype_);
  out["architectures"] = Json(Json::Array{Json(architecture())});
  out["model_type"] = "diffusion_gemma";
  return out;
}

std::vector<std::string> DiffusionGemmaModel::kept_prefixes() const {
  return {"model.encoder.vision_tower.", "model.encoder.embed_vision."};
}

std::map<std::string, std::string> DiffusionGemmaModel::stand_ins() const {
  std::map<std::string, std::string> names;
  for (size_t i = 0; i < layers_.size(); ++i) {
    names.emplace(cat("model.encoder.language_model.layers.", i, ".layer_scalar"),
                  cat("model.decoder.layers.", i, ".layer_scalar"));
  }
  return names;
}

void DiffusionGemmaModel::set_attention_core(std::shared_ptr<nn::AttentionCore>) {
  throw UnsupportedError("context parallelism of DiffusionGemma is not in this version");
}

void DiffusionGemmaModel::set_loss_head(std::shared_ptr<nn::LossHead>) {
  throw UnsupportedError("DiffusionGemma's head is not split in this version");
}

const nn::LossHead& DiffusionGemmaModel::loss_head() const {
  throw UnsupportedError("DiffusionGemma has no head of next tokens");
}

std::shared_ptr<CausalLM> build(const Json& hf_config, at::ScalarType dtype) {
  decoder::ConfigReader reader(hf_config);
  DiffusionGemmaConfig config = read_diffusion_gemma(reader);
  if (!reader.problems().empty()) {
    throw InputError(
        cat("config.json of a DiffusionGemmaForBlockDiffusion: ", join(reader.problems(), "; ")));
  }
  return std::make_shared<DiffusionGemmaModel>(std::move(config), hf_config, dtype);
}

}  // namespace automodel::models::diffusion_gemma
