#include "models/decoder/hf_names.h"

#include <utility>
#include <vector>

#include "core/text.h"
#include "models/class_names.h"

namespace automodel::models::decoder {

namespace {

/// Collects key map entries in the order of the modules' parameters.
class KeyMapBuilder final {
 public:
  explicit KeyMapBuilder(const DecoderConfig& config) : config_(config) {}

  void add(const std::string& name, const std::string& parameter, std::vector<int64_t> shape) {
    parts_.push_back({name, parameter, 0, std::move(shape)});
  }

  void add_at(const std::string& name, const std::string& parameter, int64_t row,
              std::vector<int64_t> shape) {
    parts_.push_back({name, parameter, row, std::move(shape)});
  }

  void add_norm(const std::string& name, const std::string& parameter, int64_t dim) {
    if (config_.has_norm_weight) add(name + ".weight", parameter + ".weight", {dim});
    if (config_.has_layer_norms() && config_.has_norm_bias) {
      add(name + ".bias", parameter + ".bias", {dim});
    }
  }

  /// Adds a projection whose rows are those of several tensors: all weights, then all biases.
  void add_rows(const std::vector<std::pair<std::string, int64_t>>& tensors,
                const std::string& parameter, int64_t in, bool has_bias) {
    for (const bool is_bias : {false, true}) {
      if (is_bias && !has_bias) continue;
      const char* suffix = is_bias ? ".bias" : ".weight";
      int64_t row = 0;
      for (const auto& [name, rows] : tensors) {
        std::vector<int64_t> shape{rows};
        if (!is_bias) shape.insert(config_.is_conv1d ? shape.begin() : shape.end(), in);
        parts_.push_back({name + suffix, parameter + suffix, row, std::move(shape)});
        row += rows;
      }
    }
  }

  tensor::KeyMap take() { return std::move(parts_); }

