#include "models/decoder/decoder_flops.h"

#include <algorithm>
#include <cmath>

namespace automodel::models::decoder {

// Legend: B batch, S sequence, L layers, h hidden size, V vocabulary, q key-value heads by query
// heads, r width of all heads by hidden size.

int64_t mlp_inner_size(const DecoderConfig& config, const LayerOptions& layer) {
  if (!layer.has_mlp) return 0;
  const int64_t dense = layer.is_moe ? 0 : config.intermediate_of(layer);
  if (!layer.is_moe && !layer.has_side_experts) return dense;
  return dense + config.moe->n_activated_experts * config.moe->moe_inter_dim +
         config.moe->shared_inner_dim();
}

namespace {

/// The sum of mlp_inner_size over all layers.
double inner_sizes(const DecoderConfig& config) {
  int64_t sum = 0;
  for (const LayerOptions& layer : config.layers) sum += mlp_inner_size(config, layer);
  return static_cast<double>(sum);
}

double attention_flops(const DecoderConfig& config, double B, double S, double r) {
  const auto L = static_cast<double>(config.num_layers());
  const auto h = static_cast<double>(config.hidden_size);
  const double q = static_cast<double>(config.num_kv_heads) / static_cast<double>(config.num_heads);
  return 6 * B * L * S * h * h * r * ((2 * q + 1) + S / h + 1);
}

}  // namespace

double latent_layer_flops(const DecoderConfig& config, double B, double S, double keys) {
  const LatentAttentionOptions& sizes = *config.latent_attention;
  const int64_t h = config.hidden_size;
  const int64_t heads = config.num_heads;
  const int64_t q =
      sizes.q_rank == 0 ? h * heads * sizes.qk_dim() : sizes.q_rank * (h + heads * sizes.qk_dim());
  const int64_t kv = h * (sizes.kv_rank + sizes.rotated_dim) +
                     sizes.kv_rank * heads * (sizes.plain_dim + sizes.value_dim);
  const auto weights = static_cast<double>(q + kv + heads * sizes.value_dim * h);
  const auto width = static_cast<double>(heads * (sizes.qk_dim() + sizes.value_dim));
  return 6 * B * (S * weights + S * keys * width);
}

double gated_delta_flops(const DecoderConfig& config, double B, double S) {
  const auto h = static_cast<double>(config.hidden_size);
  const GatedDeltaOptions& delta = *config.gated_delta;
  const auto conv = static_cast<double>(delta.conv_channels() * delta.num_taps);
  const auto state = static_cast<double>(4 * delta.values() * delta.value_dim);
  const auto widening = static_cast<double>(delta.widening_elements());
  return 6 * B * S *
         (h * static_cast<double>(delta.projected_rows() + delta.values()) + widening + conv +
          state);
}

double mlps_and_head_flops(const DecoderConfig& config, double B, double S) {
  const auto h = static_cast<double>(config.hidden_size);
  const auto V = static_cast<double>(config.head_rows());
  return 18 * B * S * h * inner_sizes(config) + 6 * B * S * h * V;
}

namespace {

/// Operations of all layers' latent attention, where a query sees `keys` keys.
double latent_attention_flops(const DecoderConfig& config, double B, double S, double keys) {
  return static_cast<double>(config.num_layers()) * latent_layer_flops(config, B, S, keys);
}

double gated_decoder_flops(const DecoderConfig& config, double B, double S, double r) {
  const double attention = config.latent_attention ? latent_attention_flops(config, B, S, S / 2)
                                                   : attention_flops(config, B, S, r);
  return attention + mlps_and_head_flops(config, B, S);
}

}  // namespace

/// Counts attention as half, because of causality.
double gpt_flops(const DecoderConfig& config, double B, double S) {
  const auto L = static_cast<double>(config.num_layers());
  const auto h = static_cast<double>(config.hidden_size);
  const auto V = static_cast<double>(config.head_rows());
  return (24 * B * S * h * h + 2 * B * S * S * h) * 3 * L + 6 * B * S * h * V;
}

double llama_flops(const DecoderConfig& config, double B, double S) {
  return gated_decoder_flops(config, B, S, 1.0);
}

double gated_flops(const DecoderConfig& config, double B, double S) {
  const auto h = static_cast<double>(config.hidden_size);
  return gated_decoder_flops(config, B, S,
                             static_cast<double>(config.num_heads * config.head_dim) / h);
}

namespace {

/// Queries and the keys that each sees, of a sequence.
double num_pairs(const LayerOptions& layer, double S) {
  if (layer.chunk > 0) {
    const double chunk = std::min(S, static_cast<double>(layer.chunk));
    const double rest = S - std::floor(S / chunk) * chunk;
    return std::floor(S / chunk) * chunk * (chunk + 1) / 2 + rest * (rest + 1) / 2;
  }
  const double window = layer.window == 0 ? S : std::min(S, static_cast<double>(layer.window));
  return window * (window + 1) / 2 + (S - window) * window;
}

}  // namespace

double layered_flops(const DecoderConfig& config, double B, double S) {
  const auto h = static_cast<double>(config.hidden_size);
  double products = 0;
  for (const LayerOptions& layer : config.layers) {
    if (!layer.has_attention()) continue;
    const auto q = static_cast<double>(config.q_rows(layer));
    const auto kv = static_cast<double>(config.k_rows(layer) + config.v_rows(layer));
    const auto out = static_cast<double>(config.output_columns(layer));
    const double pairs = num_pairs(layer, S);
    products += S * h * (q + kv + out) + (q + out) * pairs;
  }
  // Each layer's input: its part of the projection, its gate, and what is added.
  if (config.layer_inputs) {
    products += 3 * S * h * static_cast<double>(config.num_layers() * config.layer_inputs->dim);
  }
  return 6 * B * products + mlps_and_head_flops(config, B, S);
}

double ungated_flops(const DecoderConfig& config, double B, double S) {
  const auto h = static_cast<double>(config.hidden_size);
  return gated_flops(config, B, S) - 6 * B * S * h * inner_sizes(config);
}

double mamba_flops(const DecoderConfig& config, double B, double S) {
  const Mamba2Options& mamba = *config.mamba2;
  const auto h = static_cast<double>(config.hidden_size);
  const auto count = static_cast<double>(std::ranges::count_if(
      config.layers, [](const LayerOptions& layer) { return layer.has_mamba2(); }));
  const double projections = h * static_cast<double>(mamba.projected_rows() + mamba.inner());
  const double scan = 3.5 * static_cast<double>(mamba.inner() * mamba.state_dim);
  return 6 * B * S * count * (projections + scan);
}

namespace {

/// Projections of all short convolutions, and their taps.
double short_conv_flops(const DecoderConfig& config, double B, double S) {
  const auto h = static_cast<double>(config.hidden_size);
  const auto count = static_cast<double>(std::ranges::count_if(
      config.layers, [](const LayerOptions& layer) { return layer.mixer == Mixer::kShortConv; }));
  return 6 * B * S * count * h * (4 * h + static_cast<double>(config.short_conv->num_taps));
}

}  // namespace

double hybrid_flops(const DecoderConfig& config, double B, double S) {
  const double attention = layered_flops(config, B, S);
  return attention + (config.mamba2 ? mamba_flops(config, B, S) : short_conv_flops(config, B, S));
}

double sparse_latent_flops(const DecoderConfig& config, double B, double S) {
  const IndexerOptions& indexer = *config.indexer;
  const int64_t width = indexer.num_heads * indexer.head_dim;
  const int64_t weights = config.latent_attention->q_rank * width +
                          config.hidden_size * (indexer.head_dim + indexer.num_heads);
  const double indexers = 6 * B * static_cast<double>(config.num_layers()) *
                          (S * static_cast<double>(weights) + S * S * static_cast<double>(width));
  const auto keys = static_cast<double>(indexer.num_chosen);
  return latent_attention_flops(config, B, S, keys) + indexers + mlps_and_head_flops(config, B, S);
}

}  // namespace automodel::models::decoder
