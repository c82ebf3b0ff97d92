#include "models/decoder/hf_names.h"
#include "models/phi3/config.h"

namespace automodel::models::phi3 {

nn::ParallelPlan parallel_plan(const decoder::DecoderConfig& config) {
  return decoder::make_parallel_plan(config);
}

}  // namespace automodel::models::phi3
