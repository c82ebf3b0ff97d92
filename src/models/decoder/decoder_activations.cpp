#include "models/decoder/decoder_activations.h"

#include <algorithm>
#include <bit>
#include <utility>
#include <vector>

#include "core/divide.h"
#include "kernels/attention/attention_block.h"
#include "kernels/loss/cross_entropy.h"
#include "kernels/products/product.h"
#include "kernels/recurrence/linear_recurrence.h"
#include "models/decoder/distance_slopes.h"
#include "models/decoder/stream_sizes.h"
#include "moe/expert_sizes.h"

// T tokens, S positions of a sequence, D hidden size, Q query and K key dims of all heads, N and M
// their heads, I intermediate size, e bytes of an element. Per token, a Llama block of the
// fused kernels keeps
//   input D, heads Q + 2K, attention Q, sum D, gate and up 2I
//   (elements) and 2 + N (with norms of heads N + M more) float32
// while the norms' results and the product of gate and up are made again, which a device keeps.
// With norms of heads it keeps the projection in the place of the heads, which are made again too;
// a device keeps both. Another block of the same sizes keeps in bfloat16, where the plain
// operations run,
//   each norm 8D + 4 + 2D, heads in float32 12Q, probabilities 8 N S, attention 2Q,
//   gate, up, activation and product 8I                     (bytes).

namespace automodel::models::decoder {

using moe::ExpertSizes;

namespace {

/// Sizes of one block's parts in bytes.
class BlockSizes final {
 public:
  BlockSizes(const DecoderConfig& config, const nn::ActivationShape& shape,
             const LayerOptions& layer)
      : config_(config),
        layer_(layer),
        tokens_(shape.tokens()),
        length_(shape.sequence_length),
        e_(shape.element_size),
        is_fused_(shape.is_fused()),
        has_rows_(shape.has_row_kernels()),
        is_part_(shape.is_part),
        on_device_(shape.on_device),
        parts_(shape.num_sequence_parts),
        num_heads_(config.heads_of(layer) / shape.num_head_parts),
        num_kv_heads_(config.kv_heads_of(layer) / shape.num_head_parts),
        head_dim_((config.latent_attention ? config.qk_dim() : config.head_dim_of(layer)) +
                  (config.distance_slopes.empty() ? 0 : kDistanceDims)),
        q_(num_heads_ * head_dim_),
        k_((config.latent_attention ? num_heads_ : num_kv_heads_) * head_dim_),
        v_(config.latent_attention ? k_ : num_kv_heads_ * config.value_dim_of(layer)),
        out_(config.latent_attention ? q_ : num_heads_ * config.value_dim_of(layer)),
        intermediate_(config.intermediate_of(layer) / shape.num_mlp_parts),
        keeps_down_input_(shape.has_dropped_down),
        is_split_(shape.num_head_parts > 1 || shape.num_mlp_parts > 1),
        num_expert_ranks_(shape.num_expert_ranks),
        num_same_token_ranks_(shape.num_same_token_ranks) {}

  /// Inputs of projections, at all positions.
  int64_t hidden() const { return tokens_ * config_.hidden_size * e_; }
  /// Hidden states between layers, at this rank's positions.
  int64_t stream() const { return tokens_ * config_.stream_dims() * e_ / parts_; }
  StreamShape stream_shape() const { return {tokens_ / parts_, e_}; }

  /// Whether a norm over the hidden size keeps its input uncast.
  bool norm_keeps_input() const { return has_rows_ || config_.has_layer_norms(); }

  /// What a norm of `rows` rows of `dim` keeps besides its input and output.
  int64_t norm(int64_t rows, int64_t dim) const {
    if (config_.has_layer_norms()) return rows * 8;
    return has_rows_ ? rows * 4 : rows * (8 * dim + 4);
  }

  int64_t hidden_norm() const { return norm(tokens_ / parts_, config_.hidden_size); }

