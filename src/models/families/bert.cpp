#include "models/families/encoder_kind.h"

namespace automodel::models::decoder {

namespace {

DecoderConfig read_bert(ConfigReader& reader) {
  return read_encoder_kind(reader, {.vocab_size = 30522});
}

constexpr HfNames bert_names() {
  HfNames names = kRobertaNames;
  names.embedding = "bert.embeddings.word_embeddings";
  names.positions = "bert.embeddings.position_embeddings";
  names.layers = "bert.encoder.layer";
  names.head = "cls";
  names.classes = "classifier";
  names.token_types = "bert.embeddings.token_type_embeddings";
  names.placed_norm = "bert.embeddings.LayerNorm";
  names.pooler = "bert.pooler.dense";
  return names;
}

}  // namespace

/// BERT: an encoder with norms behind sums, types of tokens, and a pooler of the first token.
extern const Family kBert{
    .architecture = "BertForSequenceClassification",
    .model_type = "bert",
    .config_class = "BertConfig",
    .layer_class = "BertLayer",
    .classifier = "BertForSequenceClassification",
    .bases = {"BertForMaskedLM", "BertForPreTraining", "BertModel",
              "BertForNextSentencePrediction"},
    .read_config = read_bert,
    .names = bert_names(),
    .unused_prefixes = {"bert.embeddings.position_ids"},
    .stand_ins = kEncoderStandIns,
    .flops = encoder_flops,
};

}  // namespace automodel::models::decoder
