#include "core/text.h"
#include "models/diffusion_gemma/config.h"

namespace automodel::models::diffusion_gemma {

nn::ParallelPlan parallel_plan(const decoder::DecoderConfig& text) {
  nn::ParallelPlan plan;
  for (int64_t i = 0; i < text.num_layers(); ++i) {
    plan.blocks.push_back(cat("model.layers.", i));
    plan.expert_modules.push_back(plan.blocks.back() + ".moe.experts");
  }
  plan.embedding = "model.embed_tokens";
  plan.final_norm = "model.norm";
  plan.no_tp_reasons = {"DiffusionGemma is spread by sharding and by ep_size only"};
  return plan;
}

}  // namespace automodel::models::diffusion_gemma