 private:
  const DecoderConfig& config_;
  tensor::KeyMap parts_;
};

void add_indexer(KeyMapBuilder& builder, const DecoderConfig& config, const std::string& hf,
                 const std::string& module) {
  const IndexerOptions& sizes = *config.indexer;
  const auto add = [&](const char* name, const char* to, std::vector<int64_t> shape) {
    builder.add(hf + name, module + to, std::move(shape));
  };
  add("wq_b.weight", "q_proj.weight",
      {sizes.num_heads * sizes.head_dim, config.latent_attention->q_rank});
  add("wk.weight", "k_proj.weight", {sizes.head_dim, config.hidden_size});
  add("k_norm.weight", "k_norm.weight", {sizes.head_dim});
  add("k_norm.bias", "k_norm.bias", {sizes.head_dim});
  add("weights_proj.weight", "weights_proj.weight", {sizes.num_heads, config.hidden_size});
}

/// One HyperConnection, or the head of them: tensors "<hf>fn", "<hf>base" and "<hf>scale".
void add_hyper_connection(KeyMapBuilder& builder, const DecoderConfig& config,
                          const std::string& hf, const std::string& module, int64_t num_weights,
                          int64_t num_scales) {
  builder.add(hf + "fn", module + "fn", {num_weights, config.stream_dims()});
  builder.add(hf + "base", module + "base", {num_weights});
  builder.add(hf + "scale", module + "scale", {num_scales});
}

/// The parts that make keys of windows, of `dim` dims.
void add_compressor(KeyMapBuilder& builder, const DecoderConfig& config, const LayerOptions& layer,
                    const std::string& hf, const std::string& module, int64_t dim) {
  const int64_t width = CompressedAttentionOptions::width(layer.compression) * dim;
  builder.add(hf + "ape", module + "position_bias",
              {config.compressed_attention->rate(layer.compression), width});
  builder.add(hf + "wkv.weight", module + "kv_proj.weight", {width, config.hidden_size});
  builder.add(hf + "wgate.weight", module + "gate_proj.weight", {width, config.hidden_size});
  builder.add(hf + "norm.weight", module + "kv_norm.weight", {dim});
}

void add_compressed_attention(KeyMapBuilder& builder, const DecoderConfig& config,
                              const LayerOptions& layer, const std::string& hf,
                              const std::string& module) {
  const CompressedAttentionOptions& sizes = *config.compressed_attention;
  const auto add = [&](const char* name, const char* to, std::vector<int64_t> shape) {
    builder.add(hf + name, module + to, std::move(shape));
  };
  const int64_t q_rows = config.num_heads * config.head_dim;
  const int64_t output_rows = sizes.num_output_groups * sizes.output_rank;
  add("attn_sink", "sinks", {config.num_heads});
  add("wq_a.weight", "q_a_proj.weight", {sizes.q_rank, config.hidden_size});
  add("q_norm.weight", "q_a_norm.weight", {sizes.q_rank});
  add("wq_b.weight", "q_b_proj.weight", {q_rows, sizes.q_rank});
  add("wkv.weight", "kv_proj.weight", {config.head_dim, config.hidden_size});
  add("kv_norm.weight", "kv_norm.weight", {config.head_dim});
  add("wo_a.weight", "o_a_proj.weight", {output_rows, q_rows / sizes.num_output_groups});
  add("wo_b.weight", "o_b_proj.weight", {config.hidden_size, output_rows});
  if (layer.compression == Compression::kNone) return;
  add_compressor(builder, config, layer, hf + "compressor.", module + "compressor.",
                 config.head_dim);
  if (layer.compression != Compression::kSparse) return;
  const IndexerOptions& indexer = sizes.indexer;
  add_compressor(builder, config, layer, hf + "indexer.compressor.", module + "indexer.compressor.",
                 indexer.head_dim);
  add("indexer.wq_b.weight", "indexer.q_b_proj.weight",
      {indexer.num_heads * indexer.head_dim, sizes.q_rank});
  add("indexer.weights_proj.weight", "indexer.weights_proj.weight",
      {indexer.num_heads, config.hidden_size});
}

void add_latent_attention(KeyMapBuilder& builder, const DecoderConfig& config, const HfNames& names,
                          const std::string& hf, const std::string& module) {
  const LatentAttentionOptions& sizes = *config.latent_attention;
  const auto add = [&](std::string_view name, const char* to, int64_t out, int64_t in,
                       bool has_bias = false) {
    builder.add_rows({{cat(hf, name), out}}, module + to, in, has_bias);
  };
  const auto add_norm = [&](const char* name, const char* to, int64_t dim) {
    builder.add(cat(hf, name, ".weight"), cat(module, to, ".weight"), {dim});
  };
  const bool has_bias = config.has_qkv_bias;
  const int64_t q_size = config.num_heads * sizes.qk_dim();
  if (sizes.q_rank == 0) {
    add(names.q, "q_proj", q_size, config.hidden_size);
  } else {
    add("q_a_proj", "q_a_proj", sizes.q_rank, config.hidden_size, has_bias);
    add_norm("q_a_layernorm", "q_a_norm", sizes.q_rank);
    add("q_b_proj", "q_b_proj", q_size, sizes.q_rank);
  }
  add("kv_a_proj_with_mqa", "kv_a_proj", sizes.kv_rank + sizes.rotated_dim, config.hidden_size,
      has_bias);
  add_norm("kv_a_layernorm", "kv_a_norm", sizes.kv_rank);
  add("kv_b_proj", "kv_b_proj", config.num_heads * (sizes.plain_dim + sizes.value_dim),
      sizes.kv_rank);
  add(names.output, "o_proj", config.hidden_size, config.num_heads * sizes.value_dim,
      config.has_attention_output_bias);
}

/// Delta attention with a decay for each row of a state, whose tensors are named as attention's.
void add_kimi_delta(KeyMapBuilder& builder, const DecoderConfig& config, const std::string& hf,
                    const std::string& module) {
  const GatedDeltaOptions& sizes = *config.gated_delta;
  builder.add(hf + "dt_bias", module + "dt_bias", {sizes.decays()});
  builder.add(hf + "A_log", module + "A_log", {1, 1, sizes.num_heads, 1});
  builder.add_rows({{hf + "q_proj", sizes.keys()},
                    {hf + "k_proj", sizes.keys()},
                    {hf + "v_proj", sizes.values()},
                    {hf + "b_proj", sizes.num_heads},
                    {hf + "f_a_proj", sizes.key_dim},
                    {hf + "g_a_proj", sizes.value_dim}},
                   module + "in_proj", config.hidden_size, false);
  int64_t channel = 0;
  for (const auto& [name, count] : {std::pair("q_conv1d.weight", sizes.keys()),
                                    {"k_conv1d.weight", sizes.keys()},
                                    {"v_conv1d.weight", sizes.values()}}) {
    builder.add_at(hf + name, module + "conv1d.weight", channel, {count, 1, sizes.num_taps});
    channel += count;
  }
  builder.add_rows({{hf + "f_b_proj", sizes.decays()}}, module + "step_proj", sizes.key_dim, false);
  builder.add_rows({{hf + "g_b_proj", sizes.values()}}, module + "gate_proj", sizes.value_dim,
                   false);
  builder.add(hf + "o_norm.weight", module + "norm.weight", {sizes.value_dim});
  builder.add_rows({{hf + "o_proj", config.hidden_size}}, module + "out_proj", sizes.values(),
                   false);
}

void add_gated_delta(KeyMapBuilder& builder, const DecoderConfig& config, const std::string& hf,
                     const std::string& module) {
  const GatedDeltaOptions& sizes = *config.gated_delta;
  builder.add(hf + "dt_bias", module + "dt_bias", {sizes.num_heads});
  builder.add(hf + "A_log", module + "A_log", {sizes.num_heads});
  std::vector<std::pair<std::string, int64_t>> rows;
  if (sizes.is_grouped) {
    rows = {{hf + "in_proj_qkvz", 2 * sizes.keys() + 2 * sizes.values()},
            {hf + "in_proj_ba", 2 * sizes.num_heads}};
  } else {
    rows = {{hf + "in_proj_qkv", sizes.conv_channels()},
            {hf + "in_proj_z", sizes.values()},
            {hf + "in_proj_b", sizes.num_heads},
            {hf + "in_proj_a", sizes.num_heads}};
  }
  builder.add_rows(rows, module + "in_proj", config.hidden_size, false);
  builder.add(hf + "conv1d.weight", module + "conv1d.weight",
              {sizes.conv_channels(), 1, sizes.num_taps});
  builder.add(hf + "norm.weight", module + "norm.weight", {sizes.value_dim});
  builder.add_rows({{hf + "out_proj", config.hidden_size}}, module + "out_proj", sizes.values(),
                   false);
}

void add_mamba2(KeyMapBuilder& builder, const DecoderConfig& config, const std::string& hf,
                const std::string& module) {
  const Mamba2Options& sizes = *config.mamba2;
  for (const char* name : {"dt_bias", "A_log", "D"}) {
    builder.add(hf + name, module + name, {sizes.num_heads});
  }
  builder.add_rows({{hf + "in_proj", sizes.projected_rows()}}, module + "in_proj",
                   config.hidden_size, sizes.has_proj_bias);
  builder.add(hf + "conv1d.weight", module + "conv1d.weight",
              {sizes.conv_channels(), 1, sizes.num_taps});
  if (sizes.has_conv_bias) {
    builder.add(hf + "conv1d.bias", module + "conv1d.bias", {sizes.conv_channels()});
  }
  if (sizes.has_norm) builder.add(hf + "norm.weight", module + "norm.weight", {sizes.inner()});
  builder.add_rows({{hf + "out_proj", config.hidden_size}}, module + "out_proj", sizes.inner(),
                   sizes.has_proj_bias);
}

void add_short_conv(KeyMapBuilder& builder, const DecoderConfig& config, const std::string& hf,
                    const std::string& module) {
  const ShortConvOptions& options = *config.short_conv;
  const int64_t dim = config.hidden_size;
  builder.add_rows({{hf + "in_proj", 3 * dim}}, module + "in_proj", dim, options.has_bias);
  builder.add(hf + "conv.weight", module + "conv1d.weight", {dim, 1, options.num_taps});
  if (options.has_bias) builder.add(hf + "conv.bias", module + "conv1d.bias", {dim});
  builder.add_rows({{hf + "out_proj", dim}}, module + "out_proj", dim, options.has_bias);
}

/// A LayerNorm over each head's dims. Of weights of each head's own there is one tensor, or one a
/// head, numbered where the name ends with a dot.
void add_head_layer_norm(KeyMapBuilder& builder, const DecoderConfig& config, const std::string& hf,
                         const std::string& module, int64_t num_heads) {
  const int64_t dim = config.head_dim;
  if (config.qk_norm == QkNorm::kLayerPerHead) {
    builder.add(hf + ".weight", module + ".weight", {dim});
    builder.add(hf + ".bias", module + ".bias", {dim});
  } else if (!hf.ends_with('.')) {
    builder.add(hf + ".weight", module + ".weight", {num_heads, dim});
  } else {
    for (int64_t head = 0; head < num_heads; ++head) {
      builder.add_at(cat(hf, head, ".weight"), module + ".weight", head * dim, {dim});
    }
  }
}

void add_attention(KeyMapBuilder& builder, const DecoderConfig& config, const LayerOptions& layer,
                   const HfNames& names, const std::string& hf, const std::string& module) {
  if (config.latent_attention) {
    add_latent_attention(builder, config, names, hf, module);
    return;
  }
  const int64_t num_heads = config.heads_of(layer);
  const int64_t num_kv_heads = config.kv_heads_of(layer);
  const int64_t head_dim = config.head_dim_of(layer);
  if (config.has_sinks(layer)) builder.add(cat(hf, names.sinks), module + "sinks", {num_heads});
  std::vector<std::pair<std::string, int64_t>> rows;
  if (names.qkv.empty()) {
    rows = {{cat(hf, names.q), config.q_rows(layer)}};
    if (layer.has_own_keys()) rows.emplace_back(cat(hf, names.k), config.k_rows(layer));
    if (config.v_rows(layer) > 0) rows.emplace_back(cat(hf, names.v), config.v_rows(layer));
  } else {
    rows = {{cat(hf, names.qkv), config.qkv_rows(layer) - config.gate_rows(layer)}};
  }
  if (config.has_head_gates) rows.emplace_back(cat(hf, names.head_gates), config.gate_rows(layer));
  builder.add_rows(rows, module + "qkv_proj", config.hidden_size, config.has_qkv_bias);
  if (config.has_head_layer_norms()) {
    add_head_layer_norm(builder, config, cat(hf, names.q_norm), module + "q_norm", num_heads);
    add_head_layer_norm(builder, config, cat(hf, names.k_norm), module + "k_norm", num_kv_heads);
  } else if (config.qk_norm != QkNorm::kNone && config.qk_norm != QkNorm::kPlainPerHead) {
    const bool is_per_head = config.qk_norm == QkNorm::kPerHead;
    builder.add(cat(hf, names.q_norm, ".weight"), module + "q_norm.weight",
                {is_per_head ? head_dim : num_heads * head_dim});
    if (layer.has_own_keys()) {
      builder.add(cat(hf, names.k_norm, ".weight"), module + "k_norm.weight",
                  {is_per_head ? head_dim : config.k_rows(layer)});
    }
  }
  builder.add_rows({{cat(hf, names.output), config.hidden_size}}, module + "o_proj",
                   config.output_columns(layer), config.has_attention_output_bias);
}

/// What the names of a layer's part begin with: "<hf><part>.", or those of the layer's own.
std::string part_of(const std::string& hf, std::string_view part) {
  return part.empty() ? hf : cat(hf, part, ".");
}

/// The module of a Mamba-2 layer beside an attention: "model.layers.3.mamba.".
std::string beside_attention(const std::string& attention) {
  constexpr std::string_view kAttention = "attention.";
  return cat(attention.substr(0, attention.size() - kAttention.size()), "mamba.");
}

void add_mixer(KeyMapBuilder& builder, const DecoderConfig& config, const LayerOptions& layer,
               const HfNames& names, const std::string& hf, const std::string& module) {
  const std::string state = cat(hf, names.recurrence, ".");
  switch (layer.mixer) {
    case Mixer::kAttention:
      if (config.compressed_attention) {
        return add_compressed_attention(builder, config, layer, part_of(hf, names.attention),
                                        module);
      }
      return add_attention(builder, config, layer, names, part_of(hf, names.attention), module);
    case Mixer::kGatedDelta:
      return (config.gated_delta->has_row_decays ? add_kimi_delta : add_gated_delta)(
          builder, config, state, module);
    case Mixer::kMamba2:
      return add_mamba2(builder, config, state, module);
    case Mixer::kShortConv:
      return add_short_conv(builder, config, state, module);
    case Mixer::kAttentionAndMamba2:
      add_attention(builder, config, layer, names, part_of(hf, names.attention), module);
      return add_mamba2(builder, config, state, beside_attention(module));
    case Mixer::kNone:
      return;
  }
}

void add_shared_mlp(KeyMapBuilder& builder, const DecoderConfig& config, const HfNames& names,
                    const std::string& hf, const std::string& module) {
  const int64_t size = config.moe->shared_inner_dim();
  const bool has_bias = config.moe->shared_expert_bias;
  const std::string_view down = names.shared_down.empty() ? names.down : names.shared_down;
  if (!names.shared_gate_up.empty()) {
    builder.add_rows({{cat(hf, names.shared_gate_up), 2 * size}}, module + "gate_up_proj",
                     config.hidden_size, has_bias);
  } else if (config.moe->is_gated()) {
    builder.add_rows({{cat(hf, names.gate), size}, {cat(hf, names.up), size}},
                     module + "gate_up_proj", config.hidden_size, has_bias);
  } else {
    builder.add_rows({{cat(hf, names.up), size}}, module + "up_proj", config.hidden_size, has_bias);
  }
  builder.add_rows({{cat(hf, down), config.hidden_size}}, module + "down_proj", size, has_bias);
}

void add_experts(KeyMapBuilder& builder, const moe::MoEConfig& moe, const HfNames& names,
                 const std::string& hf, const std::string& module) {
  const std::string up = moe.is_gated() ? "gate_up_proj" : "up_proj";
  if (names.are_experts_stacked) {
    const auto add_named = [&](const std::string& hf_name, const std::string& name,
                               std::vector<int64_t> shape) {
      shape.insert(shape.begin(), moe.n_routed_experts);
      builder.add(hf + hf_name, module + name, shape);
    };
    const auto add = [&](const std::string& name, const std::vector<int64_t>& shape) {
      add_named(name, name, shape);
    };
    const auto or_own = [](std::string_view stated, const std::string& own) {
      return stated.empty() ? own : std::string(stated);
    };
    const bool is_transposed = moe.are_experts_transposed;
    const auto matrix = [&](int64_t out, int64_t in) {
      return is_transposed ? std::vector<int64_t>{in, out} : std::vector<int64_t>{out, in};
    };
    add_named(or_own(names.stacked_up, up), up, matrix(moe.expert_width(), moe.expert_dim()));
    if (moe.expert_bias) add(up + "_bias", {moe.expert_width()});
    add_named(or_own(names.stacked_down, "down_proj"), "down_proj",
              matrix(moe.expert_dim(), moe.moe_inter_dim));
    if (moe.expert_bias) add("down_proj_bias", {moe.expert_dim()});
    return;
  }
  if (moe.are_gates_apart) {
    const int64_t count = moe.n_routed_experts;
    const auto add = [&](std::string_view name, const char* parameter, int64_t out, int64_t in) {
      builder.add(cat(hf, name, ".weight"), module + parameter, {count, out, in});
    };
    add(names.expert_gate, "gate_proj", moe.moe_inter_dim, moe.expert_dim());
    add(names.expert_up, "up_proj", moe.moe_inter_dim, moe.expert_dim());
    add(names.expert_down, "down_proj", moe.expert_dim(), moe.moe_inter_dim);
    return;
  }
  std::vector<std::string_view> upper{names.expert_gate, names.expert_up};
  if (!moe.is_gated()) upper = {names.expert_up};
  int64_t row = 0;
  for (int64_t e = 0; e < moe.n_routed_experts; ++e) {
    for (const std::string_view name : upper) {
      builder.add_at(cat(hf, e, ".", name, ".weight"), module + up, row,
                     {moe.moe_inter_dim, moe.expert_dim()});
      row += moe.moe_inter_dim;
    }
  }
  for (int64_t e = 0; e < moe.n_routed_experts; ++e) {
    builder.add_at(cat(hf, e, ".", names.expert_down, ".weight"), module + "down_proj",
                   e * moe.expert_dim(), {moe.expert_dim(), moe.moe_inter_dim});
  }
}

void add_moe(KeyMapBuilder& builder, const DecoderConfig& config, const LayerOptions& layer,
             const HfNames& names, const std::string& hf, const std::string& module) {
  const moe::MoEConfig& moe = *config.moe;
  const std::string router = cat(hf, names.router, ".");
  builder.add(router + "weight", module + "router.weight", {moe.n_routed_experts, moe.dim});
  if (moe.router_bias) builder.add(router + "bias", module + "router.bias", {moe.n_routed_experts});
  if (layer.is_hash_routed) {
    builder.add(router + "tid2eid", module + "router.tid2eid",
                {config.vocab_size, moe.n_activated_experts});
  } else if (moe.has_correction_bias) {
    std::vector<int64_t> shape{moe.n_routed_experts};
    if (names.is_correction_row) shape.insert(shape.begin(), 1);
    builder.add(cat(hf, names.correction), module + "router.e_score_correction_bias", shape);
  }
  const char* dot = names.experts.empty() ? "" : ".";
  const auto add_latent = [&](const char* name, int64_t out, int64_t in) {
    if (moe.moe_latent_size == 0) return;
    builder.add(cat(hf, name, ".weight"), cat(module, name, ".weight"), {out, in});
  };
  add_latent("fc1_latent_proj", moe.expert_dim(), moe.dim);
  add_experts(builder, moe, names, cat(hf, names.experts, dot), module + "experts.");
  add_latent("fc2_latent_proj", moe.dim, moe.expert_dim());
  if (moe.n_shared_experts == 0) return;
  const size_t own = names.mlp_of_experts().size() + 1;
  const std::string place = names.are_shared_beside ? hf.substr(0, hf.size() - own) : hf;
  add_shared_mlp(builder, config, names, cat(place, names.shared_experts, "."),
                 module + "shared_experts.");
  if (moe.shared_expert_gate) {
    builder.add(cat(hf, names.shared_expert_gate, ".weight"), module + "shared_expert_gate.weight",
                {1, moe.dim});
  }
}

void add_mlp(KeyMapBuilder& builder, const DecoderConfig& config, const LayerOptions& layer,
             const HfNames& names, const std::string& hf, const std::string& module) {
  if (config.has_xielu) {
    for (const std::string_view learned : {"alpha_p", "alpha_n"}) {
      builder.add(cat(hf, "act_fn.", learned), cat(module, learned), {1});
    }
    for (const std::string_view fixed : {"beta", "eps"}) {
      builder.add(cat(hf, "act_fn.", fixed), cat(module, fixed), {});
    }
  }
  const int64_t size = config.intermediate_of(layer);
  std::vector<std::pair<std::string, int64_t>> rows;
  if (!config.is_mlp_gated) {
    rows = {{cat(hf, names.up), size}};
  } else if (names.gate_up.empty()) {
    rows = {{cat(hf, names.gate), size}, {cat(hf, names.up), size}};
  } else {
    rows = {{cat(hf, names.gate_up), 2 * size}};
  }
  builder.add_rows(rows, module + (config.is_mlp_gated ? "gate_up_proj" : "up_proj"),
                   config.hidden_size, config.has_mlp_bias);
  builder.add_rows({{cat(hf, names.down), config.hidden_size}}, module + "down_proj", size,
                   config.has_mlp_bias);
}

/// Experts beside an MLP, whose names begin as the layer's.
void add_side_experts(KeyMapBuilder& builder, const moe::MoEConfig& moe, const HfNames& names,
                      const std::string& hf, const std::string& module) {
  const std::string router = cat(hf, names.side_router, ".");
  builder.add(router + "scale", module + "router.scale", {moe.dim});
  builder.add(router + "per_expert_scale", module + "router.per_expert_scale",
              {moe.n_routed_experts});
  builder.add(router + "proj.weight", module + "router.proj.weight",
              {moe.n_routed_experts, moe.dim});
  add_experts(builder, moe, names, cat(hf, names.experts, "."), module + "experts.");
}

/// A layer, and what the names of its tensors and of its parameters begin with.
struct NamedLayer {
  const LayerOptions& layer;
  int64_t index = 0;
  std::string hf;
  std::string module;
};

void add_layer(KeyMapBuilder& builder, const DecoderConfig& config, const HfNames& names,
               const NamedLayer& named) {
  const LayerOptions& layer = named.layer;
  const std::string& hf = named.hf;
  const std::string& module = named.module;
  const auto add_norm = [&](std::string_view name, const char* norm) {
    if (!name.empty()) builder.add_norm(cat(hf, name), module + norm, config.hidden_size);
  };
  const auto add_hc = [&](const char* name, const char* hc) {
    if (!config.hyper_connections) return;
    add_hyper_connection(builder, config, hf + name, module + hc,
                         config.hyper_connections->num_weights(), 3);
  };
  const bool has_own_norms =
      config.norm_placement == NormPlacement::kParallelTwo && !names.attention_own_norm.empty();
  if (config.has_layer_scalars) builder.add(hf + "layer_scalar", module + "layer_scalar", {1});
  if (layer.mixer != Mixer::kNone) {
    add_hc("hc_attn_", "attention_hc.");
    if (!layer.is_input_unnormed) {
      add_norm(has_own_norms ? names.attention_own_norm : names.attention_pre_norm,
               "attention_pre_norm");
    }
    add_mixer(builder, config, layer, names, hf, module + "attention.");
    if (layer.choosing_layer == named.index) {
      add_indexer(builder, config, cat(hf, names.attention, ".indexer."),
                  module + "attention.indexer.");
    }
    if (config.has_post_norms()) add_norm(names.attention_post_norm, "attention_post_norm");
  }
  if (!layer.has_mlp) return;
  add_hc("hc_ffn_", "mlp_hc.");
  if (config.has_mlp_pre_norms()) {
    add_norm(has_own_norms ? names.mlp_own_norm : names.mlp_pre_norm, "mlp_pre_norm");
  }
  if (layer.is_moe) {
    add_moe(builder, config, layer, names, cat(hf, names.mlp_of_experts(), "."), module + "mlp.");
  } else {
    add_mlp(builder, config, layer, names, part_of(hf, names.mlp), module + "mlp.");
  }
  if (layer.has_side_experts) {
    add_norm(names.dense_post_norm, "dense_post_norm");
    add_norm(names.moe_pre_norm, "moe_pre_norm");
    add_side_experts(builder, config.experts_of(layer), names, hf, module + "moe.");
    add_norm(names.moe_post_norm, "moe_post_norm");
  }
  if (config.has_post_norms()) add_norm(names.mlp_post_norm, "mlp_post_norm");
  if (!config.layer_inputs) return;
  const int64_t dim = config.layer_inputs->dim;
  builder.add(cat(hf, names.input_gate, ".weight"), module + "input_gate.weight",
              {dim, config.hidden_size});
  builder.add(cat(hf, names.input_proj, ".weight"), module + "input_proj.weight",
              {config.hidden_size, dim});
  add_norm(names.input_post_norm, "input_post_norm");
}

/// What makes the inputs of layers, named beside them.
void add_layer_inputs(KeyMapBuilder& builder, const DecoderConfig& config, const HfNames& names) {
  const std::string hf(names.layers.substr(0, names.layers.rfind('.') + 1));
  const std::string module = "model.layer_inputs.";
  const LayerInputOptions& sizes = *config.layer_inputs;
  const int64_t all = config.num_layers() * sizes.dim;
  builder.add(cat(hf, names.input_embedding, ".weight"), module + "embed_tokens.weight",
              {sizes.vocab_size, all});
  builder.add(cat(hf, names.input_projection, ".weight"), module + "projection.weight",
              {all, config.hidden_size});
  builder.add(cat(hf, names.input_norm, ".weight"), module + "norm.weight", {sizes.dim});
}

/// The layers that predict further tokens.
void add_next_tokens(KeyMapBuilder& builder, const DecoderConfig& config, const HfNames& names) {
  const NextTokenOptions& options = *config.next_tokens;
  const int64_t dim = config.hidden_size;
  for (int64_t i = 0; i < options.num_own_layers(); ++i) {
    const int64_t place = i % options.depth_size();
    const std::string hf = cat(names.next_token_layers, ".", i, ".");
    const std::string module = cat("mtp.layers.", i, ".");
    add_layer(builder, config, names, {options.own_layer(i), config.num_layers() + i, hf, module});
    if (place == 0) {
      builder.add_norm(cat(hf, names.embedding_norm), module + "embedding_norm", dim);
      builder.add_norm(cat(hf, names.hidden_norm), module + "hidden_norm", dim);
      builder.add_rows({{cat(hf, names.fusion), dim}}, module + "fusion_proj", 2 * dim, false);
    }
    if (place + 1 < options.depth_size()) continue;
    builder.add_norm(cat(hf, names.depth_norm), module + "depth_norm", dim);
  }
}

}  // namespace

tensor::KeyMap make_key_map(const DecoderConfig& config, const HfNames& names) {
  KeyMapBuilder builder(config);
  builder.add(cat(names.embedding, ".weight"), "model.embed_tokens.weight",
              {config.vocab_size, config.hidden_size});
  if (config.layer_inputs) add_layer_inputs(builder, config, names);
  if (config.has_learned_positions) {
    builder.add(cat(names.positions, ".weight"), "model.embed_positions.weight",
                {config.first_position + config.max_positions, config.hidden_size});
  }
  if (config.num_token_types > 0) {
    builder.add(cat(names.token_types, ".weight"), "model.embed_types.weight",
                {config.num_token_types, config.hidden_size});
  }
  if (config.has_placed_norm) {
    builder.add_norm(std::string(names.placed_norm), "model.embed_norm", config.hidden_size);
  }
  for (int64_t i = 0; i < config.num_layers(); ++i) {
    add_layer(builder, config, names,
              {config.layers[static_cast<size_t>(i)], i, cat(names.layers, ".", i, "."),
               cat("model.layers.", i, ".")});
  }
  if (config.hyper_connections) {
    add_hyper_connection(builder, config, "hc_head_", "model.hc_head.",
                         config.hyper_connections->num_streams, 1);
  }
  if (config.has_final_norm()) {
    builder.add_norm(std::string(names.final_norm), "model.norm", config.hidden_size);
  }
  if (config.pooler) {
    builder.add_rows({{std::string(names.pooler), config.hidden_size}}, "model.pooler",
                     config.hidden_size, config.pooler->has_bias);
    if (config.pooler->has_norms) {
      builder.add_norm(std::string(names.pooler_norm), "model.pooler_norm", config.hidden_size);
    }
  }
  if (!config.is_head_tied) {
    const std::string_view head = config.is_classifier() ? names.classes : names.head;
    builder.add(cat(head, ".weight"), "lm_head.weight", {config.head_rows(), config.hidden_size});
    if (config.has_head_bias) builder.add(cat(head, ".bias"), "lm_head.bias", {config.head_rows()});
  }
  if (config.next_tokens) add_next_tokens(builder, config, names);
  return builder.take();
}

}  // namespace automodel::models::decoder
