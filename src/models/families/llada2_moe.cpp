#include "core/text.h"
#include "models/families/bailing_kind.h"

namespace automodel::models::decoder {

namespace {

DecoderConfig read_llada2_moe(ConfigReader& reader) {
  // Its class has other defaults than Ling's; its releases leave none of these keys to them.
  for (const char* key :
       {"head_dim", "num_experts", "moe_intermediate_size", "num_experts_per_tok", "n_group",
        "topk_group", "num_shared_experts", "first_k_dense_replace", "routed_scaling_factor",
        "rope_theta", "rms_norm_eps", "use_qk_norm", "use_bias", "max_position_embeddings",
        "attention_dropout", "embedding_dropout", "output_dropout"}) {
    if (!reader.json().contains(key)) reader.problem(cat(key, " is missing"));
  }
  DecoderConfig config = read_bailing_kind(reader);
  config.is_causal = false;
  return config;
}

}  // namespace

/// LLaDA 2: Ling 2.0 whose attention sees later tokens too, trained by masked diffusion.
extern const Family kLlada2{
    .architecture = "LLaDA2MoeModelLM",
    .model_type = "llada2_moe",
    .config_class = "LLaDA2MoeConfig",
    .layer_class = "LLaDA2MoeDecoderLayer",
    .experts_class = "LLaDA2MoeSparseMoeBlock",
    .read_config = read_llada2_moe,
    .names = kBailingNames,
    .flops = gated_flops,
};

}  // namespace automodel::models::decoder
