#include "models/families/olmo_kind.h"

#include "core/text.h"
#include "models/decoder/moe_reader.h"

namespace automodel::models::decoder {

double read_clip_qkv(ConfigReader& reader) {
  if (!reader.has("clip_qkv")) return 0;
  const double bound = reader.number("clip_qkv", 1);
  if (bound > 0) return bound;
  reader.problem(cat("clip_qkv is ", bound, "; it must be above 0, or null for no bound"));
  return 0;
}

moe::MoEConfig read_olmo_experts(ConfigReader& reader, const DecoderConfig& config,
                                 const OlmoExperts& defaults) {
  moe::MoEConfig moe = read_experts(reader, config,
                                    {.num_experts_alias = "num_local_experts",
                                     .default_num_experts = defaults.num_experts,
                                     .inner_dim = "intermediate_size",
                                     .default_num_chosen = defaults.num_chosen});
  moe.softmax_before_topk = true;
  moe.norm_topk_prob = reader.flag("norm_topk_prob", false);
  moe.aux_loss_coeff = reader.number("router_aux_loss_coef", 0.01);
  return moe;
}

}  // namespace automodel::models::decoder
