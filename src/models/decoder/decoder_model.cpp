#include "models/decoder/decoder_model.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "core/divide.h"
#include "core/error.h"
#include "kernels/attention/visible_keys.h"
#include "kernels/layers/norm.h"
#include "kernels/layers/normalized_rows.h"
#include "kernels/products/linear.h"
#include "kernels/recurrence/linear_recurrence.h"
#include "models/class_names.h"
#include "models/decoder/classifier.h"
#include "models/decoder/embedder.h"
#include "models/decoder/initial_rules.h"
#include "nn/layer_list.h"
#include "tensor/dtype.h"

namespace automodel::models::decoder {

namespace {

/// A module that only contains others: "model".
class Container final : public torch::nn::Module {
 public:
  void remove(const std::string& name) { unregister_module(name); }
};

}  // namespace

DecoderModel::DecoderModel(const Family& family, DecoderConfig config, Json hf_config,
                           at::ScalarType dtype)
    : family_(family),
      config_(std::move(config)),
      hf_config_(std::move(hf_config)),
      dtype_(dtype),
      key_map_(config_.makes_embeddings
                   ? without_base_prefix(make_key_map(config_, family.names), family)
                   : make_key_map(config_, family.names)),
      loss_head_(nn::make_local_loss_head()) {
  for (const nn::RopeOptions& rope : config_.ropes) ropes_.emplace_back(rope);
  auto model = register_module("model", std::make_shared<Container>());
  embed_tokens_ = model->register_module(
      "embed_tokens",
      std::make_shared<nn::Embedding>(
          nn::EmbeddingOptions{config_.vocab_size, config_.hidden_size, config_.padding_idx},
          dtype));
  if (config_.layer_inputs) {
    layer_inputs_ =
        model->register_module("layer_inputs", std::make_shared<LayerInputs>(config_, dtype));
  }
  if (config_.has_learned_positions) {
    embed_positions_ = model->register_module(
        "embed_positions",
        std::make_shared<nn::Embedding>(
            nn::EmbeddingOptions{config_.first_position + config_.max_positions,
                                 config_.hidden_size, config_.padding_position()},
            dtype));
  }
  if (config_.num_token_types > 0) {
    embed_types_ = model->register_module(
        "embed_types",
        std::make_shared<nn::Embedding>(
            nn::EmbeddingOptions{config_.num_token_types, config_.hidden_size}, dtype));
  }
  if (config_.has_placed_norm) {
    embed_norm_ = model->register_module("embed_norm", make_norm(config_, dtype));
  }
  auto layers = model->register_module("layers", std::make_shared<nn::LayerList>());
  for (int64_t i = 0; i < config_.num_layers(); ++i) {
    blocks_.push_back(layers->register_module(cat(i), std::make_shared<Block>(config_, i, dtype)));
  }
  if (config_.hyper_connections) {
    hc_head_ = model->register_module(
        "hc_head", std::make_shared<nn::HyperHead>(*config_.hyper_connections, dtype));
  }
  if (config_.has_final_norm()) {
    norm_ = model->register_module("norm", make_norm(config_, dtype, NormRole::kFinal));
  }
  if (config_.pooler) {
    pooler_ = model->register_module(
        "pooler", std::make_shared<nn::Linear>(
                      nn::LinearOptions{.in_features = config_.hidden_size,
                                        .out_features = config_.hidden_size,
                                        .has_bias = config_.pooler->has_bias,
                                        .takes_adapters = !config_.pooler->is_of_head},
                      dtype));
    if (config_.pooler->has_norms) {
      pooler_norm_ = model->register_module("pooler_norm", make_norm(config_, dtype));
    }
  }
  if (!config_.is_head_tied) {
    lm_head_ = register_module(
        "lm_head",
        std::make_shared<nn::Linear>(nn::LinearOptions{.in_features = config_.hidden_size,
                                                       .out_features = config_.head_rows(),
                                                       .has_bias = config_.has_head_bias,
                                                       .takes_adapters = !config_.is_head_normed &&
                                                                         !config_.is_classifier()},
                                     dtype));
  }
  if (config_.next_tokens) {
    mtp_ = register_module("mtp", std::make_shared<NextTokenModule>(config_, dtype));
  }
}

namespace {

/// This rank's part of x [B, S] or [1, S]; `filler` fills up the last part.
at::Tensor part_of_sequence(const at::Tensor& x, const ForwardContext& context, int64_t filler) {
  if (context.num_sequence_parts == 1) return x;
  const int64_t count = ceil_div(x.size(1), context.num_sequence_parts);
  return at::constant_pad_nd(x, {0, count * context.num_sequence_parts - x.size(1)}, filler)
      .narrow(1, context.sequence_part * count, count);
}

/// This rank's part of the padding mask; what fills up the last part is padding too.
at::Tensor padding_of_part(const tensor::Batch& batch, const ForwardContext& context) {
  const int64_t num_parts = context.num_sequence_parts;
  if (num_parts == 1) return batch.padding_mask;
  const int64_t length = batch.sequence_length();
  const int64_t count = ceil_div(length, num_parts);
  if (!batch.padding_mask.defined() && count * num_parts == length) return {};
  const at::Tensor mask =
      batch.padding_mask.defined()
          ? batch.padding_mask
          : at::zeros_like(batch.input_ids, batch.input_ids.options().dtype(at::kBool));
  return part_of_sequence(mask, context, 1);
}

CompressedContext compressed_context(const tensor::Batch& batch, const DecoderConfig& config) {
  if (batch.part) throw UnsupportedError(std::string(kNoContextParallelCompression));
  const auto visible = kernels::visible_keys(batch.padding_mask, batch.document_ids);
  if (!visible) {
    throw UnsupportedError(
        "compressed attention takes documents that are one run of tokens each, padded at their "
        "ends alone; here padding is inside a document, or a document begins again");
  }
  const CompressedAttentionOptions& options = *config.compressed_attention;
  const auto windows = [&](Compression compression) {
    if (!config.has_compression(compression)) return kernels::CompressedWindows();
    return kernels::compressed_windows(batch.input_ids, {.rate = options.rate(compression),
                                                         .visible_keys = *visible,
                                                         .position_ids = batch.position_ids});
  };
  return {kernels::sliding_runs(batch.input_ids, *visible, config.layers.front().window),
          windows(Compression::kSparse), windows(Compression::kHeavy)};
}

}  // namespace

std::shared_ptr<const ForwardContext> DecoderModel::make_context(const tensor::Batch& batch) {
  if (on_length_) on_length_(batch.sequence_length());
  auto context = std::make_shared<ForwardContext>();
  context->position_ids = batch.position_ids;
  context->padding_mask = batch.padding_mask;
  context->document_ids = batch.document_ids;
  context->visible_keys = batch.visible_keys;
  if (config_.has_recurrence()) {
    if (batch.part) throw UnsupportedError(std::string(kNoContextParallelState));
    context->document_runs = kernels::document_runs(batch.document_ids);
  }
  context->is_training = is_training();
  context->dropout = dropout_;
  context->adapter_dropout = adapter_dropout_;
  const int64_t num_tokens = batch.sequence_length();
  context->sequence =
      batch.part.value_or(tensor::SequencePart{num_tokens, num_tokens, {{0, num_tokens}}});
  context->num_sequences = batch.num_sequences();
  context->sequence_part = sequence_part_;
  context->num_sequence_parts = num_sequence_parts_;
  if (config_.moe) context->no_token = padding_of_part(batch, *context);
  const int64_t length = batch.needed_positions();
  if (config_.has_learned_positions && length > config_.max_positions) {
    throw InputError(cat("sequences of ", length, " positions are longer than the ",
                         config_.max_positions, " positions that the model has learned"));
  }
  if (config_.indexer && batch.part) {
    throw UnsupportedError(std::string(kNoContextParallelIndexer));
  }
  if (config_.has_chunks() && batch.part) {
    throw UnsupportedError(std::string(kNoContextParallelChunks));
  }
  if (config_.shares_choices()) {
    context->key_choices = std::make_shared<std::vector<at::Tensor>>(config_.layers.size());
  }
  const auto is_hash_routed = [](const LayerOptions& layer) { return layer.is_hash_routed; };
  if (std::ranges::any_of(config_.layers, is_hash_routed)) context->token_ids = batch.input_ids;
  if (config_.compressed_attention) context->compressed = compressed_context(batch, config_);
  for (nn::RopeTables& rope : ropes_) {
    context->ropes.push_back(rope.table(length, batch.input_ids.device()));
  }
  return context;
}

at::Tensor DecoderModel::embed(const at::Tensor& token_ids, const ForwardContext& context) const {
  check_token_ids(token_ids, config_.layer_inputs
                                 ? std::min(config_.vocab_size, config_.layer_inputs->vocab_size)
                                 : config_.vocab_size);
  at::Tensor x = embed_tokens_->forward(token_ids);
  // A rounded scale is the embedding's own in transformers, and noise comes after the embedding.
  const bool is_scale_own = config_.is_embedding_scale_rounded;
  if (!is_scale_own) x = with_noise(x, context, embedding_noise_);
  if (config_.has_embedding_norm) x = kernels::unweighted_rms_norm(x, config_.norm_eps);
  if (config_.embedding_scale == 1.0) return x;
  double scale = config_.embedding_scale;
  if (is_scale_own) {
    scale = at::scalar_tensor(scale, at::TensorOptions().dtype(x.scalar_type())).item<double>();
  }
  x = x * scale;
  return is_scale_own ? with_noise(x, context, embedding_noise_) : x;
}

/// The rows [B, S] or [1, S] of the positions' table.
at::Tensor DecoderModel::positions(const tensor::Batch& batch) const {
  const int64_t first = config_.first_position;
  const at::Tensor places = at::arange(batch.sequence_length(), batch.input_ids.options());
  if (!config_.is_pad_unplaced) {
    const at::Tensor own = batch.position_ids.defined() ? batch.position_ids : places.unsqueeze(0);
    if (first == 0) return own;
    // Padding has the position before the first.
    return (batch.padding_mask.defined() ? own.masked_fill(batch.padding_mask, -1) : own) + first;
  }
  // Pad tokens, inside a text too, are not counted and have the position before the first.
  const at::Tensor counts = batch.input_ids.ne(config_.padding_idx).to(at::kLong);
  at::Tensor counted = counts.cumsum(1);
  if (batch.position_ids.defined()) {
    const at::Tensor begins = places - batch.position_ids;  // of each token's document
    counted = counted - (counted - counts).gather(1, begins);
  }
  return counted * counts + (first - 1);
}

/// The first block's input of the batch's embedded tokens.
at::Tensor DecoderModel::place(at::Tensor embedded, const tensor::Batch& batch,
                               const ForwardContext& context) const {
  at::Tensor x = std::move(embedded);
  if (embed_positions_) {
    x = x + embed_positions_->forward(part_of_sequence(positions(batch), context, 0));
  }
  if (embed_types_) {
    x = x + embed_types_->forward(batch.token_types.defined()
                                      ? batch.token_types
                                      : at::zeros_like(batch.input_ids.narrow(0, 0, 1)));
  }
  if (embed_norm_) x = embed_norm_->forward(x);
  x = dropout(x, context, "embedding", config_.embedding_dropout);
  // All streams begin as the embedding.
  return config_.hyper_connections ? x.repeat({1, 1, config_.hyper_connections->num_streams}) : x;
}

at::Tensor DecoderModel::hidden_states(const tensor::Batch& batch) {
  return run_stage(batch, at::Tensor());
}

at::Tensor DecoderModel::run_stage(const tensor::Batch& batch, const at::Tensor& input) {
  return through_hook([this, batch, input] { return run_blocks(batch, input); });
}

at::Tensor DecoderModel::run_blocks(const tensor::Batch& batch, const at::Tensor& input) {
  const bool embeds = !kept_ || kept_->contains("model.embed_tokens");
  AM_CHECK(input.defined() != embeds, "a stage embeds or takes hidden states");
  const std::shared_ptr<const ForwardContext> context = make_context(batch);
  if (input.defined()) return transform(input, {}, context);
  const at::Tensor embedded = embed(batch.input_ids, *context);
  std::vector<at::Tensor> layer_inputs;
  if (layer_inputs_) layer_inputs = layer_inputs_->forward(batch.input_ids, embedded);
  return transform(place(embedded, batch, *context), layer_inputs, context);
}

/// x [B, S, D] with the mean, or sum, of each text's tokens in the place of its first one, and
/// zeros in those of others. Padding is in none.
static at::Tensor sums_of_texts(const at::Tensor& x, const ForwardContext& context,
                                TextPooling pooling) {
  const int64_t length = x.size(1);
  const auto visible = kernels::visible_keys(context.padding_mask, context.document_ids);
  if (!visible) {
    throw InputError("the mean of a text's tokens takes texts that are one run of tokens each");
  }
  const at::TensorOptions longs = x.options().dtype(at::kLong);
  at::Tensor row_of_first = at::arange(x.size(0), longs).unsqueeze(1).expand({-1, length}) * length;
  if (visible->defined()) row_of_first = row_of_first + visible->select(-1, 0).to(x.device());
  at::Tensor tokens = x.to(tensor::wide_dtype(x.scalar_type()));
  at::Tensor counts = at::ones({x.size(0), length, 1}, tokens.options());
  if (context.padding_mask.defined()) {
    const at::Tensor is_padding = context.padding_mask.unsqueeze(-1);
    tokens = tokens.masked_fill(is_padding, 0);
    counts = counts.masked_fill(is_padding, 0);
  }
  // Padding alone has no first token.
  const at::Tensor rows = row_of_first.flatten().clamp_max(x.size(0) * length - 1);
  const auto sums = [&](const at::Tensor& values) {
    return at::zeros_like(values).flatten(0, 1).index_add(0, rows, values.flatten(0, 1));
  };
  at::Tensor out = sums(tokens);
  if (pooling == TextPooling::kMean) out = out / sums(counts).clamp_min(1);
  return out.view_as(x).to(x.scalar_type());
}

at::Tensor DecoderModel::transform(at::Tensor x, const std::vector<at::Tensor>& layer_inputs,
                                   const std::shared_ptr<const ForwardContext>& context) const {
  std::vector<SharedKeys> keys(config_.shares_keys() ? blocks_.size() : 0);
  for (size_t i = 0; i < blocks_.size(); ++i) {
    if (layer_inputs.empty() && keys.empty()) {
      x = blocks_[i]->forward(x, context);
      continue;
    }
    // A pipeline's plan refuses such models: blocks are numbered as layers.
    const LayerOptions& layer = config_.layers[i];
    SharedKeys none;
    SharedKeys& shared =
        keys.empty() ? none : keys[layer.has_own_keys() ? i : static_cast<size_t>(layer.key_layer)];
    x = blocks_[i]->forward(x, context, layer_inputs.empty() ? at::Tensor() : layer_inputs[i],
                            shared);
  }
  if (hc_head_) x = hc_head_->forward(x);
  if (norm_) x = norm_->forward(x);
  if (config_.pools_texts()) return sums_of_texts(x, *context, config_.text_pooling);
  return pooler_ ? pool(x, *context) : x;
}

/// What the head reads of x [B, S, D]: of the first token of each text.
at::Tensor DecoderModel::pool(const at::Tensor& x, const ForwardContext& context) const {
  const PoolerOptions& options = *config_.pooler;
  at::Tensor read = options.averages ? sums_of_texts(x, context, TextPooling::kMean) : x;
  if (options.drops_input) read = dropout(read, context, "pooler", options.dropout);
  const at::Tensor projected = pooler_->forward(read);
  at::Tensor pooled =
      options.activation ? kernels::activate(projected, *options.activation) : projected.tanh();
  if (pooler_norm_) pooled = pooler_norm_->forward(pooled);
  return dropout(pooled, context, "head", options.dropout);
}

/// Operands whose product is that of x [..., D] and the weight [V, D] plus the bias [V]: the bias
/// is one more column, for an input of one.
static std::pair<at::Tensor, at::Tensor> with_bias_column(const at::Tensor& x,
                                                          const at::Tensor& weight,
                                                          const at::Tensor& bias) {
  const at::Tensor column = bias.to(weight.scalar_type()).unsqueeze(1);
  return {at::cat({x, at::ones_like(x.narrow(-1, 0, 1))}, -1), at::cat({weight, column}, -1)};
}

void DecoderModel::set_fake_quantizer(std::shared_ptr<nn::FakeQuantizer> quantizer) {
  nn::set_fake_quantizer(*this, quantizer);
  quantizer_ = std::move(quantizer);
}

bool DecoderModel::rounds_head() const {
  // A head whose rows are normalized is none of torchao's linear layers.
  return quantizer_ && quantizer_->is_on() && !config_.is_head_normed &&
         quantizer_->fits(config_.hidden_size, config_.has_head_bias);
}

template <typename Body>
at::Tensor DecoderModel::with_head(const at::Tensor& hidden, const Body& head) const {
  const auto body = [&](const at::Tensor& x, const at::Tensor& weight) {
    if (!config_.has_head_bias) return head(x, weight);
    const auto [wide_x, wide_weight] = with_bias_column(x, weight, lm_head_->bias());
    return head(wide_x, wide_weight);
  };
  // Hidden states of a wider dtype are cast to the head's weight's here.
  const auto multiplied = [&](const at::Tensor& x, const at::Tensor& weight) {
    const at::Tensor in = x.to(weight.scalar_type());
    if (rounds_head()) {
      const kernels::FakeQuantization& format = quantizer_->format();
      return body(format.rounds_inputs ? kernels::rounded_tokens(in) : in,
                  kernels::rounded_weight(weight, format.weights));
    }
    return body(product_dtype_.of(in), product_dtype_.of(weight));
  };
  const auto adapted = [&](const at::Tensor& x, const at::Tensor& weight, const nn::Lora* lora) {
    if (lora == nullptr) return multiplied(x, weight);
    const auto [wide_x, wide_weight] = lora->operands(product_dtype_.of(x.to(weight.scalar_type())),
                                                      product_dtype_.of(weight), product_dtype_);
    return body(wide_x, wide_weight);
  };
  if (!lm_head_) {
    return adapted(hidden, embed_tokens_->weight(), tied_head_ ? &tied_head_->lora() : nullptr);
  }
  return lm_head_->unit_hook()({hidden}, [&](const nn::TensorList& in) {
    const nn::Lora* lora = lm_head_->loras().empty() ? nullptr : lm_head_->loras()[0].get();
    const at::Tensor& weight = lm_head_->weight();
    return nn::TensorList{adapted(
        in[0], config_.is_head_normed ? kernels::rows_of_length_one(weight) : weight, lora)};
  })[0];
}

at::Tensor DecoderModel::logits(const at::Tensor& hidden) {
  at::Tensor out = through_hook([this, hidden] {
    return with_head(hidden, [](const at::Tensor& x, const at::Tensor& weight) {
      return kernels::linear(x, weight, {});
    });
  });
  if (config_.logit_scale != 1.0) out = out * config_.logit_scale;
  if (config_.final_softcap == 0) return out;
  return at::tanh(out / config_.final_softcap) * config_.final_softcap;
}

at::Tensor DecoderModel::loss(const tensor::Batch& batch, double divisor, int64_t ignore_index) {
  return through_hook([this, batch, divisor, ignore_index] {
    if (mtp_ && is_training()) {
      return cross_entropy(rows_of_all_depths(batch, ignore_index), divisor, ignore_index);
    }
    return cross_entropy({{run_blocks(batch, at::Tensor()), batch.labels, batch.scored}}, divisor,
                         ignore_index);
  });
}

at::Tensor DecoderModel::losses_of_runs(const tensor::Batch& batch,
                                        const std::vector<ScoredRun>& runs, double divisor,
                                        int64_t ignore_index) {
  return through_hook([this, batch, runs, divisor, ignore_index] {
    const at::Tensor hidden = run_blocks(batch, at::Tensor()).reshape({-1, config_.hidden_size});
    const at::Tensor labels = batch.labels.reshape({-1});
    std::vector<ScoredRows> parts;
    for (const ScoredRun& run : runs) {
      parts.push_back(
          {hidden.narrow(0, run.first, run.count), labels.narrow(0, run.first, run.count)});
    }
    return cross_entropies(std::move(parts), divisor, ignore_index);
  });
}

at::Tensor DecoderModel::loss_of_hidden(const tensor::Batch& batch, const at::Tensor& hidden,
                                        double divisor, int64_t ignore_index) {
  return through_hook([this, batch, hidden, divisor, ignore_index] {
    return cross_entropy({{hidden, batch.labels}}, divisor, ignore_index);
  });
}

/// The last hidden states with the batch's labels, and those of all depths with theirs.
std::vector<DecoderModel::ScoredRows> DecoderModel::rows_of_all_depths(const tensor::Batch& batch,
                                                                       int64_t ignore_index) {
  const NextTokenOptions& options = *config_.next_tokens;
  const std::shared_ptr<const ForwardContext> context = make_context(batch);
  const int64_t length = batch.sequence_length();
  // Looked up at once: the embedding may be a unit. What is behind the end is scored nowhere.
  const at::Tensor embedded =
      embed(at::constant_pad_nd(batch.input_ids, {0, options.num_depths}), *context);
  const auto from = [&](int64_t first) { return embedded.narrow(1, first, length).contiguous(); };
  std::vector<at::Tensor> ahead;
  for (int64_t depth = 0; depth < options.num_depths; ++depth) ahead.push_back(from(depth + 1));
  const at::Tensor hidden = transform(place(from(0), batch, *context), {}, context);
  std::vector<at::Tensor> labels;
  for (int64_t depth = 0; depth < options.num_depths; ++depth) {
    labels.push_back(labels_ahead(batch, depth, ignore_index));
  }
  return {{hidden, batch.labels, batch.scored},
          {at::cat(mtp_->forward(hidden, ahead, context)), at::cat(labels), at::Tensor(),
           options.loss_scale / static_cast<double>(options.num_depths)}};
}

at::Tensor DecoderModel::cross_entropies(std::vector<ScoredRows> parts, double divisor,
                                         int64_t ignore_index) const {
  std::vector<at::Tensor> all;
  for (ScoredRows& part : parts) {
    at::Tensor hidden = std::exchange(part.hidden, {}).reshape({-1, config_.hidden_size});
    part.labels = part.labels.reshape({-1});
    // The head costs hidden_size times its rows a token.
    const at::Tensor rows =
        part.scored.defined() ? part.scored : scored_tokens(part.labels, ignore_index);
    if (rows.defined()) {
      hidden = hidden.index_select(0, rows);
      part.labels = part.labels.index_select(0, rows);
    }
    all.push_back(std::move(hidden));
  }
  kernels::CrossEntropyOptions options;
  options.ignore_index = ignore_index;
  options.softcap = config_.final_softcap;
  options.logit_scale = config_.logit_scale;
  options.divisor = divisor;
  options.logits_dtype = logits_dtype_;
  if (config_.makes_embeddings) {
    return loss_head_->loss(all[0], at::Tensor(), parts[0].labels, options).unsqueeze(0);
  }
  // One use of the head, which may be a unit.
  const at::Tensor hidden = all.size() == 1 ? all[0] : at::cat(all);
  all.clear();
  return with_head(hidden, [&](const at::Tensor& x, const at::Tensor& weight) {
    std::vector<at::Tensor> losses;
    int64_t first = 0;
    for (const ScoredRows& part : parts) {
      // A narrow's backward would copy the gradient into a larger one.
      const at::Tensor rows = parts.size() == 1 ? x : x.narrow(0, first, part.labels.size(0));
      losses.push_back(loss_head_->loss(rows, weight, part.labels, options));
      first += part.labels.size(0);
    }
    return losses.size() == 1 ? losses[0].unsqueeze(0) : at::stack(losses);
  });
}

at::Tensor DecoderModel::cross_entropy(std::vector<ScoredRows> parts, double divisor,
                                       int64_t ignore_index) const {
  std::vector<double> weights;
  for (const ScoredRows& part : parts) weights.push_back(part.weight);
  const at::Tensor losses = cross_entropies(std::move(parts), divisor, ignore_index);
  at::Tensor sum;
  for (size_t i = 0; i < weights.size(); ++i) {
    at::Tensor loss = losses[static_cast<int64_t>(i)];
    if (weights[i] != 1.0) loss = loss * weights[i];
    sum = sum.defined() ? sum + loss : loss;
  }
  return sum;
}

void DecoderModel::adapt_tied_head(nn::LoraOptions options) {
  AM_CHECK(lm_head_ == nullptr && tied_head_ == nullptr);
  tied_head_ = register_module(
      "lm_head", std::make_shared<nn::TiedHead>(std::move(options), config_.hidden_size));
}

void DecoderModel::add_parameters(const tensor::KeyMap& parts,
                                  const std::vector<ParameterInit>& values) {
  added_.add(key_map_, parts, values);
}

void DecoderModel::replace_parts(const tensor::KeyMap& parts) {
  models::replace_parts(key_map_, parts);
}

std::vector<ParameterInit> DecoderModel::initial_values() const {
  return added_.initial_values(
      *this, [this](const std::string& name) { return initial_rule(config_, name); });
}

void DecoderModel::keep_stage(const std::vector<std::string>& modules) {
  AM_CHECK(!mtp_, "a pipeline's plan refuses layers that predict further tokens");
  kept_.emplace(modules.begin(), modules.end());
  auto& model = dynamic_cast<Container&>(*named_children()["model"]);
  auto& layers = dynamic_cast<nn::LayerList&>(*model.named_children()["layers"]);
  std::vector<std::shared_ptr<Block>> kept_blocks;
  for (size_t i = 0; i < blocks_.size(); ++i) {
    if (kept_->contains(cat("model.layers.", i))) {
      kept_blocks.push_back(blocks_[i]);
    } else {
      layers.remove(cat(i));
    }
  }
  blocks_ = std::move(kept_blocks);
  if (!kept_->contains("model.embed_tokens")) {
    if (!multiplies_by_embedding()) {
      model.remove("embed_tokens");
      embed_tokens_.reset();
    }
    if (embed_positions_) model.remove("embed_positions");
    embed_positions_.reset();
    if (embed_norm_) model.remove("embed_norm");
    embed_norm_.reset();
  }
  if (!kept_->contains("model.norm")) {
    model.remove("norm");
    norm_.reset();
    if (hc_head_) model.remove("hc_head");
    hc_head_.reset();
  }
  const bool loses_tied_head = tied_head_ && !multiplies_by_embedding();
  if ((lm_head_ && !kept_->contains("lm_head")) || loses_tied_head) {
    unregister_module("lm_head");
    lm_head_.reset();
    tied_head_.reset();
  }
}

nn::ParallelPlan DecoderModel::parallel_plan() const {
  nn::ParallelPlan plan = family_.parallel_plan(config_);
  if (!kept_) return plan;
  std::erase_if(plan.blocks, [&](const std::string& name) { return !kept_->contains(name); });
  std::erase_if(plan.expert_modules, [&](const std::string& name) {
    // "model.layers.3.mlp.experts" of "model.layers.3".
    return !kept_->contains(name.substr(0, name.rfind('.', name.rfind('.') - 1)));
  });
  for (std::string* name : {&plan.embedding, &plan.final_norm, &plan.head}) {
    const bool is_head = name == &plan.embedding && multiplies_by_embedding();
    if (!kept_->contains(*name) && !is_head) name->clear();
  }
  return plan;
}

bool DecoderModel::multiplies_by_embedding() const {
  return config_.is_head_tied && (!kept_ || kept_->contains("model.norm"));
}

std::vector<int64_t> DecoderModel::hidden_sizes(const tensor::Batch& batch) const {
  const int64_t length = batch.sequence_length() + num_sequence_parts_ - 1;
  return {batch.num_sequences(), length / num_sequence_parts_, config_.stream_dims()};
}

ModelDims DecoderModel::dims() const {
  int64_t num_heads = config_.num_heads;
  int64_t num_kv_heads = config_.num_kv_heads;
  for (const LayerOptions& layer : config_.layers) {
    num_heads = std::gcd(num_heads, config_.heads_of(layer));
    num_kv_heads = std::gcd(num_kv_heads, config_.kv_heads_of(layer));
  }
  return {.vocab_size = config_.vocab_size,
          .num_labels = config_.num_labels,
          .hidden_size = config_.hidden_size,
          .num_layers = config_.num_layers(),
          .num_heads = num_heads,
          .num_kv_heads = num_kv_heads,
          .head_dim = config_.head_dim,
          .intermediate_size = config_.intermediate_size,
          .max_positions = config_.max_positions};
}

Json DecoderModel::hf_config() const {
  Json out = hf_config_;
  for (const char* key : {"torch_dtype", "moe_overrides", "scale_residual_init"}) out.erase(key);
  if (mtp_) {
    // How the layers are trained is the recipe's; the folder says how many there are.
    for (const char* key : {"mtp_use_repeated_layer", "mtp_loss_scaling_factor"}) out.erase(key);
    out["num_nextn_predict_layers"] = Json(config_.next_tokens->num_own_depths());
  }
  out["dtype"] = tensor::dtype_name(dtype_);
  out["architectures"] = Json(Json::Array{Json(architecture())});
  if (config_.makes_embeddings) {
    out["is_causal"] = config_.is_causal;
    out[kPoolingKey] = Json(std::string(text_pooling_name(config_.text_pooling)));
  }
  out["model_type"] = Json(family_.model_type);
  return out;
}

std::vector<std::string> DecoderModel::kept_prefixes() const {
  std::vector<std::string> out;
  for (const std::string_view prefix : family_.kept_prefixes) {
    const bool is_built = mtp_ && family_.names.next_token_layers.starts_with(prefix);
    if (!prefix.empty() && !is_built) out.emplace_back(prefix);
  }
  for (int64_t i = 0; i < config_.num_next_token_layers; ++i) {
    out.push_back(cat("model.layers.", config_.num_layers() + i, "."));
  }
  // Released folders have projections of keys also for layers that see another one's.
  for (int64_t i = 0; i < config_.num_layers(); ++i) {
    if (config_.layers[static_cast<size_t>(i)].has_own_keys()) continue;
    const HfNames& names = family_.names;
    for (const std::string_view name : {names.k, names.v, names.k_norm}) {
      out.push_back(cat(names.layers, ".", i, ".", names.attention, ".", name, "."));
    }
  }
  return out;
}

std::vector<std::string> DecoderModel::unused_prefixes() const {
  if (!config_.is_classifier() && !config_.makes_embeddings) return {};
  std::vector<std::string> out = {cat(family_.names.head, ".")};
  if (config_.makes_embeddings) {
    for (const std::string& module : class_head_modules(family_)) out.push_back(module + ".");
    if (!family_.names.pooler.empty()) {
      out.push_back(cat(family_.names.pooler, "."));
      out.push_back("pooler.");
    }
  }
  for (const std::string_view prefix : family_.unused_prefixes) {
    if (!prefix.empty()) out.emplace_back(prefix);
  }
  return out;
}

std::vector<std::string> DecoderModel::class_head() const {
  return config_.is_classifier() ? class_head_modules(family_) : std::vector<std::string>();
}

std::vector<std::string> DecoderModel::drawn_if_absent() const {
  if (config_.is_classifier()) {
    std::vector<std::string> out;
    for (const std::string& module : class_head()) out.push_back(module + ".");
    if (config_.pooler && !config_.pooler->is_of_head) {
      out.push_back(cat(family_.names.pooler, "."));
    }
    return out;
  }
  if (!mtp_) return {};
  return {cat(family_.names.next_token_layers, ".")};
}

std::map<std::string, std::string> DecoderModel::stand_ins() const {
  std::map<std::string, std::string> out;
  for (const StandIn& other : family_.stand_ins) {
    if (other.name.empty()) continue;
    for (const tensor::ParameterPart& part : key_map_) {
      if (!part.name.ends_with(other.name)) continue;
      out[part.name] =
          cat(part.name.substr(0, part.name.size() - other.name.size()), other.instead);
    }
  }
  const HfNames& names = family_.names;
  // Experts named beside the router have the names of other tensors than an MLP's.
  if (names.moe.empty() || names.experts.empty()) return out;
  for (const tensor::ParameterPart& part : key_map_) {
    const std::string mlp = cat(".", names.mlp, ".");
    const size_t place = part.name.find(mlp);
    if (place == std::string::npos) continue;
    std::string other = part.name;
    out[part.name] = other.replace(place, mlp.size(), cat(".", names.moe, "."));
  }
  return out;
}

void DecoderModel::keep_sequence_part(int part, int num_parts,
                                      std::function<void(int64_t)> on_length) {
  if (config_.has_recurrence()) {
    throw UnsupportedError(
        "layers that carry a state from token to token (gated delta nets, Mamba, short "
        "convolutions) "
        "are not in this version with sequence_parallel");
  }
  sequence_part_ = part;
  num_sequence_parts_ = num_parts;
  on_length_ = std::move(on_length);
}

void DecoderModel::set_attention_core(std::shared_ptr<nn::AttentionCore> core) {
  const auto set = [&](Block& block) {
    if (AttentionLayer* attention = block.attention()) attention->set_core(core);
  };
  for (const std::shared_ptr<Block>& block : blocks_) set(*block);
  if (!mtp_) return;
  for (const std::shared_ptr<NextTokenLayer>& layer : mtp_->layers()) set(*layer);
}

}  // namespace automodel::models::decoder
