#include "models/families/encoder_kind.h"

namespace automodel::models::decoder {

/// RoBERTa: BERT whose positions begin behind the pad token's id, with a head of two layers.
extern const Family kRoberta{
    .architecture = "RobertaForSequenceClassification",
    .model_type = "roberta",
    .config_class = "RobertaConfig",
    .layer_class = "RobertaLayer",
    .classifier = "RobertaForSequenceClassification",
    .bases = {"RobertaForMaskedLM", "RobertaModel"},
    .read_config = read_roberta_kind,
    .names = kRobertaNames,
    .unused_prefixes = {"roberta.pooler.", "roberta.embeddings.position_ids"},
    .stand_ins = kEncoderStandIns,
    .flops = encoder_flops,
};

}  // namespace automodel::models::decoder
