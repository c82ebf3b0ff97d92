#include "models/families/encoder_kind.h"

namespace automodel::models::decoder {

/// CamemBERT: RoBERTa with a vocabulary of French.
extern const Family kCamembert{
    .architecture = "CamembertForSequenceClassification",
    .model_type = "camembert",
    .config_class = "CamembertConfig",
    .layer_class = "CamembertLayer",
    .classifier = "CamembertForSequenceClassification",
    .bases = {"CamembertForMaskedLM", "CamembertModel"},
    .read_config = read_roberta_kind,
    .names = kRobertaNames,
    .unused_prefixes = {"roberta.pooler.", "roberta.embeddings.position_ids"},
    .stand_ins = kEncoderStandIns,
    .flops = encoder_flops,
};

}  // namespace automodel::models::decoder
