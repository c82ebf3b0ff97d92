#include "models/families/encoder_kind.h"

namespace automodel::models::decoder {

/// XLM-RoBERTa: RoBERTa with a vocabulary of a hundred languages.
extern const Family kXlmRoberta{
    .architecture = "XLMRobertaForSequenceClassification",
    .model_type = "xlm-roberta",
    .module = "xlm_roberta",
    .config_class = "XLMRobertaConfig",
    .layer_class = "XLMRobertaLayer",
    .classifier = "XLMRobertaForSequenceClassification",
    .bases = {"XLMRobertaForMaskedLM", "XLMRobertaModel"},
    .read_config = read_roberta_kind,
    .names = kRobertaNames,
    .unused_prefixes = {"roberta.pooler.", "roberta.embeddings.position_ids"},
    .stand_ins = kEncoderStandIns,
    .flops = encoder_flops,
};

}  // namespace automodel::models::decoder
