#include "models/mixtral/config.h"

#include <vector>

#include "models/decoder/moe_reader.h"

namespace automodel::models::mixtral {

decoder::DecoderConfig read_config(decoder::ConfigReader& reader) {
  decoder::DecoderConfig config =
      decoder::read_common(reader, {.max_positions = 131072, .norm_eps = 1e-5});
  const int64_t window = reader.size("sliding_window", 0);
  decoder::set_windows(config, window, std::vector<bool>(config.layers.size(), true));
  decoder::add_rope(reader, config, {.theta = 1e6});

  moe::MoEConfig moe = decoder::read_experts(reader, config,
                                             {.num_experts = "num_local_experts",
                                              .num_experts_alias = "num_experts",
                                              .default_num_experts = 8,
                                              .inner_dim = "intermediate_size",
                                              .default_num_chosen = 2});
  moe.softmax_before_topk = true;
  moe.norm_topk_prob = true;
  if (reader.number("router_jitter_noise", 0) != 0) {
    reader.problem("router_jitter_noise is not built in this version; 0 turns it off");
  }
  config.moe = moe;
  decoder::use_experts_from(config, 0);
  return config;
}

}  // namespace automodel::models::mixtral
