#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <limits>
#include <optional>
#include <vector>

#include "kernels/layers/activation.h"
#include "models/text_pooling.h"
#include "moe/moe_config.h"
#include "nn/hyper_connection.h"
#include "nn/rope_frequencies.h"

namespace automodel::models::decoder {

enum class NormKind {
  kRms,           ///< RMSNorm
  kRmsPlusOne,    ///< RMSNorm that multiplies by 1 + weight (Gemma)
  kLayer,         ///< LayerNorm, with what DecoderConfig::has_norm_weight and has_norm_bias say
  kLayerPlusOne,  ///< LayerNorm that multiplies by 1 + weight (Nemotron)
};

/// Where a block's norms are.
enum class NormPlacement {
  kPre,          ///< before attention and before the MLP
  kSandwich,     ///< before and after each (Gemma 2, Gemma 3)
  kPost,         ///< after each, before the residual sum (OLMo 2)
  kParallel,     ///< one before both, which take its result side by side (Cohere)
  kParallelTwo,  ///< one before each, both of the block's input (GPT-NeoX)
  kBehindSums,   ///< after each residual sum (BERT)
};

enum class QkNorm {
  kNone,
  kPerHead,          ///< over each head's dims (Qwen 3, Gemma 3)
  kPlainPerHead,     ///< the same without weights (Muse Glimmer)
  kWholeProjection,  ///< over all heads' dims together (OLMo 2)
  kLayerPerHead,     ///< LayerNorms over each head's dims (Phi)
  kLayerOfHeads,     ///< the same with weights of each head's own, no biases (Cohere, StableLM)
};

/// The part of a layer that mixes tokens.
enum class Mixer {
  kAttention,           ///< plain, or DecoderConfig::latent_attention if set
  kGatedDelta,          ///< DecoderConfig::gated_delta
  kMamba2,              ///< DecoderConfig::mamba2
  kAttentionAndMamba2,  ///< both read the same, and their results are summed (Falcon-H1)
  kShortConv,           ///< DecoderConfig::short_conv
  kNone,                ///< the layer is only an MLP (Nemotron-H)
};

/// What a layer of compressed attention sees besides the tokens in its window (DeepSeek V4).
enum class Compression {
  kNone,    ///< nothing
  kSparse,  ///< those that an indexer chooses of keys of few tokens each, whose windows overlap
  kHeavy,   ///< all keys of many tokens each
};

/// The options in which layers of one model differ.
struct LayerOptions {
  Mixer mixer = Mixer::kAttention;
  bool has_mlp = true;            ///< whether an MLP or experts follow the mixer
  int64_t window = 0;             ///< tokens that a query sees, itself included; 0: all before it;
                                  ///< of attention both ways, as many on either side
  int64_t chunk = 0;              ///< tokens of a chunk, which alone its queries see; 0: off
  int rope = -1;                  ///< index into DecoderConfig::ropes; -1: none
  double attention_scale = 0;     ///< factor of the scores; 0: 1 / sqrt(head_dim)
  bool is_moe = false;            ///< DecoderConfig::moe replaces the MLP
  bool has_side_experts = false;  ///< DecoderConfig::moe is beside the MLP (Gemma 4)
  bool is_hash_routed = false;    ///< a table of token ids chooses its experts
  Compression compression = Compression::kNone;  ///< of DecoderConfig::compressed_attention
  /// The layer whose indexer chooses the keys that this one sees, itself or one before it; -1: no
  /// choice.
  int64_t choosing_layer = -1;
  int64_t num_heads = 0;         ///< heads of queries; 0: as many as DecoderConfig's
  int64_t num_kv_heads = 0;      ///< heads of keys and values; 0: DecoderConfig's
  int64_t head_dim = 0;          ///< dims of a head; 0: DecoderConfig's
  bool are_values_keys = false;  ///< v is k before its norm and rotation (Gemma 4)
  /// The layer before this one whose keys and values it sees, for lack of projections of its own;
  /// -1: its own.
  int64_t key_layer = -1;
  bool gives_keys = false;                 ///< it is the key_layer of others
  bool is_input_unnormed = false;          ///< its attention takes the input as it is (ModernBERT)
  int64_t intermediate_size = 0;           ///< of the MLP; 0: DecoderConfig's
  kernels::GateBounds mlp_bounds = {};     ///< of the MLP's gated activation, or the shared MLP's
  kernels::GateBounds expert_bounds = {};  ///< of routed experts'

