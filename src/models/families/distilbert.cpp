#include "models/families/encoder_kind.h"

namespace automodel::models::decoder {

namespace {

DecoderConfig read_distilbert(ConfigReader& reader) {
  DecoderConfig config =
      read_encoder_kind(reader, {.vocab_size = 30522,
                                 .has_pooler = false,
                                 .num_layers = 6,
                                 .keys = {.hidden = "dim",
                                          .intermediate = "hidden_dim",
                                          .layers = "n_layers",
                                          .heads = "n_heads",
                                          .activation = "activation",
                                          .dropout = "dropout",
                                          .attention_dropout = "attention_dropout"}});
  config.norm_eps = 1e-12;  // whatever config.json says
  config.num_token_types = 0;
  config.attention_branch_dropout = 0;
  config.pooler = {.is_of_head = true,
                   .activation = kernels::Activation::kRelu,
                   .dropout = reader.probability("seq_classif_dropout", 0.2)};
  if (reader.flag("sinusoidal_pos_embds", false)) {
    reader.problem("sinusoidal_pos_embds true is not built in this version");
  }
  return config;
}

constexpr HfNames distilbert_names() {
  HfNames names = kRobertaNames;
  names.embedding = "distilbert.embeddings.word_embeddings";
  names.positions = "distilbert.embeddings.position_embeddings";
  names.layers = "distilbert.transformer.layer";
  names.head = "vocab_projector";
  names.classes = "classifier";
  names.token_types = "";
  names.placed_norm = "distilbert.embeddings.LayerNorm";
  names.pooler = "pre_classifier";
  names.has_pooler_beside_classes = true;
  names.q = "q_lin";
  names.k = "k_lin";
  names.v = "v_lin";
  names.output = "out_lin";
  names.mlp = "ffn";
  names.up = "lin1";
  names.down = "lin2";
  names.attention_post_norm = "sa_layer_norm";
  names.mlp_post_norm = "output_layer_norm";
  return names;
}

}  // namespace

/// DistilBERT: BERT without types of tokens and pooler; a layer of the head's own reads the first
/// token, with ReLU behind it.
extern const Family kDistilBert{
    .architecture = "DistilBertForSequenceClassification",
    .model_type = "distilbert",
    .config_class = "DistilBertConfig",
    .layer_class = "TransformerBlock",
    .classifier = "DistilBertForSequenceClassification",
    .bases = {"DistilBertForMaskedLM", "DistilBertModel"},
    .read_config = read_distilbert,
    .names = distilbert_names(),
    .unused_prefixes = {"vocab_transform.", "vocab_layer_norm.",
                        "distilbert.embeddings.position_ids"},
    .flops = encoder_flops,
};

}  // namespace automodel::models::decoder
