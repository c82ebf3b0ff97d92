#include "models/decoder/next_tokens.h"

#include <ATen/ATen.h>

#include <utility>

#include "core/error.h"
#include "nn/layer_list.h"

namespace automodel::models::decoder {

NextTokenLayer::NextTokenLayer(const DecoderConfig& config, int64_t layer, bool is_first,
                               bool is_last, at::ScalarType dtype)
    : Block(config, layer, dtype) {
  if (is_first) {
    embedding_norm_ = register_module("embedding_norm", make_norm(config, dtype));
    hidden_norm_ = register_module("hidden_norm", make_norm(config, dtype));
    fusion_proj_ = register_module(
        "fusion_proj",
        std::make_shared<nn::Linear>(nn::LinearOptions{.in_features = 2 * config.hidden_size,
                                                       .out_features = config.hidden_size},
                                     dtype));
  }
  if (is_last) depth_norm_ = register_module("depth_norm", make_norm(config, dtype));
}

at::Tensor NextTokenLayer::forward(const at::Tensor& x, const at::Tensor& embedded,
                                   std::shared_ptr<const ForwardContext> context) const {
  AM_CHECK(embedded.defined() == (fusion_proj_ != nullptr), "only a first layer takes a token");
  nn::TensorList inputs{x};
  if (embedded.defined()) inputs.push_back(embedded);
  // Captures the context by value: a recomputing behaviour calls the body again much later.
  return hook()(inputs, [this, context](const nn::TensorList& in) {
    return nn::TensorList{run_all(in, *context)};
  })[0];
}

at::Tensor NextTokenLayer::run_all(const nn::TensorList& inputs,
                                   const ForwardContext& context) const {
  at::Tensor x = inputs[0];
  if (fusion_proj_) {
    context.key_adapters();
    x = fusion_proj_->forward(
        at::cat({embedding_norm_->forward(inputs[1]), hidden_norm_->forward(x)}, -1));
  }
  x = run(x, context);
  return depth_norm_ ? depth_norm_->forward(x) : x;
}

/// The configuration with the layers that predict further tokens behind the model's.
static DecoderConfig with_all_layers(const DecoderConfig& config) {
  const NextTokenOptions& options = *config.next_tokens;
  DecoderConfig all = config;
  for (int64_t i = 0; i < options.num_own_layers(); ++i) {
    all.layers.push_back(options.own_layer(i));
  }
  return all;
}

NextTokenModule::NextTokenModule(const DecoderConfig& config, at::ScalarType dtype)
    : options_(*config.next_tokens) {
  const DecoderConfig all = with_all_layers(config);
  auto list = register_module("layers", std::make_shared<nn::LayerList>());
  for (int64_t i = 0; i < options_.num_own_layers(); ++i) {
    const int64_t place = i % options_.depth_size();
    layers_.push_back(list->register_module(
        cat(i), std::make_shared<NextTokenLayer>(all, config.num_layers() + i, place == 0,
                                                 place + 1 == options_.depth_size(), dtype)));
  }
}

std::vector<at::Tensor> NextTokenModule::forward(
    const at::Tensor& hidden, const std::vector<at::Tensor>& ahead,
    const std::shared_ptr<const ForwardContext>& context) const {
  std::vector<at::Tensor> depths;
  at::Tensor x = hidden;
  for (int64_t depth = 0; depth < options_.num_depths; ++depth) {
    const int64_t first = options_.is_repeated ? 0 : depth * options_.depth_size();
    for (int64_t i = 0; i < options_.depth_size(); ++i) {
      const at::Tensor embedded = i == 0 ? ahead[static_cast<size_t>(depth)] : at::Tensor();
      x = layers_[static_cast<size_t>(first + i)]->forward(x, embedded, context);
    }
    depths.push_back(x);
  }
  return depths;
}

at::Tensor labels_ahead(const tensor::Batch& batch, int64_t depth, int64_t ignore_index) {
  at::Tensor labels = at::full_like(batch.labels, ignore_index);
  const int64_t count = batch.sequence_length() - depth - 1;
  if (count <= 0) return labels;
  at::Tensor ahead = batch.labels.narrow(1, depth + 1, count);
  if (batch.document_ids.defined()) {
    const at::Tensor& documents = batch.document_ids;
    const at::Tensor is_other =
        documents.narrow(1, depth + 1, count).ne(documents.narrow(1, 0, count));
    ahead = ahead.masked_fill(is_other, ignore_index);
  }
  labels.narrow(1, 0, count).copy_(ahead);
  return labels;
}

}  // namespace automodel::models::decoder
