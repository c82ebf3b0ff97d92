#pragma once

#include <cstdint>
#include <string_view>

#include "models/decoder/family.h"

namespace automodel::models::decoder {

/// The keys of config.json by which a family of the BERT kind has what all of it have.
struct EncoderKeys {
  std::string_view hidden = "hidden_size";
  std::string_view intermediate = "intermediate_size";
  std::string_view layers = "num_hidden_layers";
  std::string_view heads = "num_attention_heads";
  std::string_view activation = "hidden_act";
  std::string_view dropout = "hidden_dropout_prob";
  std::string_view attention_dropout = "attention_probs_dropout_prob";
};

/// What encoders of the BERT kind do not share.
struct EncoderKind {
  int64_t vocab_size = 0;        ///< of transformers' configuration without the key
  int64_t pad_token_id = 0;      ///< likewise
  bool counts_from_pad = false;  ///< the first token's position is the pad token's id plus 1
  bool has_pooler = true;        ///< the layer before the head is the encoder's, not the head's
  int64_t num_layers = 12;       ///< of transformers' configuration without the key
  EncoderKeys keys = {};
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
