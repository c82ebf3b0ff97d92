#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <string_view>
#include <vector>

#include "kernels/attention/attention.h"
#include "kernels/attention/compressed_windows.h"
#include "kernels/layers/rope.h"
#include "models/causal_lm.h"
#include "nn/lora.h"

namespace automodel::models::decoder {

/// The keys that layers of compressed attention see in one batch.
struct CompressedContext {
  at::Tensor sliding_keys;  ///< runs [B, S, 2] of the tokens in each query's window
  kernels::CompressedWindows sparse;
  kernels::CompressedWindows heavy;
};

/// What every block of one forward needs besides its input; shared by the blocks and kept by those
/// that are recomputed in backward.
struct ForwardContext {
  at::Tensor position_ids;
  at::Tensor padding_mask;
  /// For layers of experts: [B, S] over the positions that blocks see, true where there is no
  /// token; undefined if all are tokens.
  at::Tensor no_token;
  at::Tensor document_ids;
  at::Tensor document_runs;  ///< kernels::document_runs; only with recurrent layers
  at::Tensor visible_keys;   ///< kernels::visible_keys, where a split batch brings it
  at::Tensor token_ids;      ///< [B, S]; only where some layer's experts are chosen by them
  CompressedContext compressed;
  std::vector<kernels::RopeTable> ropes;  ///< as in DecoderConfig::ropes
  /// What layers' indexers chose, by the layer's number, for layers that share it; null if none do.
  std::shared_ptr<std::vector<at::Tensor>> key_choices;
  bool is_training = false;
  tensor::SequencePart sequence;  ///< of the batch: everything, or a part of longer sequences
  int64_t num_sequences = 0;      ///< of the batch
  int64_t sequence_part = 0;      ///< the part of the batch's tokens that blocks see
  int64_t num_sequence_parts = 1;
  DropoutContext dropout;
  /// The dropout key of the blocks' adapters, which get no context; a block sets it before it
  /// computes.
  std::shared_ptr<nn::DropoutKey> adapter_dropout;

  /// Sets the dropout key of the blocks' adapters to this forward's.
  void key_adapters() const {
    *adapter_dropout = {dropout.seed,  dropout.step, dropout.micro_batch,
                        num_sequences, sequence,     sequence_part};
  }
};

/// x [B, S, D] with zeros at padding, for layers other than masked attention.
at::Tensor without_padding(const at::Tensor& x, const ForwardContext& context);

/// Dropout of attention's probabilities in training, by the context's key and the site
/// ("layers.3.attention.probabilities"), of heads that begin with this one of the layer's
/// num_heads.
kernels::AttentionDropout attention_dropout(const ForwardContext& context, std::string_view site,
                                            double p, int64_t first_head, int64_t num_heads);

/// x [B, S, D] with zeros where the mask of the positions it holds drops, the rest times
/// 1 / (1 - p), in training; x itself otherwise or when p is 0.
at::Tensor dropout(const at::Tensor& x, const ForwardContext& context, std::string_view site,
                   double p);

/// Embedded tokens x [B, S, D] and noise of their positions in training, each number uniform
/// between -alpha / sqrt(S D) and alpha / sqrt(S D) with S of the whole sequence (NEFTune, Jain et
/// al. 2023); x itself otherwise or when alpha is 0.
at::Tensor with_noise(const at::Tensor& x, const ForwardContext& context, double alpha,
                      std::string_view site = "embedding");

}  // namespace automodel::models::decoder
