#include "models/decoder/hf_names.h"
#include "models/gemma2/config.h"

namespace automodel::models::gemma2 {

nn::ParallelPlan parallel_plan(const decoder::DecoderConfig& config) {
  return decoder::make_parallel_plan(config);
}

}  // namespace automodel::models::gemma2