  /// Kept between the projection's output and q, k and v.
  int64_t heads() const {
    const int64_t rows = tokens_ * num_heads_;
    const int64_t kv_rows = tokens_ * num_kv_heads_;
    if (config_.has_other_values(layer_)) return heads_with_other_values();
    // A rotation's backward does not need its input, a bound's does.
    const int64_t bounded = config_.qkv_clip != 0 ? tokens_ * (q_ + 2 * k_) * e_ : 0;
    switch (config_.qk_norm_of(layer_)) {
      case QkNorm::kWholeProjection:  // the norms' inputs are copies
        return (has_rows_ ? tokens_ * (q_ + k_) * e_ : 0) + norm(tokens_, q_) + norm(tokens_, k_) +
               bounded;
      case QkNorm::kPerHead:
        if (!has_rows_) return norm(rows, head_dim_) + norm(kv_rows, head_dim_);
        break;
      case QkNorm::kLayerPerHead:
      case QkNorm::kLayerOfHeads: {  // copies of the norms' inputs, wide for weights of each head's
        const bool is_wide = config_.qk_norm == QkNorm::kLayerOfHeads;
        return tokens_ * (q_ + k_) * (is_wide ? 2 * wide() : e_) + (rows + kv_rows) * 8;
      }
      case QkNorm::kNone:
      case QkNorm::kPlainPerHead:  // above
        return bounded;
    }
    // Behind the rotation their inputs are what it gives, else the projection.
    const int64_t dims = config_.is_qk_norm_last ? q_ + k_ : q_ + 2 * k_;
    return tokens_ * dims * e_ + (rows + kv_rows) * 4;
  }

  /// Bytes that splitting, norms and rotation keep where norms of q and k take copies and v has its
  /// own way: its norm keeps a number a head and what it reads, wide, or all of a wide projection.
  int64_t heads_with_other_values() const {
    const int64_t rows = tokens_ * num_heads_;
    const int64_t kv_rows = tokens_ * num_kv_heads_;
    int64_t kept = 0;
    if (config_.qk_norm == QkNorm::kPerHead) {
      kept += (has_rows_ ? tokens_ * (q_ + k_) * e_ : 0) + norm(rows, head_dim_) +
              norm(kv_rows, head_dim_);
    }
    if (config_.qk_norm_of(layer_) == QkNorm::kPlainPerHead) {  // as the norm of v below
      const int64_t read = e_ == wide() ? q_ + k_ + v_ + gates() : q_ + k_;
      return (tokens_ * read + rows + kv_rows) * wide();
    }
    if (!config_.has_value_norm) return kept;
    const int64_t projected = q_ + k_ + (layer_.are_values_keys ? 0 : v_);
    return kept + (tokens_ * (e_ == wide() ? projected : v_) + kv_rows) * wide();
  }

  /// Whether attention's backward splits the projection again into normed and rotated heads, for
  /// which the projection is kept anyway.
  bool are_heads_made_again() const {
    const bool scales_queries =
        layer_.rope >= 0 && config_.ropes[static_cast<size_t>(layer_.rope)].query_scaling_beta != 0;
    return is_fused_ && !is_part_ && config_.qk_norm == QkNorm::kPerHead &&
           !config_.is_qk_norm_last && !config_.has_other_values(layer_) && !scales_queries &&
           !config_.compressed_attention;
  }
  int64_t kept_heads() const { return are_heads_made_again() ? 0 : q_ + k_ + v_; }

  /// Whether attention never holds all scores at once.
  bool attends_by_blocks() const {
    const bool drops_whole_rows = config_.attention_dropout > 0 && !has_rows_;
    return is_fused_ || ((is_part_ || on_device_) && !drops_whole_rows);
  }
  /// Whether queries see some keys that an indexer chose; the loops do not compute that.
  bool has_choice() const {
    if (layer_.compression == Compression::kSparse) {
      const CompressedAttentionOptions& sizes = *config_.compressed_attention;
      return length_ / sizes.sparse_rate > sizes.indexer.num_chosen;
    }
    return config_.indexer && layer_.choosing_layer >= 0 && length_ > config_.indexer->num_chosen;
  }
  bool attends_plainly() const { return (on_device_ && !has_flash()) || has_choice(); }
  /// Whether a device attends by FlashAttention.
  bool has_flash() const {
    constexpr int64_t kMostDim = 256;
    return on_device_ && has_rows_ && e_ == 2 && head_dim_ <= kMostDim && head_dim_ % 8 == 0 &&
           config_.attention_softcap == 0 && config_.attention_dropout == 0 && !has_choice();
  }
  int64_t choice() const {
    if (config_.compressed_attention) return 0;  // in compressed_attention_kept()
    return has_choice() ? tokens_ * config_.indexer->num_chosen * 4 : 0;
  }
  int64_t scores() const { return tokens_ * num_heads_ * length_ * 4; }
  /// Bytes of the scores of the queries that a device computes at once.
  int64_t scores_at_once() const {
    const int64_t per_query = tokens_ * num_heads_;
    return 4 * per_query *
           kernels::num_queries_at_once(length_, per_query, kernels::AttentionBlock::kMaxScores);
  }
  /// Needed while a device attends, beside what is kept: keys and values of every head in float32,
  /// some scores, a copy of them and their mask.
  int64_t attending_forward() const {
    if (!attends_by_blocks()) return scores();
    return attends_plainly() ? tokens_ * 8 * q_ + scores_at_once() * 9 / 4 : 0;
  }
  /// Needed in backward: on a CPU the float32 gradients of q, k and v and the heads that are made
  /// again; on a device keys, values and queries in float32, the gradients of q, k, v and the
  /// result, and those of keys before and after summing heads that share them; scores and their
  /// gradients. FlashAttention adds up the gradient of q in float32.
  int64_t attending_backward() const {
    if (!attends_by_blocks()) return 3 * scores();
    if (has_flash()) return tokens_ * (4 * q_ + (3 * q_ + k_ + v_) * e_);
    if (is_fused_ && !attends_plainly()) {
      const int64_t heads = q_ + k_ + v_;
      return tokens_ * (heads * 4 + (heads - kept_heads()) * e_);
    }
    return attends_plainly() ? tokens_ * 4 * (6 * q_ + 3 * k_) + 2 * scores_at_once() : 0;
  }

