#include "models/decoder/hf_names.h"
#include "models/deepseek_v3/config.h"

namespace automodel::models::deepseek_v3 {

nn::ParallelPlan parallel_plan(const decoder::DecoderConfig& config) {
  return decoder::make_parallel_plan(config);
}

}  // namespace automodel::models::deepseek_v3
