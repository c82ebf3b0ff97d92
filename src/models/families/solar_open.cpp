
#include "models/decoder/family.h"
#include "models/decoder/moe_reader.h"

namespace automodel::models::decoder {

namespace {

DecoderConfig read_solar_open(ConfigReader& reader) {
  Json whole = reader.json();
  whole.erase("intermediate_size");  // no layer is dense
  whole.erase("first_k_dense_replace");
  ConfigReader own(whole);
  DecoderConfig config = read_common(
      own, {.head_dim = 128, .intermediate_size = 1, .max_positions = 131072, .norm_eps = 1e-5});
  config.has_qkv_bias = own.flag("attention_bias", false);
  add_rope(own, config, {.theta = 1e6});
  add_corrected_experts(own, config,
                        {.keys = {.num_experts = "n_routed_experts",
                                  .num_experts_alias = "num_local_experts",
                                  .default_num_experts = 128,
                                  .default_inner_dim = 1280,
                                  .default_num_chosen = 8},
                         .num_dense = 0});
  reader.add_problems_of(own);
  return config;
}

}  // namespace

/// Solar Open: Llama's attention, and GLM 4.5's experts in every layer.
extern const Family kSolarOpen{
    .architecture = "SolarOpenForCausalLM",
    .model_type = "solar_open",
    .config_class = "SolarOpenConfig",
    .layer_class = "SolarOpenDecoderLayer",
    .experts_class = "SolarOpenExperts",
    .read_config = read_solar_open,
    .flops = gated_flops,
};

}  // namespace automodel::models::decoder