  /// Kept between q, k and v, included, and the output projection's input.
  int64_t attention() const {
    if (config_.compressed_attention) {
      return compressed_attention_kept(config_, layer_, {tokens_, e_});
    }
    if (attends_by_blocks()) {
      // With sinks the loops write in float32 too.
      const bool has_loops =
          (is_fused_ || has_flash()) && !has_choice() && !config_.has_sinks(layer_);
      const int64_t widened = has_loops || e_ == 4 ? 0 : tokens_ * out_ * 4;
      return tokens_ * (kept_heads() + out_) * e_ + widened + tokens_ * num_heads_ * 4 + choice();
    }
    int64_t kept = 2 * scores() + choice();  // probabilities, and what weights the values
    if (config_.attention_softcap > 0) kept += scores();
    if (config_.attention_dropout > 0) kept += scores() / 4;  // a byte each
    return kept + length_ * length_ + tokens_ * (8 * q_ + (4 + e_) * out_);
  }

  /// A byte an element, but by kernels for rows.
  int64_t dropout() const { return !has_rows_ && config_.residual_dropout > 0 ? stream() / e_ : 0; }

  int64_t up() const { return tokens_ * intermediate_ * e_; }

  /// Kept between the first projection's output and the second one's input, included.
  int64_t mlp() const {
    if (is_moe()) return experts().kept();
    const int64_t bounded = layer_.mlp_bounds.are_there() ? 2 * up() : 0;
    if (has_activation_loop()) {
      return (num_raised() + (is_activation_made_again() ? 0 : 1)) * up() + bounded;
    }
    if (config_.is_mlp_gated) return 4 * up() + bounded;
    return (config_.activation == kernels::Activation::kRelu ? 1 : 2) * up();
  }

  /// The first projection's results, of `up()` bytes each.
  int64_t num_raised() const { return config_.is_mlp_gated ? 2 : 1; }

  /// Whether a loop computes the activation, a device's that of gated ones.
  bool has_activation_loop() const {
    using kernels::Activation;
    const Activation activation = config_.activation;
    const bool has_loop =
        config_.is_mlp_gated
            ? activation == Activation::kSilu || activation == Activation::kGeluTanh
            : activation != Activation::kSilu && activation != Activation::kRelu;
    return has_loop && !config_.has_xielu && (is_fused_ || (has_rows_ && config_.is_mlp_gated));
  }
  /// Whether backward makes the activation's result from what it was made of.
  bool is_activation_made_again() const {
    return has_activation_loop() && is_fused_ && !keeps_down_input_;
  }

  /// What a projection keeps of a norm's result, which fused kernels make again in backward; of a
  /// rank's part of the projection the input is another tensor.
  int64_t normed_input() const { return is_fused_ && !is_split_ ? 0 : hidden(); }

  bool has_plain_gate() const { return config_.is_mlp_gated && !has_rows_; }

  bool is_moe() const { return layer_.is_moe; }
  bool has_mlp() const { return layer_.has_mlp; }

