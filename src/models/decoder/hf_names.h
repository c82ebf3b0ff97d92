#pragma once

#include <string>

#include "models/decoder/decoder_config.h"
#include "nn/parallel_plan.h"
#include "tensor/key_map.h"

namespace automodel::models::decoder {

/// Names of the tensors in a family's Hugging Face checkpoints; the defaults are Llama's. An empty
/// name means that the family has no such tensor or has it under another entry.
struct HfNames {
  std::string embedding = "model.embed_tokens";
  std::string positions;
  std::string layers = "model.layers";
  std::string final_norm = "model.norm";
  std::string head = "lm_head";

  std::string attention = "self_attn";
  std::string qkv;  ///< one tensor for all three; q, k and v otherwise
  std::string q = "q_proj";
  std::string k = "k_proj";
  std::string v = "v_proj";
  std::string output = "o_proj";
  std::string mlp = "mlp";
  std::string gate_up;  ///< one tensor for both; gate and up otherwise
  std::string gate = "gate_proj";
  std::string up = "up_proj";
  std::string down = "down_proj";

  std::string router = "gate";  ///< of a mixture of experts, which stands under `mlp` too
  std::string experts = "experts";
  bool are_experts_stacked = false;  ///< one tensor for all experts, gate_up and down; else
                                     ///< one each, of these names
  std::string expert_gate = "gate_proj";
  std::string expert_up = "up_proj";
  std::string expert_down = "down_proj";
  std::string shared_experts = "shared_experts";
  std::string shared_expert_gate = "shared_expert_gate";

  std::string attention_pre_norm = "input_layernorm";
  std::string attention_post_norm;
  std::string mlp_pre_norm = "post_attention_layernorm";
  std::string mlp_post_norm;
};

/// The key map of the shared decoder under these names.
tensor::KeyMap make_key_map(const DecoderConfig& config, const HfNames& names);

/// The shared decoder's plan: blocks, embedding, final norm, head and the tensor-parallel rules
/// that hold for every family.
nn::ParallelPlan make_parallel_plan(const DecoderConfig& config);

}  // namespace automodel::models::decoder
