#include "models/decoder/hf_names.h"
#include "models/granite/config.h"

namespace automodel::models::granite {

nn::ParallelPlan parallel_plan(const decoder::DecoderConfig& config) {
  return decoder::make_parallel_plan(config);
}

}  // namespace automodel::models::granite