  bool has_attention() const {
    return mixer == Mixer::kAttention || mixer == Mixer::kAttentionAndMamba2;
  }
  bool has_mamba2() const { return mixer == Mixer::kMamba2 || mixer == Mixer::kAttentionAndMamba2; }
  bool has_own_keys() const { return key_layer < 0; }
  /// Whether it carries a state from token to token.
  bool has_state() const {
    return mixer == Mixer::kGatedDelta || mixer == Mixer::kShortConv || has_mamba2();
  }
};

/// Attention whose keys and values come from a shared narrow projection (DeepSeek's MLA). In each
/// head q and k have a part with and one without rotation; in layers without a rope (Kimi Linear)
/// none rotates.
struct LatentAttentionOptions {
  int64_t q_rank = 0;  ///< width of the queries' narrow projection; 0: none
  int64_t kv_rank = 0;
  int64_t plain_dim = 0;            ///< of q and k of a head, not rotated (qk_nope_head_dim)
  int64_t rotated_dim = 0;          ///< of q and k of a head; k's is shared by all heads
  int64_t value_dim = 0;            ///< of v of a head
  bool is_rope_interleaved = true;  ///< pairs to rotate are neighbouring dims

  int64_t qk_dim() const { return plain_dim + rotated_dim; }
};

/// Sparse attention (DeepSeek-V3.2, GLM 5): a small indexer scores a layer's keys for each query,
/// and attention sees the best. Only with latent attention whose queries have a narrow projection.
struct IndexerOptions {
  int64_t num_heads = 0;
  int64_t head_dim = 0;              ///< its first dims are rotated, as many as attention's
  int64_t num_chosen = 0;            ///< keys of a query
  bool is_rope_interleaved = false;  ///< pairs to rotate are neighbouring dims
};

/// Attention to the tokens in a window and to keys that are made of windows of tokens before
/// (DeepSeek V4). One head of keys, which are the values too, serves all queries; of q and k the
/// last dims rotate, by neighbouring pairs. The heads' results are projected group by group.
struct CompressedAttentionOptions {
  int64_t q_rank = 0;             ///< width of the queries' narrow projection
  int64_t num_output_groups = 1;  ///< of heads
  int64_t output_rank = 0;        ///< of a group's result before the last projection
  int64_t sparse_rate = 4;        ///< tokens of a key of Compression::kSparse
  int64_t heavy_rate = 128;       ///< of kHeavy
  IndexerOptions indexer;         ///< of kSparse; num_chosen counts compressed keys

  int64_t rate(Compression compression) const {
    return compression == Compression::kHeavy ? heavy_rate : sparse_rate;
  }
  /// Numbers of a token and key dim that windows of this kind are made of: two where they overlap.
  static int64_t width(Compression compression) {
    return compression == Compression::kSparse ? 2 : 1;
  }
};

/// Gated delta nets (Qwen 3 Next, Qwen 3.5) and Kimi's delta attention, which replace attention by
/// a state of keys and values.
struct GatedDeltaOptions {
  int64_t num_key_heads = 0;  ///< of queries and keys; each serves num_heads / num_key_heads
  int64_t num_heads = 0;      ///< of values
  int64_t key_dim = 0;        ///< of a head of q and k
  int64_t value_dim = 0;      ///< of a head of v
  int64_t num_taps = 4;       ///< positions that the convolution of q, k and v sees
  /// Order of in_proj's rows. True: q, k, v and gate of each key head, then beta and step of each
  /// (two tensors); false: q, k and v of all heads, gate, beta, step (four tensors).
  bool is_grouped = false;
  /// Each row of a state has a decay of its own (Kimi Linear). Steps and gates then come from
  /// narrow projections, of key_dim and value_dim; in_proj's rows: q, k, v, beta and both narrow
  /// ones.
  bool has_row_decays = false;

