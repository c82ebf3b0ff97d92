#include <string>
#include <utility>
#include <vector>

#include "core/text.h"
#include "models/t5/t5_config.h"

namespace automodel::models::t5 {

namespace {

/// Collects key map entries in the order of the modules' parameters.
class Parts final {
 public:
  explicit Parts(const T5Config& config) : config_(config) {}

  void add(const std::string& name, const std::string& module, std::vector<int64_t> shape) {
    keys_.push_back({cat(name, ".weight"), cat(module, ".weight"), 0, std::move(shape)});
  }

  void add_norm(const std::string& name, const std::string& module) {
    add(name, module, {config_.hidden_size});
  }

  /// A layer whose rows are those of several tensors.
  void add_rows(const std::string& name, const std::vector<std::string>& tensors,
                const std::string& module, int64_t rows, int64_t columns) {
    int64_t first = 0;
    for (const std::string& each : tensors) {
      keys_.push_back({cat(name, each, ".weight"), cat(module, ".weight"), first, {rows, columns}});
      first += rows;
    }
  }

  void add_block(const std::string& stack, int64_t layer, bool is_decoder) {
    const std::string hf = cat(stack, ".block.", layer, ".layer.");
    const std::string module = cat(stack, ".blocks.", layer, ".");
    const int64_t dim = config_.hidden_size, inner = config_.inner_dim();
    add_norm(hf + "0.layer_norm", module + "attention_pre_norm");
    add_rows(hf + "0.SelfAttention.", {"q", "k", "v"}, module + "attention.qkv_proj", inner, dim);
    add_rows(hf + "0.SelfAttention.", {"o"}, module + "attention.o_proj", dim, inner);
    if (is_decoder) {
      add_norm(hf + "1.layer_norm", module + "cross_pre_norm");
      add_rows(hf + "1.EncDecAttention.", {"q"}, module + "cross_attention.q_proj", inner, dim);
      add_rows(hf + "1.EncDecAttention.", {"k", "v"}, module + "cross_attention.kv_proj", inner,
               dim);
      add_rows(hf + "1.EncDecAttention.", {"o"}, module + "cross_attention.o_proj", dim, inner);
    }
    const std::string last = hf + (is_decoder ? "2." : "1.");
    add_norm(last + "layer_norm", module + "mlp_pre_norm");
    const int64_t width = config_.intermediate_size;
    if (config_.is_mlp_gated) {
      add_rows(last + "DenseReluDense.", {"wi_0", "wi_1"}, module + "gate_up_proj", width, dim);
    } else {
      add_rows(last + "DenseReluDense.", {"wi"}, module + "up_proj", width, dim);
    }
    add_rows(last + "DenseReluDense.", {"wo"}, module + "down_proj", dim, width);
  }

  void add_stack(const std::string& stack, int64_t num_layers, bool is_decoder) {
    add(stack + ".block.0.layer.0.SelfAttention.relative_attention_bias", stack + ".position_bias",
        {config_.num_buckets, config_.num_heads});
    for (int64_t i = 0; i < num_layers; ++i) add_block(stack, i, is_decoder);
    add_norm(stack + ".final_layer_norm", stack + ".norm");
  }

  tensor::KeyMap take() { return std::move(keys_); }

 private:
  const T5Config& config_;
  tensor::KeyMap keys_;
};

}  // namespace

tensor::KeyMap key_map(const T5Config& config) {
  Parts parts(config);
  parts.add("shared", "shared", {config.vocab_size, config.hidden_size});
  parts.add_stack("encoder", config.num_encoder_layers, false);
  parts.add_stack("decoder", config.num_decoder_layers, true);
  if (!config.is_head_tied) {
    parts.add("lm_head", "lm_head", {config.vocab_size, config.hidden_size});
  }
  return parts.take();
}

nn::ParallelPlan parallel_plan(const T5Config& config) {
  nn::ParallelPlan plan;
  const auto add = [&](const char* stack, int64_t num_layers) {
    for (int64_t i = 0; i < num_layers; ++i) plan.blocks.push_back(cat(stack, ".blocks.", i));
  };
  add("encoder", config.num_encoder_layers);
  add("decoder", config.num_decoder_layers);
  plan.embedding = "shared";
  plan.final_norm = "decoder.norm";
  if (!config.is_head_tied) plan.head = "lm_head";
  const std::string reason =
      "an encoder and a decoder are replicated or sharded (DDP, FSDP2, HSDP, Megatron-FSDP)";
  plan.no_tp_reasons = {reason};
  plan.no_cp_reasons = {reason};
  plan.no_pp_reasons = {reason};
  return plan;
}

}  // namespace automodel::models::t5
