#pragma once

#include "models/decoder/config_reader.h"
#include "models/decoder/family.h"

namespace automodel::models::decoder {

/// Reads Ling 2.0's config.json, and LLaDA 2's, which has the same keys.
DecoderConfig read_bailing_kind(ConfigReader& reader);

/// Names of their tensors.
inline constexpr HfNames kBailingNames{.embedding = "model.word_embeddings",
                                       .attention = "attention",
                                       .qkv = "query_key_value",
                                       .output = "dense",
                                       .q_norm = "query_layernorm",
                                       .k_norm = "key_layernorm",
                                       .correction = "gate.expert_bias"};

/// What recipes may call modules of theirs.
inline constexpr std::array<ModuleAlias, 4> kBailingAliases = {
    {{".attention.query_key_value", ".self_attn.q_proj"},
     {".attention.query_key_value", ".self_attn.k_proj"},
     {".attention.query_key_value", ".self_attn.v_proj"},
     {".attention.dense", ".self_attn.o_proj"}}};

}  // namespace automodel::models::decoder