  int64_t keys() const { return num_key_heads * key_dim; }
  int64_t values() const { return num_heads * value_dim; }
  int64_t conv_channels() const { return 2 * keys() + values(); }
  int64_t projected_rows() const {
    return has_row_decays ? conv_channels() + num_heads + key_dim + value_dim
                          : conv_channels() + values() + 2 * num_heads;
  }
  /// Elements of the second narrow projections, 0 without.
  int64_t widening_elements() const {
    return has_row_decays ? num_heads * key_dim * key_dim + values() * value_dim : 0;
  }
  /// Decays of a token.
  int64_t decays() const { return has_row_decays ? num_heads * key_dim : num_heads; }
};

/// Mamba-2 layers (Nemotron-H, Falcon-H1, Granite 4). in_proj's rows: gate, x, b and c of all
/// groups, step.
struct Mamba2Options {
  int64_t num_heads = 0;
  int64_t head_dim = 0;
  int64_t num_groups = 1;       ///< of b and c
  bool is_norm_grouped = true;  ///< the norm is over each group's numbers, else over all (Bamba)
  int64_t state_dim = 0;
  int64_t num_taps = 4;  ///< positions that the convolution of x, b and c sees
  bool has_conv_bias = true;
  bool has_proj_bias = false;
  bool has_norm = true;        ///< else the gate alone multiplies the result
  bool is_gated_first = true;  ///< whether the gate multiplies before the norm
  double input_scale = 1.0;
  double output_scale = 1.0;
  std::array<double, 5> row_scales = {1, 1, 1, 1, 1};  ///< of what in_proj's rows give
  kernels::Activation activation = kernels::Activation::kSilu;
  double min_step = 0;  ///< lower bound of steps, after their softplus
  double max_step = std::numeric_limits<double>::infinity();
  double init_min_step = 0.001;  ///< initial steps are between these two
  double init_max_step = 0.1;
  double init_step_floor = 1e-4;
  bool is_step_bias_one = false;        ///< dt_bias begins as ones, not from the steps above
  bool is_residual_init_scaled = true;  ///< out_proj's initial values are divided by sqrt(layers)

  int64_t inner() const { return num_heads * head_dim; }
  int64_t norm_groups() const { return is_norm_grouped ? num_groups : 1; }
  int64_t states() const { return num_groups * state_dim; }
  int64_t conv_channels() const { return inner() + 2 * states(); }
  int64_t projected_rows() const { return inner() + conv_channels() + num_heads; }
};

/// Short convolutions between two gates (LFM2), of hidden_size channels. in_proj's rows: the gate
/// before the convolution, the one behind it, what is convolved.
struct ShortConvOptions {
  int64_t num_taps = 3;   ///< positions that a result sees
  bool has_bias = false;  ///< of the convolution and of both projections
};

/// Multi-token prediction: layers behind the last norm that predict tokens further ahead. Depth k
/// (0, 1, ...) takes the hidden states of depth k - 1 (of the model, for the first) and the
/// embedding of the token k + 1 positions ahead, and predicts the one after it. Only training runs
/// them.
struct NextTokenOptions {
  int64_t num_depths = 1;
  bool is_repeated = false;          ///< all depths are the same layers
  double loss_scale = 0.1;           ///< of the mean of the depths' losses
  std::vector<LayerOptions> layers;  ///< of one depth

  int64_t depth_size() const { return static_cast<int64_t>(layers.size()); }
  /// Depths with weights of their own.
  int64_t num_own_depths() const { return is_repeated ? 1 : num_depths; }
  int64_t num_own_layers() const { return num_own_depths() * depth_size(); }
  /// The layer with this number among those of all depths with weights of their own.
  const LayerOptions& own_layer(int64_t number) const {
    return layers[static_cast<size_t>(number % depth_size())];
  }
  /// Runs of layers in one forward.
  int64_t num_runs() const { return num_depths * depth_size(); }
};

/// Inputs of each layer besides the hidden states: of every token a row of a second table, added to
/// a projection of its embedding (Gemma 4 E2B and E4B). A layer lets its hidden states gate its
/// input and adds what a projection makes of it.
struct LayerInputOptions {
  int64_t vocab_size = 0;  ///< rows of the table
  int64_t dim = 0;         ///< of one layer's input
};

/// What is between the last layer of an encoder and its head of classes: a linear layer and an
/// activation, of the first token (BERT).
struct PoolerOptions {
  bool is_of_head = false;   ///< it is trained as the head is
  bool drops_input = false;  ///< dropout is of what it reads too (RoBERTa)
  bool has_bias = true;
  bool has_norms = false;  ///< of what it reads, and of what it gives (ModernBERT)
  bool averages = false;   ///< it reads the mean of a text's tokens
  std::optional<kernels::Activation> activation = std::nullopt;  ///< nullopt: tanh
  double dropout = 0;                                            ///< of what the head reads
};

/// The options of a decoder-only transformer of any family: all that its modules read.
struct DecoderConfig {
  int64_t vocab_size = 0;
  int64_t hidden_size = 0;
  int64_t intermediate_size = 0;
  int64_t num_heads = 0;
  int64_t num_kv_heads = 0;
  int64_t head_dim = 0;
  int64_t max_positions = 0;
  int64_t padding_idx = -1;  ///< a row of the embedding whose lookup gives no gradient

