#include <string>
#include <utility>
#include <vector>

#include "core/text.h"
#include "models/diffusion_gemma/config.h"

namespace automodel::models::diffusion_gemma {

namespace {

constexpr const char* kDecoder = "model.decoder.";
constexpr const char* kEncoderLayers = "model.encoder.language_model.layers.";

/// Collects key map entries in the order of the modules' parameters.
class Parts final {
 public:
  void add(const std::string& name, const std::string& parameter, std::vector<int64_t> shape) {
    keys_.push_back({name, parameter, 0, std::move(shape)});
  }

  void add_norm(const std::string& name, const std::string& parameter, int64_t dim) {
    add(name + ".weight", parameter + ".weight", {dim});
  }

  /// Adds a projection whose rows are those of several tensors.
  void add_rows(const std::vector<std::pair<std::string, int64_t>>& names,
                const std::string& parameter, int64_t in) {
    int64_t row = 0;
    for (const auto& [name, rows] : names) {
      keys_.push_back({name + ".weight", parameter + ".weight", row, {rows, in}});
      row += rows;
    }
  }

  void add_mlp(const std::string& name, const std::string& module, int64_t dim, int64_t inner) {
    add_rows({{name + "gate_proj", inner}, {name + "up_proj", inner}}, module + "gate_up_proj",
             dim);
    add_rows({{name + "down_proj", dim}}, module + "down_proj", inner);
  }

  tensor::KeyMap take() { return std::move(keys_); }

 private:
  tensor::KeyMap keys_;
};

void add_attention(Parts& parts, const decoder::DecoderConfig& text,
                   const decoder::Gemma4Layer& shape, const std::string& hf,
                   const std::string& module) {
  const int64_t q_rows = text.num_heads * shape.head_dim;
  const int64_t kv_rows = shape.num_kv_heads * shape.head_dim;
  std::vector<std::pair<std::string, int64_t>> rows{{hf + "q_proj", q_rows},
                                                    {hf + "k_proj", kv_rows}};
  if (shape.is_sliding) rows.emplace_back(hf + "v_proj", kv_rows);
  parts.add_rows(rows, module + "qkv_proj", text.hidden_size);
  parts.add_norm(hf + "q_norm", module + "q_norm", shape.head_dim);
  parts.add_norm(hf + "k_norm", module + "k_norm", shape.head_dim);
  parts.add_rows({{hf + "o_proj", text.hidden_size}}, module + "o_proj", q_rows);
}

void add_moe(Parts& parts, const moe::MoEConfig& moe, const std::string& hf,
             const std::string& module) {
  const int64_t num_experts = moe.n_routed_experts;
  parts.add(hf + "router.scale", module + "router.scale", {moe.dim});
  parts.add(hf + "router.per_expert_scale", module + "router.per_expert_scale", {num_experts});
  parts.add_rows({{hf + "router.proj", num_experts}}, module + "router.proj", moe.dim);
  parts.add(hf + "experts.gate_up_proj", module + "experts.gate_up_proj",
            {num_experts, moe.expert_width(), moe.dim});
  parts.add(hf + "experts.down_proj", module + "experts.down_proj",
            {num_experts, moe.dim, moe.moe_inter_dim});
}

void add_layer(Parts& parts, const DiffusionGemmaConfig& config, size_t layer) {
  const decoder::DecoderConfig& text = config.text;
  const std::string hf = cat(kDecoder, "layers.", layer, ".");
  const std::string module = cat("model.layers.", layer, ".");
  const auto add_norm = [&](const char* name, const char* to) {
    parts.add_norm(hf + name, module + to, text.hidden_size);
  };
  parts.add(hf + "layer_scalar", module + "layer_scalar", {1});
  parts.add(cat(kEncoderLayers, layer, ".layer_scalar"), module + "encoder_layer_scalar", {1});
  add_norm("input_layernorm", "attention_pre_norm");
  add_attention(parts, text, config.layers[layer], hf + "self_attn.", module + "attention.");
  add_norm("post_attention_layernorm", "attention_post_norm");
  add_norm("pre_feedforward_layernorm", "mlp_pre_norm");
  parts.add_mlp(hf + "mlp.", module + "mlp.", text.hidden_size, text.intermediate_size);
  add_norm("post_feedforward_layernorm_1", "mlp_post_norm");
  add_norm("pre_feedforward_layernorm_2", "moe_pre_norm");
  add_moe(parts, *text.moe, hf, module + "moe.");
  add_norm("post_feedforward_layernorm_2", "moe_post_norm");
  add_norm("post_feedforward_layernorm", "post_norm");
}

}  // namespace

tensor::KeyMap key_map(const DiffusionGemmaConfig& config) {
  const decoder::DecoderConfig& text = config.text;
  const std::string hf = kDecoder;
  Parts parts;
  parts.add(hf + "embed_tokens.weight", "model.embed_tokens.weight",
            {text.vocab_size, text.hidden_size});
  for (size_t i = 0; i < config.layers.size(); ++i) add_layer(parts, config, i);
  parts.add_norm(hf + "norm", "model.norm", text.hidden_size);
  parts.add_norm(hf + "self_conditioning.pre_norm", "model.self_conditioning.pre_norm",
                 text.hidden_size);
  parts.add_mlp(hf + "self_conditioning.", "model.self_conditioning.mlp.", text.hidden_size,
                text.intermediate_size);
  return parts.take();
}

}  // namespace automodel::models::diffusion_gemma
