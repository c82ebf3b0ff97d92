#include "models/decoder/stream_sizes.h"

#include <cstdint>

// A token's N streams of D dims; q dims of all heads, H dims of a key.

namespace automodel::models::decoder {

int64_t hyper_connection_kept(const nn::HyperConnectionOptions& options, const StreamShape& shape) {
  const int64_t streams = options.stream_dims();
  const int64_t square = options.num_streams * options.num_streams;
  // The streams in the wide dtype, before and after their norm, and a copy where that is not
  // theirs.
  const int64_t casts = shape.element_size == shape.wide() ? 0 : 1;
  // Each division of the mixing weights keeps them and the sums.
  const int64_t divided =
      (2 * options.sinkhorn_iterations - 1) * (square + options.num_streams) + 3 * square;
  return shape.num_tokens * (shape.wide() * ((1 + casts) * streams + divided) +
                             shape.element_size * (options.hidden_size + streams));
}

int64_t hyper_connection_working(const nn::HyperConnectionOptions& options,
                                 const StreamShape& shape) {
  return 3 * shape.num_tokens * options.stream_dims() * shape.wide();
}

int64_t compressed_attention_kept(const DecoderConfig& config, const LayerOptions& layer,
                                  const StreamShape& shape) {
  const CompressedAttentionOptions& sizes = *config.compressed_attention;
  const int64_t q = config.num_heads * config.head_dim;
  const int64_t casts = shape.element_size == shape.wide() ? 0 : 1;
  // Queries before their norm, normed and rotated, and results before and after their rotation.
  int64_t narrow = 3 * q + 2 * sizes.q_rank + 3 * config.head_dim;
  int64_t wide = (1 + casts) * q + config.num_heads;
  int64_t chosen = 0;
  if (layer.compression != Compression::kNone) {
    // Values and the softmax of gates, of every token.
    wide += 2 * CompressedAttentionOptions::width(layer.compression) * config.head_dim;
  }
  if (layer.compression == Compression::kSparse) chosen = sizes.indexer.num_chosen;
  return shape.num_tokens * (narrow * shape.element_size + wide * shape.wide() + 4 * chosen);
}

}  // namespace automodel::models::decoder
