#include <string>

#include "core/text.h"
#include "models/decoder/family.h"
#include "models/decoder/moe_reader.h"
#include "models/families/hunyuan_kind.h"

namespace automodel::models::decoder {

namespace {

/// config.json with each list that has an entry a layer as the number that all its entries are.
Json with_numbers(ConfigReader& reader) {
  Json out = reader.json();
  for (const char* key : {"num_experts", "moe_topk", "num_experts_per_tok", "moe_intermediate_size",
                          "num_shared_expert"}) {
    const Json* list = reader.find(key);
    if (list == nullptr || !list->is_array() || list->size() == 0) continue;
    const Json::Array& entries = list->as_array();
    for (const Json& entry : entries) {
      if (entry == entries[0]) continue;
      reader.problem(cat(key, " differs between layers, which is not in this version"));
      break;
    }
    out[key] = Json(entries[0]);
  }
  return out;
}

DecoderConfig read_hunyuan_v1_moe(ConfigReader& reader) {
  const Json numbers = with_numbers(reader);
  ConfigReader common(numbers);
  DecoderConfig config = read_hunyuan_kind(common);
  moe::MoEConfig moe =
      read_experts(common, config,
                   {.num_experts_alias = "num_local_experts",
                    .default_num_experts = 1,
                    .inner_dim = "intermediate_size",
                    .num_chosen = either(common, "moe_topk", "num_experts_per_tok"),
                    .default_num_chosen = 1});
  // The chosen experts' share of a softmax over all is a softmax over the chosen.
  moe.softmax_before_topk = false;
  moe.is_router_float32 = true;
  moe.n_shared_experts = 1;
  if (common.size("num_shared_expert", 1) != 1) {
    common.problem("num_shared_expert other than 1 is not in this version");
  }
  if (common.size("moe_intermediate_size", moe.moe_inter_dim) != moe.moe_inter_dim) {
    common.problem(cat("moe_intermediate_size is not intermediate_size ", moe.moe_inter_dim,
                       ", which transformers takes for experts"));
  }
  if (common.count("moe_layer_num_skipped", 0) != 0) {
    common.problem("moe_layer_num_skipped above 0 is not in this version");
  }
  reader.add_problems_of(common);
  config.moe = moe;
  use_experts_from(config, 0);
  return config;
}

}  // namespace

/// HunYuan V1 with experts (Hunyuan-A13B): scores of the chosen by a softmax, a shared expert.
extern const Family kHunYuanMoe{
    .architecture = "HunYuanMoEV1ForCausalLM",
    .model_type = "hunyuan_v1_moe",
    .config_class = "HunYuanMoEV1Config",
    .layer_class = "HunYuanMoEV1DecoderLayer",
    .experts_class = "HunYuanMoEV1Experts",
    .classifier = "HunYuanMoEV1ForSequenceClassification",
    .read_config = read_hunyuan_v1_moe,
    .names = {.q_norm = "query_layernorm",
              .k_norm = "key_layernorm",
              .router = "gate.wg",
              .shared_experts = "shared_mlp"},
    .flops = gated_flops,
};

}  // namespace automodel::models::decoder
