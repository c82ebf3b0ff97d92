#include "models/decoder/hf_names.h"
#include "models/gemma/config.h"

namespace automodel::models::gemma {

nn::ParallelPlan parallel_plan(const decoder::DecoderConfig& config) {
  return decoder::make_parallel_plan(config);
}

}  // namespace automodel::models::gemma
