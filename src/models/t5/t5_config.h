#pragma once

#include <cstdint>

#include "kernels/layers/activation.h"
#include "models/decoder/config_reader.h"
#include "models/decoder/decoder_config.h"
#include "nn/parallel_plan.h"
#include "tensor/key_map.h"

namespace automodel::models::t5 {

/// T5ForConditionalGeneration and its kind: an encoder that reads a source, and a decoder that
/// writes a target and attends to what the encoder made of the source.
struct T5Config {
  int64_t vocab_size = 0;
  int64_t hidden_size = 0;
  int64_t num_encoder_layers = 0;
  int64_t num_decoder_layers = 0;
  int64_t num_heads = 0;
  int64_t head_dim = 0;
  int64_t intermediate_size = 0;
  kernels::Activation activation = kernels::Activation::kRelu;
  bool is_mlp_gated = false;
  /// Rows of a stack's table of biases of scores by the distance of key and query, a column a head.
  int64_t num_buckets = 32;
  int64_t max_distance = 128;  ///< distances from here on share a row
  /// The head is the embedding, for hidden states divided by the root of their size.
  bool is_head_tied = true;
  double dropout = 0.1;
  double norm_eps = 1e-6;
  double initializer_factor = 1.0;

  int64_t inner_dim() const { return num_heads * head_dim; }
};

/// Reads a config.json of model_type t5 or mt5.
T5Config read_t5(decoder::ConfigReader& reader);

/// The sizes of the configuration, for callers that need these only; its layers are those of both
/// stacks.
decoder::DecoderConfig read_config(decoder::ConfigReader& reader);

nn::ParallelPlan parallel_plan(const T5Config& config);
tensor::KeyMap key_map(const T5Config& config);

}  // namespace automodel::models::t5
