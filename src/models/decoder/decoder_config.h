#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "kernels/activation.h"
#include "moe/moe_config.h"
#include "nn/rope_frequencies.h"

namespace automodel::models::decoder {

enum class NormKind {
  kRms,         ///< RMSNorm
  kRmsPlusOne,  ///< RMSNorm that multiplies by 1 + weight (Gemma)
  kLayer,       ///< LayerNorm with bias (GPT-2)
};

/// Where a block's norms stand.
enum class NormPlacement {
  kPre,       ///< before attention and before the MLP
  kSandwich,  ///< before and after each (Gemma 2, Gemma 3)
  kPost,      ///< after each, before the residual sum (OLMo 2)
};

enum class QkNorm {
  kNone,
  kPerHead,          ///< over each head's dims (Qwen 3, Gemma 3)
  kWholeProjection,  ///< over all heads' dims together (OLMo 2)
};

/// What differs between the layers of one model.
struct LayerOptions {
  int64_t window = 0;          ///< a query sees itself and window - 1 tokens before; 0: all
  int rope = -1;               ///< index into DecoderConfig::ropes; -1: no rotation
  double attention_scale = 0;  ///< of the scores; 0: 1 / sqrt(head_dim)
  bool is_moe = false;         ///< DecoderConfig::moe in the MLP's place
};

/// Attention whose keys and values come from a narrow projection that they share (DeepSeek's MLA).
/// A head's q and k are parts without and with rotation.
struct LatentAttentionOptions {
  int64_t q_rank = 0;  ///< of the queries' own narrow projection; 0: one projection
  int64_t kv_rank = 0;
  int64_t plain_dim = 0;            ///< of q and k of a head, not rotated (qk_nope_head_dim)
  int64_t rotated_dim = 0;          ///< of q and k of a head; k's is shared by all heads
  int64_t value_dim = 0;            ///< of v of a head
  bool is_rope_interleaved = true;  ///< pairs to rotate are neighbours

  int64_t qk_dim() const { return plain_dim + rotated_dim; }
};

/// A decoder-only transformer, whatever the family: what its modules read.
struct DecoderConfig {
  int64_t vocab_size = 0;
  int64_t hidden_size = 0;
  int64_t intermediate_size = 0;
  int64_t num_heads = 0;
  int64_t num_kv_heads = 0;
  int64_t head_dim = 0;
  int64_t max_positions = 0;
  int64_t padding_idx = -1;  ///< row of the embedding that gets no gradient from the lookup

  kernels::Activation activation = kernels::Activation::kSilu;
  NormKind norm = NormKind::kRms;
  NormPlacement norm_placement = NormPlacement::kPre;
  QkNorm qk_norm = QkNorm::kNone;
  double norm_eps = 1e-6;

  bool is_mlp_gated = true;
  bool has_qkv_bias = false;
  bool has_attention_output_bias = false;
  bool has_mlp_bias = false;
  bool has_learned_positions = false;
  bool is_conv1d = false;  ///< projections are stored [in, out]
  bool is_head_tied = false;

  double embedding_scale = 1.0;
  bool is_embedding_scale_rounded = false;  ///< the scale is rounded to the embedding's dtype first
  double residual_scale = 1.0;
  double logit_scale = 1.0;
  double attention_softcap = 0;
  double final_softcap = 0;

  double embedding_dropout = 0;
  double residual_dropout = 0;
  double attention_dropout = 0;

  double initializer_range = 0.02;
  bool is_residual_init_scaled = false;  ///< std / sqrt(2 layers) for output projections (GPT-2)

  bool has_attention_sinks = false;  ///< a learned score a head beside the keys' (GPT-OSS)
  std::optional<LatentAttentionOptions> latent_attention;  ///< then head_dim is its rotated_dim
  std::optional<moe::MoEConfig> moe;
  std::vector<nn::RopeOptions> ropes;
  std::vector<LayerOptions> layers;  ///< one a layer

  int64_t num_layers() const { return static_cast<int64_t>(layers.size()); }
  int64_t qkv_rows() const { return (num_heads + 2 * num_kv_heads) * head_dim; }
  /// Dims of a head of q and k.
  int64_t qk_dim() const { return latent_attention ? latent_attention->qk_dim() : head_dim; }
};

}  // namespace automodel::models::decoder
