#pragma once

#include <string_view>

#include "models/class_names.h"
#include "models/decoder/decoder_config.h"
#include "tensor/key_map.h"

namespace automodel::models::decoder {

/// Tensor names in a family's Hugging Face checkpoints; defaults are Llama's. An empty name: the
/// family has no such tensor, or names it in another entry; of `attention` and `mlp`: their tensors
/// are named as the layer's own.
struct HfNames {
  std::string_view embedding = "model.embed_tokens";
  std::string_view positions;
  std::string_view layers = "model.layers";
  std::string_view final_norm = "model.norm";
  std::string_view head = "lm_head";
  std::string_view classes = kClassifierHead;  ///< the head of the class that classifies
  std::string_view token_types;                ///< an encoder's, as the next two
  std::string_view placed_norm;                ///< behind the embeddings' sum
  std::string_view pooler;
  bool has_pooler_beside_classes = false;  ///< it is of the head, in a module of its own
  std::string_view pooler_norm;            ///< behind it

  std::string_view attention = "self_attn";
  std::string_view qkv;  ///< one tensor for all three; "": q, k and v
  std::string_view q = "q_proj";
  std::string_view k = "k_proj";
  std::string_view v = "v_proj";
  std::string_view head_gates = "g_proj";
  std::string_view output = "o_proj";
  std::string_view sinks = "sinks";
  std::string_view q_norm = "q_norm";
  std::string_view k_norm = "k_norm";
  std::string_view recurrence = "linear_attn";  ///< a layer with a state, replacing attention or
                                                ///< beside it
  std::string_view mlp = "mlp";
  std::string_view gate_up;  ///< one tensor for both; "": gate and up
  std::string_view gate = "gate_proj";
  std::string_view up = "up_proj";
  std::string_view down = "down_proj";

  std::string_view moe;              ///< a layer of experts in `mlp`'s place; "": named as `mlp` is
  std::string_view router = "gate";  ///< of a mixture of experts, under it
  std::string_view correction = "gate.e_score_correction_bias";  ///< of the router's choice
  bool is_correction_row = false;                                ///< it is stored [1, E]
  std::string_view experts = "experts";  ///< "": their tensors are named beside the router's
  bool are_experts_stacked = false;      ///< one gate_up and one down tensor for all experts;
                                         ///< else three for each, with the names below, or
                                         ///< for all (MoEConfig::are_gates_apart)
  std::string_view stacked_up;           ///< the first of these tensors; "": as the module has it
  std::string_view stacked_down;         ///< the second one
  std::string_view expert_gate = "gate_proj";
  std::string_view expert_up = "up_proj";
  std::string_view expert_down = "down_proj";
  std::string_view shared_experts = "shared_experts";
  bool are_shared_beside = false;   ///< named beside the layer of experts, else under it
  std::string_view shared_gate_up;  ///< one tensor for both of the shared experts'; "": as an MLP's
  std::string_view shared_down;     ///< "": as an MLP's
  std::string_view shared_expert_gate = "shared_expert_gate";

  std::string_view attention_pre_norm = "input_layernorm";
  std::string_view attention_post_norm;
  std::string_view mlp_pre_norm = "post_attention_layernorm";
  std::string_view mlp_post_norm;
  // The norms before attention and MLP where these are side by side with a norm each; "": as above.
  std::string_view attention_own_norm;
  std::string_view mlp_own_norm;

  // Experts beside an MLP, and inputs of layers.
  std::string_view dense_post_norm = "post_feedforward_layernorm_1";
  std::string_view moe_pre_norm = "pre_feedforward_layernorm_2";
  std::string_view moe_post_norm = "post_feedforward_layernorm_2";
  std::string_view side_router = "router";
  std::string_view input_gate = "per_layer_input_gate";
  std::string_view input_proj = "per_layer_projection";
  std::string_view input_post_norm = "post_per_layer_input_norm";
  std::string_view input_embedding = "embed_tokens_per_layer";  ///< beside `layers`, as is the rest
  std::string_view input_projection = "per_layer_model_projection";
  std::string_view input_norm = "per_layer_projection_norm";

  // What layers that predict further tokens have beside any layer's tensors.
  std::string_view next_token_layers = "mtp.layers";
  std::string_view embedding_norm = "enorm";
  std::string_view hidden_norm = "hnorm";
  std::string_view fusion = "eh_proj";
  std::string_view depth_norm = "final_layernorm";

  std::string_view mlp_of_experts() const { return moe.empty() ? mlp : moe; }
};

/// Llama's names, of families whose norms follow attention and MLP and do not precede them.
inline constexpr HfNames kPostNormNames{.attention_pre_norm = "",
                                        .attention_post_norm = "post_attention_layernorm",
                                        .mlp_pre_norm = "",
                                        .mlp_post_norm = "post_feedforward_layernorm"};

/// The shared decoder's key map with these names.
tensor::KeyMap make_key_map(const DecoderConfig& config, const HfNames& names);

}  // namespace automodel::models::decoder
