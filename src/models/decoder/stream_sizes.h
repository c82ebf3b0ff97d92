#pragma once

#include <cstdint>

#include "models/decoder/decoder_config.h"

namespace automodel::models::decoder {

/// Bytes that parts of DeepSeek V4's layers keep from forward to backward, for plans.
struct StreamShape {
  int64_t num_tokens = 0;
  int64_t element_size = 4;

  /// Of a number in norms, softmaxes and weights of streams.
  int64_t wide() const { return element_size < 4 ? 4 : element_size; }
};

/// A hyper-connection around one branch, besides the streams before it and the branch's input.
int64_t hyper_connection_kept(const nn::HyperConnectionOptions& options, const StreamShape& shape);

/// Most at once while a hyper-connection collapses or expands the streams.
int64_t hyper_connection_working(const nn::HyperConnectionOptions& options,
                                 const StreamShape& shape);

/// Compressed attention between its input and its last projection's input, both left out; what an
/// indexer chose included.
int64_t compressed_attention_kept(const DecoderConfig& config, const LayerOptions& layer,
                                  const StreamShape& shape);

}  // namespace automodel::models::decoder