  int64_t wide() const { return std::max<int64_t>(4, e_); }
  bool is_short_conv() const { return layer_.mixer == Mixer::kShortConv; }
  /// Elements per token of the value heads in a layer with a state.
  int64_t state_values() const {
    return layer_.has_mamba2() ? config_.mamba2->inner() : config_.gated_delta->values();
  }

  /// Kept by a layer with a state between its first projection's output and its last one's input:
  /// the projection's rows, the convolution's results before and after the activation, decays and
  /// weights of the heads, and the values within the gated norm.
  int64_t state() const {
    // The projection's rows, the convolution's input and result, and that behind its gate.
    if (is_short_conv()) return 6 * hidden();
    const int64_t values = state_values();
    const int64_t casts = e_ == wide() ? 0 : 1;
    if (layer_.has_mamba2()) {
      const Mamba2Options& sizes = *config_.mamba2;
      const int64_t rows = (sizes.projected_rows() + 2 * sizes.conv_channels() + values) * e_;
      const int64_t of_norm = !sizes.has_norm ? 0 : sizes.norm_groups() > 1 ? 2 : 1;
      const int64_t copies = 2 + of_norm + 2 * casts;
      const int64_t scales = sizes.has_norm ? sizes.norm_groups() : 0;
      const int64_t scalars = (4 * sizes.num_heads + scales) * wide();
      return tokens_ * (rows + copies * values * wide() + scalars);
    }
    const GatedDeltaOptions& sizes = *config_.gated_delta;
    const int64_t rows = (sizes.projected_rows() + 2 * sizes.conv_channels() + values +
                          (1 - casts) * values + sizes.num_heads) *
                         e_;
    // A sigmoid keeps its result alone, silu also its input.
    const int64_t copies = 2 + (sizes.has_row_decays ? 1 : 2) * casts;
    const int64_t scalars = 3 * sizes.decays() + sizes.num_heads;
    return tokens_ * (rows + (copies * values + scalars) * wide());
  }

  /// What backward recomputes in a layer with a state: scores of each head's chunks and their
  /// operands.
  int64_t state_working() const {
    if (is_short_conv()) return 4 * hidden();
    const bool is_mamba = layer_.has_mamba2();
    const bool has_row_decays = !is_mamba && config_.gated_delta->has_row_decays;
    const int64_t num_scores = is_mamba ? 4 : 8;
    const int64_t num_heads = is_mamba ? config_.mamba2->num_heads : config_.gated_delta->num_heads;
    const int64_t states =
        state_values() * (is_mamba ? config_.mamba2->state_dim : config_.gated_delta->key_dim);
    const int64_t keys =
        is_mamba ? 2 * config_.mamba2->states() : num_heads * config_.gated_delta->key_dim;
    const int64_t chunk = std::min(kernels::kRecurrenceChunk, length_);
    // Products of rows with decays of their own halve chunks again and again.
    const int64_t halved = has_row_decays ? 4 * std::bit_width(static_cast<uint64_t>(chunk)) : 0;
    return tokens_ * wide() *
           (num_scores * num_heads * chunk + (8 + halved) * keys + 8 * state_values() +
            3 * states / chunk);
  }

  ExpertSizes experts() const {
    return {config_.experts_of(layer_),
            {tokens_ / parts_, num_expert_ranks_, num_same_token_ranks_, e_}};
  }

  /// What is kept of the first projections' input, a norm's result or a scaled copy of it.
  int64_t mixer_input() const {
    if (layer_.mixer != Mixer::kAttentionAndMamba2) return normed_input();
    const bool scales_one = config_.attention_input_scale != 1.0;
    const bool scales_other = config_.mamba2->input_scale != 1.0;
    const int64_t num_copies = int64_t{scales_one} + int64_t{scales_other};
    return num_copies * hidden() + (num_copies < 2 ? normed_input() : 0);
  }

  /// Kept by gates of attention's results, besides what attention keeps.
  int64_t attention_gates() const {
    if (config_.has_attention_gate) return 4 * tokens_ * q_ * e_;
    if (!config_.has_head_gates) return 0;
    // A sigmoid keeps its result alone; what it reads lies in the projection where that is kept.
    const bool reads_projection = config_.qk_norm_of(layer_) == QkNorm::kPlainPerHead;
    return tokens_ * (out_ + (reads_projection ? 1 : 2) * gates()) * e_;
  }
  /// Gates of a token's heads.
  int64_t gates() const {
    if (!config_.has_head_gates) return 0;
    return config_.are_head_gates_wide ? out_ : num_heads_;
  }