  kernels::Activation activation = kernels::Activation::kSilu;
  NormKind norm = NormKind::kRms;
  NormPlacement norm_placement = NormPlacement::kPre;
  QkNorm qk_norm = QkNorm::kNone;
  bool is_qk_norm_last = false;        ///< norms per head come behind the rotation (HunYuan)
  bool is_qk_norm_of_rotated = false;  ///< layers that do not rotate have no norms of q and k
  bool has_value_norm = false;  ///< v's heads are divided by their root mean square (Gemma 4)
  bool has_norm_weight = true;  ///< whether the norms of blocks, and the last, have a weight
  bool has_norm_bias = true;    ///< whether a LayerNorm has a bias
  double norm_eps = 1e-6;
  double post_norm_eps = 0;         ///< of norms behind branches; 0: norm_eps
  bool is_final_norm_rms = false;   ///< the last norm is an RMSNorm, whatever `norm` says
  bool has_embedding_norm = false;  ///< embeddings are divided by their root mean square
  /// A norm is behind the embeddings' sum with positions, if there are any (BERT, BLOOM).
  bool has_placed_norm = false;

  int64_t value_dim = 0;     ///< of v of a head; 0: as q and k (MiMo)
  double value_scale = 1.0;  ///< of v

  bool is_mlp_gated = true;
  bool has_xielu = false;  ///< xIELU with learned factors is in the activation's place (Apertus)
  bool has_qkv_bias = false;
  double qkv_clip = 0;  ///< bound of |q|, |k| and |v|, before the rotation; 0: none
  /// Rows of the projection's one tensor: of each head of keys the queries that it serves, k and v
  /// (GPT-NeoX, Falcon), else q, k and v of all.
  bool is_qkv_by_group = false;
  bool has_attention_output_bias = false;
  bool has_mlp_bias = false;
  bool has_learned_positions = false;
  /// One a head of queries: by how much a key's score grows with each position (ALiBi); empty: by
  /// nothing.
  std::vector<double> distance_slopes;
  int64_t first_position = 0;  ///< rows of the positions' table before that of the first token
  /// A token that is the pad token is counted by no position, and has the one before the first
  /// (RoBERTa).
  bool is_pad_unplaced = false;
  int64_t num_token_types = 0;  ///< rows of a table of Batch::token_types; 0: there is none
  bool is_conv1d = false;       ///< projections are stored [in, out]
  bool is_head_tied = false;
  bool has_head_bias = false;   ///< of a head that is not tied
  bool is_head_normed = false;  ///< its product is with rows of length 1 (Baichuan 2)

  /// Rows of the head of a model that classifies sequences, one a label; 0: the head is a language
  /// model's, with a row a token.
  int64_t num_labels = 0;

  /// There is no head: the model's result is an embedding of each text, by text_pooling.
  bool makes_embeddings = false;
  TextPooling text_pooling = TextPooling::kMean;  ///< of a model that makes embeddings
  bool lacks_final_norm = false;                  ///< of an encoder without its pooler

  double embedding_scale = 1.0;
  bool is_embedding_scale_rounded = false;  ///< the scale is first rounded to the embedding's dtype
  double residual_scale = 1.0;
  double attention_input_scale = 1.0;   ///< of attention beside a Mamba-2 layer
  double attention_output_scale = 1.0;  ///< of what attention beside a Mamba-2 layer gives
  double mlp_gate_scale = 1.0;          ///< of an MLP's gate, before its activation
  double mlp_output_scale = 1.0;
  double logit_scale = 1.0;
  bool is_causal = true;  ///< false: attention sees later tokens too (LLaDA)
  double attention_softcap = 0;
  double final_softcap = 0;

  double embedding_dropout = 0;
  double residual_dropout = 0;
  std::optional<double> attention_branch_dropout;  ///< in its place behind attention
  double attention_dropout = 0;

  double initializer_range = 0.02;
  bool is_residual_init_scaled = false;    ///< std / sqrt(2 layers) for output projections (GPT-2)
  double initializer_cut = 0;              ///< most deviations that an initial value has; 0: any
  double class_initializer_range = 0;      ///< of a head of classes; 0: initializer_range
  double embedding_initializer_range = 0;  ///< likewise
  bool is_attention_init_scaled = false;  ///< is_residual_init_scaled of attention alone (nanochat)
  bool are_routers_zero_first = false;    ///< their weights begin as zeros

