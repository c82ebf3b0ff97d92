#include "models/decoder/hf_names.h"
#include "models/qwen3/config.h"

namespace automodel::models::qwen3 {

nn::ParallelPlan parallel_plan(const decoder::DecoderConfig& config) {
  return decoder::make_parallel_plan(config);
}

}  // namespace automodel::models::qwen3