  int64_t attention_branch() const {
    if (layer_.mixer == Mixer::kNone) return 0;
    const int64_t gates = attention_gates();
    int64_t kept = dropout() + streams_kept();
    if (layer_.has_state()) kept += state();
    if (layer_.has_attention()) kept += heads() + attention() + gates;
    if (config_.has_pre_norms()) kept += hidden_norm() + mixer_input();
    if (config_.has_post_norms()) kept += post_norm();
    return kept;
  }

  int64_t mlp_branch() const {
    if (!has_mlp()) return 0;
    // The first projection's input.
    int64_t kept = mlp() + dropout() + streams_kept();
    if (is_moe()) {
      kept += experts_input() / parts_;
    } else if (config_.norm_placement != NormPlacement::kParallel) {  // there it is attention's
      kept += config_.has_mlp_pre_norms() ? normed_input() : hidden();
    }
    if (config_.has_mlp_pre_norms()) {
      // Side by side with attention its input is attention's.
      const bool has_own_input = norm_keeps_input() && !config_.are_branches_parallel();
      kept += hidden_norm() + (has_own_input ? hidden() / parts_ : 0);
    }
    if (config_.has_post_norms()) kept += post_norm();
    if (layer_.has_side_experts) kept += side_experts();
    if (config_.layer_inputs) kept += layer_input();
    return kept;
  }

  /// What is kept of the tokens that experts and their router take: nothing of a norm's result that
  /// is made again, unless the tokens travel.
  int64_t experts_input() const {
    const bool is_made_again = config_.has_mlp_pre_norms() && num_expert_ranks_ == 1;
    return is_made_again ? normed_input() : hidden();
  }

  /// Kept by experts beside the MLP and the three norms around both.
  int64_t side_experts() const {
    return experts().kept() + hidden_norm() + experts_input() / parts_ + 2 * post_norm() +
           side_router();
  }
  /// Kept by the norm and the scale before their router's product, in a wide dtype, and by the
  /// weights of the chosen.
  int64_t side_router() const {
    const int64_t rows = tokens_ / parts_;
    const int64_t dim = config_.hidden_size;
    const int64_t copy = e_ == wide() ? 0 : dim * wide();
    const int64_t normed = has_rows_ ? copy + 4 : 8 * dim + 4;
    const int64_t chosen = config_.moe->n_activated_experts * (e_ == wide() ? 2 : 3);
    return rows * (normed + (dim + chosen) * wide());
  }

  /// Kept by what a layer makes of its input: the gate's input, the gate before and after its
  /// activation, the product, and the norm behind it.
  int64_t layer_input() const {
    return hidden() / parts_ + 3 * tokens_ * config_.layer_inputs->dim * e_ / parts_ + post_norm();
  }

  /// The block's output: the next norm's input or, with norms after branches, the next
  /// projection's.
  int64_t output() const {
    if (config_.hyper_connections) return stream();
    const bool is_next_input =
        config_.norm_placement == NormPlacement::kPost || config_.has_norms_behind_sums();
    return is_next_input || norm_keeps_input() ? stream() : 0;
  }

  int64_t forward_working() const {
    if (has_state()) {
      const int64_t attending = layer_.has_attention() ? attending_forward() : 0;
      return std::max({state_working() / 2, 2 * hidden(), attending});
    }
    const int64_t attending = std::max(attending_forward() - mlp_branch(), streams_working());
    if (!is_moe()) return std::max(2 * hidden(), attending);
    return std::max(experts().forward_working(), attending);
  }

  /// The largest need of the backward of the second projection, the activation, the first
  /// projection and attention; what was freed by then is subtracted.
  int64_t backward_working() const {
    if (has_state()) {
      const int64_t attending = layer_.has_attention() ? attending_backward() : 0;
      return std::max({state_working() - mlp_branch(), 3 * hidden(), attending - mlp_branch()});
    }
    const int64_t width = num_raised();
    const int64_t weight = config_.hidden_size * intermediate_ * e_;
    // An activation that is made again and its gradient are there at once.
    const int64_t down = hidden() + (is_activation_made_again() ? 2 : 1) * up() + weight;
    const int64_t activation = hidden() + (has_plain_gate() ? 6 : width) * up();
    const int64_t normed = config_.has_mlp_pre_norms() ? hidden() - normed_input() : 0;
    const int64_t first = 2 * hidden() + normed + width * up() - mlp() + width * weight;
    const int64_t attending = std::max(attending_backward() - mlp_branch(), 2 * streams_working());
    if (is_moe()) return std::max(experts().backward_working() + 2 * stream(), attending);
    return std::max({down, activation, first, attending});
  }

