#include "models/t5/t5_model.h"

#include <ATen/ATen.h>

#include <cmath>
#include <map>
#include <utility>

#include "core/error.h"
#include "core/text.h"
#include "kernels/loss/cross_entropy.h"
#include "kernels/products/linear.h"
#include "models/decoder/decoder_activations.h"
#include "nn/layer_list.h"
#include "tensor/dtype.h"

namespace automodel::models::t5 {

namespace {

/// Numbers of T5's second projections are too large for it.
[[noreturn]] void refuse_half(const std::string& architecture) {
  throw UnsupportedError(
      cat("a ", architecture, " in float16 is not in this version: use bfloat16 or float32"));
}

/// A module that only contains others: "encoder".
class StackContainer final : public torch::nn::Module {};

std::shared_ptr<CausalLM> build(std::string architecture, const Json& hf_config,
                                at::ScalarType dtype) {
  decoder::ConfigReader reader(hf_config);
  T5Config config = read_t5(reader);
  if (!reader.problems().empty()) {
    throw InputError(cat("config.json of a ", architecture, ": ", join(reader.problems(), "; ")));
  }
  return std::make_shared<T5Model>(std::move(architecture), config, hf_config, dtype);
}

}  // namespace

T5Model::T5Model(std::string architecture, T5Config config, Json hf_config, at::ScalarType dtype)
    : architecture_(std::move(architecture)),
      config_(config),
      hf_config_(std::move(hf_config)),
      dtype_(dtype),
      key_map_(t5::key_map(config_)),
      loss_head_(nn::make_local_loss_head()) {
  if (dtype == at::kHalf) refuse_half(architecture_);
  shared_ = register_module(
      "shared", std::make_shared<nn::Embedding>(
                    nn::EmbeddingOptions{config_.vocab_size, config_.hidden_size}, dtype));
  encoder_ = add_stack("encoder", false, dtype);
  decoder_ = add_stack("decoder", true, dtype);
  if (!config_.is_head_tied) {
    lm_head_ = register_module(
        "lm_head", std::make_shared<nn::Linear>(
                       nn::LinearOptions{config_.hidden_size, config_.vocab_size}, dtype));
  }
}

T5Model::Stack T5Model::add_stack(const std::string& name, bool is_decoder, at::ScalarType dtype) {
  Stack stack;
  auto container = register_module(name, std::make_shared<StackContainer>());
  const int64_t num_layers = is_decoder ? config_.num_decoder_layers : config_.num_encoder_layers;
  // The blocks' units would free a table that later blocks read: it is the whole model's.
  stack.position_bias = container->register_module(
      "position_bias", std::make_shared<nn::Embedding>(
                           nn::EmbeddingOptions{config_.num_buckets, config_.num_heads}, dtype));
  auto blocks = container->register_module("blocks", std::make_shared<nn::LayerList>());
  for (int64_t i = 0; i < num_layers; ++i) {
    stack.blocks.push_back(blocks->register_module(
        cat(i), std::make_shared<Block>(config_, is_decoder, cat(name, ".", i), dtype)));
  }
  stack.norm = container->register_module(
      "norm", std::make_shared<nn::RmsNorm>(config_.hidden_size,
                                            kernels::NormOptions{.eps = config_.norm_eps}, dtype));
  return stack;
}

std::shared_ptr<decoder::ForwardContext> T5Model::make_context(const at::Tensor& ids) const {
  auto context = std::make_shared<decoder::ForwardContext>();
  context->is_training = is_training();
  context->dropout = dropout_;
  context->adapter_dropout = adapter_dropout_;
  const int64_t length = ids.size(1);
  context->sequence = {length, length, {{0, length}}};
  context->num_sequences = ids.size(0);
  return context;
}

at::Tensor T5Model::run_stack(
    const Stack& stack, const std::string& name, const at::Tensor& ids,
    const std::shared_ptr<const decoder::ForwardContext>& context, const at::Tensor& source,
    const std::shared_ptr<const decoder::ForwardContext>& of_source) const {
  check_token_ids(ids, config_.vocab_size);
  if (shared_->weight().scalar_type() == at::kHalf) refuse_half(architecture_);
  const bool is_encoder = !source.defined();
  const auto dropped = [&](const at::Tensor& x, const char* site) {
    return decoder::dropout(x, *context, cat(name, site), config_.dropout);
  };
  const at::Tensor embedded = decoder::with_noise(shared_->forward(ids), *context, embedding_noise_,
                                                  cat(name, ".embedding"));
  at::Tensor x = dropped(embedded, ".embedding");
  const at::Tensor bias =
      distance_bias(*stack.position_bias, ids.size(1), is_encoder, config_.max_distance);
  for (const std::shared_ptr<Block>& block : stack.blocks) {
    x = is_encoder ? block->forward(x, bias, context)
                   : block->forward(x, bias, context, source, of_source);
  }
  return dropped(stack.norm->forward(x), ".output");
}

at::Tensor T5Model::run(const tensor::Batch& batch) const {
  AM_CHECK(batch.source_ids.defined(), "an encoder-decoder's batch has a source");
  const auto of_source = make_context(batch.source_ids);
  of_source->padding_mask = batch.source_padding;
  const at::Tensor source =
      run_stack(encoder_, "encoder", batch.source_ids, of_source, {}, nullptr);
  // A target's padding is behind its end, where no earlier token sees it.
  return run_stack(decoder_, "decoder", batch.input_ids, make_context(batch.input_ids), source,
                   of_source);
}

template <typename Head>
at::Tensor T5Model::with_head(const at::Tensor& hidden, const Head& head) const {
  const auto multiplied = [&](const at::Tensor& x, const at::Tensor& weight) {
    return head(product_dtype_.of(x.to(weight.scalar_type())), product_dtype_.of(weight));
  };
  if (!lm_head_) {
    const double scale = 1 / std::sqrt(static_cast<double>(config_.hidden_size));
    return multiplied(hidden * scale, shared_->weight());
  }
  return lm_head_->unit_hook()({hidden}, [&](const nn::TensorList& in) {
    if (lm_head_->loras().empty()) return nn::TensorList{multiplied(in[0], lm_head_->weight())};
    const at::Tensor& weight = lm_head_->weight();
    const auto [x, wide] =
        lm_head_->loras()[0]->operands(product_dtype_.of(in[0].to(weight.scalar_type())),
                                       product_dtype_.of(weight), product_dtype_);
    return nn::TensorList{head(x, wide)};
  })[0];
}

at::Tensor T5Model::hidden_states(const tensor::Batch& batch) {
  return through_hook([this, batch] { return run(batch); });
}

at::Tensor T5Model::logits(const at::Tensor& hidden) {
  return through_hook([this, hidden] {
    return with_head(hidden, [](const at::Tensor& x, const at::Tensor& weight) {
      return kernels::linear(x, weight, {});
    });
  });
}

at::Tensor T5Model::loss(const tensor::Batch& batch, double divisor, int64_t ignore_index) {
  return through_hook([this, batch, divisor, ignore_index] {
    at::Tensor hidden = run(batch).reshape({-1, config_.hidden_size});
    at::Tensor labels = batch.labels.reshape({-1});
    const at::Tensor rows =
        batch.scored.defined() ? batch.scored : scored_tokens(labels, ignore_index);
    if (rows.defined()) {
      hidden = hidden.index_select(0, rows);
      labels = labels.index_select(0, rows);
    }
    kernels::CrossEntropyOptions options;
    options.ignore_index = ignore_index;
    options.divisor = divisor;
    options.logits_dtype = logits_dtype_;
    return with_head(hidden, [&](const at::Tensor& x, const at::Tensor& weight) {
      return loss_head_->loss(x, weight, labels, options);
    });
  });
}

/// As transformers draws them.
static tensor::InitRule initial_rule(const T5Config& config, const std::string& name) {
  const auto normal = [&](double variance) {
    return tensor::InitRule::normal(0.0, config.initializer_factor / std::sqrt(variance));
  };
  const auto dim = static_cast<double>(config.hidden_size);
  if (name.ends_with("norm.weight")) return tensor::InitRule::constant(config.initializer_factor);
  if (name == "shared.weight" || name == "lm_head.weight") return normal(1);
  if (name.ends_with(".o_proj.weight")) return normal(static_cast<double>(config.inner_dim()));
  if (name.ends_with("down_proj.weight")) {
    return normal(static_cast<double>(config.intermediate_size));
  }
  if (name.ends_with(".q_proj.weight")) return normal(dim * static_cast<double>(config.head_dim));
  return normal(dim);
}

std::vector<ParameterInit> T5Model::initial_values() const {
  return added_.initial_values(
      *this, [this](const std::string& name) { return initial_rule(config_, name); });
}

ModelDims T5Model::dims() const {
  return {.vocab_size = config_.vocab_size,
          .hidden_size = config_.hidden_size,
          .num_layers = config_.num_encoder_layers + config_.num_decoder_layers,
          .num_heads = config_.num_heads,
          .num_kv_heads = config_.num_heads,
          .head_dim = config_.head_dim,
          .intermediate_size = config_.intermediate_size,
          .max_positions = 512};  // of its pretraining; distances have no limit
}

nn::ActivationSizes T5Model::activation_sizes(const nn::ActivationShape& shape) const {
  decoder::ConfigReader reader(hf_config_);
  nn::ActivationSizes sizes = decoder::activation_sizes(read_config(reader), shape);
  // A decoder's block has two branches of attention, and there are two stacks.
  for (int64_t* kept : {&sizes.block_kept, &sizes.block_forward, &sizes.block_backward}) {
    *kept += *kept / 2;
  }
  for (int64_t* kept : {&sizes.embedding, &sizes.final_norm_kept}) *kept *= 2;
  return sizes;
}

Json T5Model::hf_config() const {
  Json out = hf_config_;
  out.erase("torch_dtype");
  out["dtype"] = tensor::dtype_name(dtype_);
  out["architectures"] = Json(Json::Array{Json(architecture())});
  return out;
}

std::vector<std::string> T5Model::unused_prefixes() const {
  // The embedding's other names, and a table that released folders have beside those in use.
  return {"encoder.embed_tokens.", "decoder.embed_tokens.",
          "decoder.block.0.layer.1.EncDecAttention.relative_attention_bias."};
}

std::map<std::string, std::string> T5Model::stand_ins() const {
  return {{"shared.weight", "encoder.embed_tokens.weight"}};
}

void T5Model::adapt_tied_head(nn::LoraOptions) {
  throw UnsupportedError(cat("an adapter of lm_head of a ", architecture_,
                             " whose head is the embedding is not in this version: name other "
                             "layers in target_modules, as ['*.q', '*.k', '*.v', '*.o', '*.wi*', "
                             "'*.wo']"));
}

void T5Model::set_attention_core(std::shared_ptr<nn::AttentionCore>) {
  throw UnsupportedError(cat("context parallelism of ", architecture_, " is not in this version"));
}

std::shared_ptr<CausalLM> build_t5(const Json& hf_config, at::ScalarType dtype) {
  return build("T5ForConditionalGeneration", hf_config, dtype);
}

std::shared_ptr<CausalLM> build_mt5(const Json& hf_config, at::ScalarType dtype) {
  return build("MT5ForConditionalGeneration", hf_config, dtype);
}

}  // namespace automodel::models::t5
