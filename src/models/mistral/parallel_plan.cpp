#include "models/decoder/hf_names.h"
#include "models/mistral/config.h"

namespace automodel::models::mistral {

nn::ParallelPlan parallel_plan(const decoder::DecoderConfig& config) {
  return decoder::make_parallel_plan(config);
}

}  // namespace automodel::models::mistral
