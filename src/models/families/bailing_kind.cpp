#include "models/families/bailing_kind.h"

#include "core/text.h"
#include "models/decoder/moe_reader.h"

namespace automodel::models::decoder {

namespace {

/// Some releases give the number of rotated dims of a head, which counts before their share.
void read_rotated_dims(ConfigReader& reader, DecoderConfig& config) {
  const int64_t rotated = reader.count("rotary_dim", 0);
  if (rotated == 0) return;
  if (rotated % 2 != 0 || rotated > config.head_dim) {
    reader.problem(
        cat("rotary_dim is ", rotated, "; it must be even and at most head_dim ", config.head_dim));
    return;
  }
  config.ropes.back().rotary_dim = rotated;
}

int64_t read_shared_experts(ConfigReader& reader) {
  const Json* stated = reader.json().find("num_shared_experts");
  const bool is_none = stated != nullptr && stated->is_null();
  return is_none ? 0 : reader.count("num_shared_experts", 1);
}

}  // namespace

DecoderConfig read_bailing_kind(ConfigReader& reader) {
  DecoderConfig config = read_common(reader, {.head_dim = 128, .max_positions = 32768});
  if (reader.flag("use_qk_norm", true)) config.qk_norm = QkNorm::kPerHead;
  config.has_qkv_bias = reader.flag("use_qkv_bias", false);
  config.has_attention_output_bias = reader.flag("use_bias", false);
  add_rope(reader, config, {.theta = 600000.0, .has_partial_default = true});
  read_rotated_dims(reader, config);
  add_corrected_experts(
      reader, config,
      {.keys = {.default_num_experts = 256, .default_inner_dim = 512, .default_num_chosen = 8},
       .groups = {.num_groups = 8, .num_limited = 4}});
  // The released code leaves the score of a single chosen expert as it is.
  if (config.moe->n_activated_experts == 1) config.moe->norm_topk_prob = false;
  config.moe->n_shared_experts = read_shared_experts(reader);
  if (reader.text("score_function", "sigmoid") != "sigmoid") {
    reader.problem("score_function other than sigmoid is not in this version");
  }
  if (!reader.flag("moe_router_enable_expert_bias", true)) {
    reader.problem("moe_router_enable_expert_bias false is not in this version");
  }
  for (const char* key : {"embedding_dropout", "output_dropout"}) {
    if (reader.probability(key, 0) != 0) reader.problem(cat(key, " is not in this version"));
  }
  read_next_token_layers(reader, config);
  return config;
}

}  // namespace automodel::models::decoder
