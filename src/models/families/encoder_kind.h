#pragma once

#include <cstdint>

#include "models/decoder/family.h"

namespace automodel::models::decoder {

/// What BERT and RoBERTa do not share.
struct EncoderKind {
  int64_t vocab_size = 0;        ///< of transformers' configuration without the key
  int64_t pad_token_id = 0;      ///< likewise
  bool counts_from_pad = false;  ///< the first token's position is the pad token's id plus 1
  bool has_pooler = true;        ///< the layer before the head is the encoder's, not the head's
};

/// Reads a config.json of the BERT kind.
DecoderConfig read_encoder_kind(ConfigReader& reader, const EncoderKind& kind);

/// RoBERTa's, and those of models that differ from it in their vocabulary alone.
DecoderConfig read_roberta_kind(ConfigReader& reader);

/// Tensor names of the BERT kind behind those of the encoder's own module.
inline constexpr HfNames kRobertaNames{.embedding = "roberta.embeddings.word_embeddings",
                                       .positions = "roberta.embeddings.position_embeddings",
                                       .layers = "roberta.encoder.layer",
                                       .head = "lm_head",
                                       .classes = "classifier.out_proj",
                                       .token_types = "roberta.embeddings.token_type_embeddings",
                                       .placed_norm = "roberta.embeddings.LayerNorm",
                                       .pooler = "classifier.dense",
                                       .attention = "attention",
                                       .q = "self.query",
                                       .k = "self.key",
                                       .v = "self.value",
                                       .output = "output.dense",
                                       .mlp = "",
                                       .up = "intermediate.dense",
                                       .down = "output.dense",
                                       .attention_pre_norm = "",
                                       .attention_post_norm = "attention.output.LayerNorm",
                                       .mlp_pre_norm = "",
                                       .mlp_post_norm = "output.LayerNorm"};

/// Names of norms in files that were converted from TensorFlow.
inline constexpr std::array<StandIn, 5> kEncoderStandIns = {
    {{"LayerNorm.weight", "LayerNorm.gamma"}, {"LayerNorm.bias", "LayerNorm.beta"}}};

/// Upstream's formula for BERT: products and attention in both directions, forward and backward.
double encoder_flops(const DecoderConfig& config, double num_sequences, double length);

}  // namespace automodel::models::decoder
