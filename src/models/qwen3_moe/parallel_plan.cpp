#include "models/decoder/hf_names.h"
#include "models/qwen3_moe/config.h"

namespace automodel::models::qwen3_moe {

nn::ParallelPlan parallel_plan(const decoder::DecoderConfig& config) {
  return decoder::make_parallel_plan(config);
}

}  // namespace automodel::models::qwen3_moe