  /// What a branch's hyper-connection keeps.
  int64_t streams_kept() const {
    if (!config_.hyper_connections) return 0;
    return hyper_connection_kept(*config_.hyper_connections, stream_shape());
  }
  int64_t streams_working() const {
    if (!config_.hyper_connections) return 0;
    return hyper_connection_working(*config_.hyper_connections, stream_shape());
  }

 private:
  bool has_state() const { return layer_.has_state(); }
  int64_t post_norm() const { return hidden_norm() + (norm_keeps_input() ? stream() : 0); }

  const DecoderConfig& config_;
  LayerOptions layer_;
  int64_t tokens_;
  int64_t length_;
  int64_t e_;
  bool is_fused_;
  bool has_rows_;
  bool is_part_;
  bool on_device_;
  int64_t parts_;
  int64_t num_heads_;
  int64_t num_kv_heads_;
  int64_t head_dim_;
  int64_t q_;
  int64_t k_;
  int64_t v_;
  int64_t out_;  // columns of the output projection
  int64_t intermediate_;
  bool keeps_down_input_;
  bool is_split_;
  int64_t num_expert_ranks_;
  int64_t num_same_token_ranks_;
};

/// The kinds of layers that are distinguished, with their numbers. If some layer has a state, no
/// MLP, an indexer, a compression, or heads or bounds of its own, all kinds are; else all blocks
/// count as alike, as layers of experts if the model has any.
std::vector<std::pair<LayerOptions, int64_t>> layer_kinds(const DecoderConfig& config) {
  std::vector<std::pair<LayerOptions, int64_t>> kinds;
  const auto has_own_sizes = [](const LayerOptions& layer) {
    return layer.num_heads > 0 || layer.num_kv_heads > 0 || layer.head_dim > 0 ||
           layer.mlp_bounds.are_there() || layer.has_side_experts || !layer.has_own_keys() ||
           layer.intermediate_size > 0;
  };
  const bool are_alike = !config.has_recurrence() && !config.indexer &&
                         !config.compressed_attention && !config.next_tokens &&
                         std::ranges::none_of(config.layers, has_own_sizes);
  const auto add = [&](LayerOptions layer, int64_t num_runs) {
    if (are_alike) layer.is_moe = config.moe.has_value();
    const auto known = std::ranges::find_if(kinds, [&](const auto& kind) {
      return kind.first.mixer == layer.mixer && kind.first.has_mlp == layer.has_mlp &&
             kind.first.is_moe == layer.is_moe && kind.first.compression == layer.compression &&
             kind.first.num_heads == layer.num_heads &&
             kind.first.num_kv_heads == layer.num_kv_heads &&
             kind.first.head_dim == layer.head_dim &&
             kind.first.has_own_keys() == layer.has_own_keys() &&
             kind.first.intermediate_size == layer.intermediate_size &&
             kind.first.mlp_bounds.are_there() == layer.mlp_bounds.are_there();
    });
    if (known == kinds.end()) {
      kinds.emplace_back(layer, num_runs);
    } else {
      known->second += num_runs;
    }
  };
  for (const LayerOptions& layer : config.layers) add(layer, 1);
  if (config.next_tokens) {
    for (const LayerOptions& layer : config.next_tokens->layers) {
      add(layer, config.next_tokens->num_depths);
    }
  }
  return kinds;
}

/// Adds what multi-token prediction keeps besides its layers; all blocks share it alike.
void add_next_tokens(const DecoderConfig& config, const BlockSizes& block,
                     nn::ActivationSizes& sizes) {
  const NextTokenOptions& options = *config.next_tokens;
  const int64_t num_blocks = config.num_layers() + options.num_own_layers();
  const auto of_a_block = [&](int64_t bytes) { return ceil_div(bytes, num_blocks); };
  // The token ahead; three norms, the joined halves and what the fusion makes of them.
  const int64_t fusion = block.stream() + 3 * block.hidden_norm() + 3 * block.hidden();
  sizes.block_kept += of_a_block(options.num_depths * fusion);
  sizes.block_input =
      of_a_block((config.num_layers() + options.num_runs() + options.num_depths) * block.stream());
  // Gradients of the depths' rows, and a second one of the head's weight.
  const int64_t weight = sizes.head_kept - block.hidden();
  sizes.head_kept += weight + options.num_depths * block.hidden();
  sizes.logits += (2 * options.num_depths + 1) * block.hidden();  // rows of all depths, joined
}

}  // namespace

nn::ActivationSizes activation_sizes(const DecoderConfig& config,
                                     const nn::ActivationShape& shape) {
  const auto kinds = layer_kinds(config);
  const BlockSizes block(config, shape, kinds.front().first);
  const int64_t num_depths = config.next_tokens ? config.next_tokens->num_depths : 1;
  // A plain logit takes float32, plus its cap's slope or later its gradient in the weight's dtype.
  const int64_t cast = shape.element_size == 4 ? 0 : shape.element_size;
  const int64_t slope = config.final_softcap > 0 ? 4 : 0;
  // A loss whose vocabulary is split goes by small chunks of plain logits on every device.
  const bool is_split = shape.num_vocab_parts > 1;
  const bool has_row_kernels = shape.has_row_kernels() && !is_split;
  const int64_t per_logit = has_row_kernels ? shape.element_size : 4 + std::max(cast, slope);
  const int64_t vocab_size = ceil_div(config.head_rows(), shape.num_vocab_parts);
  const bool is_by_device_kernel = shape.on_device && has_row_kernels;
  const int64_t rows = std::min(kernels::most_logit_rows(vocab_size, is_by_device_kernel),
                                num_depths * shape.tokens());
  nn::ActivationSizes sizes;
  sizes.embedding = block.stream();
  if (!shape.has_row_kernels() && config.embedding_dropout > 0) {
    sizes.embedding += block.stream() / shape.element_size;
  }
  if (config.has_embedding_norm) sizes.embedding += block.stream() / shape.element_size * 4;
  if (config.has_placed_norm) sizes.embedding += block.stream();
  // All layers' inputs, and what the norm in them reads.
  if (config.layer_inputs) {
    sizes.embedding +=
        2 * shape.tokens() * config.num_layers() * config.layer_inputs->dim * shape.element_size;
  }
  sizes.block_input = block.stream();
  int64_t kept = 0;
  for (const auto& [layer, count] : kinds) {
    const BlockSizes one(config, shape, layer);
    kept += count * (one.attention_branch() + one.mlp_branch() + one.output());
    sizes.block_forward = std::max(sizes.block_forward, one.forward_working());
    sizes.block_backward = std::max(sizes.block_backward, one.backward_working());
  }
  const int64_t num_blocks =
      config.num_layers() + (config.next_tokens ? config.next_tokens->num_own_layers() : 0);
  sizes.block_kept = kept / std::max<int64_t>(1, num_blocks);
  sizes.final_norm_kept = block.hidden_norm() + block.hidden() + block.streams_kept();
  // A pooler keeps what it reads and gives, and both without what is dropped; its norms what they
  // read; a mean wide copies.
  if (config.pooler) {
    const int64_t num_norms = config.pooler->has_norms ? 2 : 0;
    sizes.final_norm_kept = (4 + num_norms) * block.hidden() + num_norms * block.hidden_norm();
    if (config.pooler->averages) sizes.final_norm_kept += 8 * block.hidden() / shape.element_size;
  }
  sizes.head_kept = block.hidden() + vocab_size * config.hidden_size * shape.element_size;
  sizes.logits = rows * (vocab_size * per_logit + config.hidden_size * shape.element_size) +
                 block.hidden();  // the rows that have labels
  // Its rows of length 1; their gradient is the head's above.
  if (config.is_head_normed) {
    sizes.logits += vocab_size * config.hidden_size * shape.element_size;
  }
  if (shape.is_fused()) {
    sizes.logits += kernels::product_scratch_bytes(rows, config.hidden_size, vocab_size,
                                                   shape.element_size == 2);
  }
  if (config.next_tokens) add_next_tokens(config, block, sizes);
  if (!config.moe) return sizes;
  const moe::ExpertSizes experts = block.experts();
  sizes.experts_input = 3 * block.hidden() / shape.num_sequence_parts;
  sizes.exchanged_forward = experts.sent_forward();
  sizes.exchanged_backward = experts.sent_backward();
  return sizes;
}

}  // namespace automodel::models::decoder