  bool has_attention_gate = false;     ///< heads times sigmoid(gate); q_proj: q, gate of each head
  bool has_head_gates = false;         ///< a number a head does it, from rows behind v's (Step 3.5)
  bool are_head_gates_wide = false;    ///< those rows have a number for each dim of a head (Laguna)
  bool is_head_gate_softplus = false;  ///< its softplus multiplies, not its sigmoid (Laguna)
  bool has_attention_sinks = false;    ///< a learned score per head beside the keys' (GPT-OSS)
  bool are_sinks_of_windows = false;   ///< only layers with a window have sinks (MiMo)
  bool are_sinks_frozen = false;
  bool are_first_sinks_zero = false;  ///< they begin as zeros
  bool has_layer_scalars = false;     ///< a frozen number multiplies what a block gives (Gemma 4)
  std::optional<LatentAttentionOptions> latent_attention;  ///< if set, head_dim is its rotated_dim
  std::optional<IndexerOptions> indexer;
  std::optional<CompressedAttentionOptions> compressed_attention;
  std::optional<nn::HyperConnectionOptions> hyper_connections;  ///< streams between blocks
  std::optional<GatedDeltaOptions> gated_delta;
  std::optional<Mamba2Options> mamba2;
  std::optional<ShortConvOptions> short_conv;
  std::optional<moe::MoEConfig> moe;
  std::optional<PoolerOptions> pooler;
  std::optional<LayerInputOptions> layer_inputs;
  std::vector<nn::RopeOptions> ropes;
  bool is_rope_interleaved = false;  ///< pairs to rotate are neighbours (GLM), else d and d + half
  std::vector<LayerOptions> layers;  ///< one a layer

  /// Layers behind the last one in its checkpoints, which predict further tokens; not built.
  int64_t num_next_token_layers = 0;
  std::optional<NextTokenOptions> next_tokens;  ///< those that are built

