#include "models/decoder/hf_names.h"
#include "models/llama/config.h"

namespace automodel::models::llama {

nn::ParallelPlan parallel_plan(const decoder::DecoderConfig& config) {
  return decoder::make_parallel_plan(config);
}

}  // namespace automodel::models::llama