  bool is_classifier() const { return num_labels > 0; }
  /// Rows of the head's weight: what a label may be.
  int64_t head_rows() const {
    if (makes_embeddings) return 0;
    return is_classifier() ? num_labels : vocab_size;
  }
  /// Whether a text's embedding is made of all of its tokens, and is in its first one's place.
  bool pools_texts() const {
    return makes_embeddings &&
           (text_pooling == TextPooling::kMean || text_pooling == TextPooling::kSum);
  }
  /// The row of the positions' table that the pad token has, whose lookup gives no gradient; -1:
  /// there is none.
  int64_t padding_position() const { return is_pad_unplaced ? padding_idx : -1; }
  int64_t num_layers() const { return static_cast<int64_t>(layers.size()); }
  /// Dims of the hidden states between layers.
  int64_t stream_dims() const {
    return hyper_connections ? hyper_connections->stream_dims() : hidden_size;
  }
  /// Whether a norm follows the last layer.
  bool has_final_norm() const { return !lacks_final_norm && (!pooler || pooler->has_norms); }
  bool has_norms_behind_sums() const { return norm_placement == NormPlacement::kBehindSums; }
  bool has_pre_norms() const {
    return norm_placement != NormPlacement::kPost && !has_norms_behind_sums();
  }
  /// Whether a norm follows each branch, before or behind its residual sum.
  bool has_post_norms() const {
    return norm_placement == NormPlacement::kSandwich || norm_placement == NormPlacement::kPost ||
           has_norms_behind_sums();
  }
  /// Whether an MLP has a norm of its own before it.
  bool has_mlp_pre_norms() const {
    return has_pre_norms() && norm_placement != NormPlacement::kParallel;
  }
  /// Whether an MLP takes the block's input, or a norm of it, rather than attention's sum.
  bool are_branches_parallel() const {
    return norm_placement == NormPlacement::kParallel ||
           norm_placement == NormPlacement::kParallelTwo;
  }
  bool has_layer_norms() const {
    return norm == NormKind::kLayer || norm == NormKind::kLayerPlusOne;
  }
  bool has_head_layer_norms() const {
    return qk_norm == QkNorm::kLayerPerHead || qk_norm == QkNorm::kLayerOfHeads;
  }
  /// Whether a layer's q and k rotate.
  bool rotates(const LayerOptions& layer) const {
    return layer.rope >= 0 && ropes[static_cast<size_t>(layer.rope)].rotary_dim > 0;
  }
  QkNorm qk_norm_of(const LayerOptions& layer) const {
    return is_qk_norm_of_rotated && !rotates(layer) ? QkNorm::kNone : qk_norm;
  }
  int64_t heads_of(const LayerOptions& layer) const {
    return layer.num_heads > 0 ? layer.num_heads : num_heads;
  }
  int64_t kv_heads_of(const LayerOptions& layer) const {
    return layer.num_kv_heads > 0 ? layer.num_kv_heads : num_kv_heads;
  }
  /// The experts of a layer that has some.
  moe::MoEConfig experts_of(const LayerOptions& layer) const {
    moe::MoEConfig out = *moe;
    if (layer.is_hash_routed) {
      out.num_hashed_tokens = vocab_size;
      out.has_correction_bias = false;  // scores do not choose
    }
    if (layer.expert_bounds.are_there()) out.gate_bounds = layer.expert_bounds;
    if (layer.mlp_bounds.are_there()) out.shared_gate_bounds = layer.mlp_bounds;
    return out;
  }
  int64_t head_dim_of(const LayerOptions& layer) const {
    return layer.head_dim > 0 ? layer.head_dim : head_dim;
  }
  /// Dims of a head of v.
  int64_t value_dim_of(const LayerOptions& layer) const {
    return value_dim > 0 ? value_dim : head_dim_of(layer);
  }
  bool has_sinks(const LayerOptions& layer) const {
    return has_attention_sinks && (!are_sinks_of_windows || layer.window > 0);
  }
  /// Whether the fused split of a projection does not make this layer's heads.
  bool has_other_values(const LayerOptions& layer) const {
    return qk_norm_of(layer) == QkNorm::kPlainPerHead || has_value_norm || value_scale != 1.0 ||
           layer.are_values_keys || value_dim_of(layer) != head_dim_of(layer);
  }
  /// Rows of the queries' projection, including their gates.
  int64_t q_rows(const LayerOptions& layer) const {
    return (has_attention_gate ? 2 : 1) * heads_of(layer) * head_dim_of(layer);
  }
  int64_t k_rows(const LayerOptions& layer) const {
    return layer.has_own_keys() ? kv_heads_of(layer) * head_dim_of(layer) : 0;
  }
  int64_t v_rows(const LayerOptions& layer) const {
    if (layer.are_values_keys || !layer.has_own_keys()) return 0;
    return kv_heads_of(layer) * value_dim_of(layer);
  }
  int64_t intermediate_of(const LayerOptions& layer) const {
    return layer.intermediate_size > 0 ? layer.intermediate_size : intermediate_size;
  }
  /// Whether some layer sees another one's keys and values.
  bool shares_keys() const {
    return std::any_of(layers.begin(), layers.end(),
                       [](const LayerOptions& layer) { return !layer.has_own_keys(); });
  }
  /// Columns of attention's last projection: what all heads give together.
  int64_t output_columns(const LayerOptions& layer) const {
    return heads_of(layer) * value_dim_of(layer);
  }
  int64_t gate_rows(const LayerOptions& layer) const {
    if (!has_head_gates) return 0;
    return heads_of(layer) * (are_head_gates_wide ? value_dim_of(layer) : 1);
  }
  int64_t qkv_rows(const LayerOptions& layer) const {
    return q_rows(layer) + k_rows(layer) + v_rows(layer) + gate_rows(layer);
  }
  /// Whether some layer carries a state from token to token.
  bool has_recurrence() const {
    const auto has_state = [](const LayerOptions& layer) { return layer.has_state(); };
    return std::any_of(layers.begin(), layers.end(), has_state) ||
           (next_tokens &&
            std::any_of(next_tokens->layers.begin(), next_tokens->layers.end(), has_state));
  }
  /// Whether some layer's queries see their own chunk alone.
  bool has_chunks() const {
    return std::any_of(layers.begin(), layers.end(),
                       [](const LayerOptions& layer) { return layer.chunk > 0; });
  }
  /// Whether some layer sees the keys that another one's indexer chose.
  bool shares_choices() const {
    for (int64_t i = 0; i < num_layers(); ++i) {
      const int64_t from = layers[static_cast<size_t>(i)].choosing_layer;
      if (from >= 0 && from != i) return true;
    }
    return false;
  }
  bool has_compression(Compression compression) const {
    return std::any_of(layers.begin(), layers.end(),
                       [&](const LayerOptions& layer) { return layer.compression == compression; });
  }
  /// Dims of a head of q and k.
  int64_t qk_dim() const { return latent_attention ? latent_attention->qk_dim() : head_dim; }
};

}  // namespace automodel::models::decoder
