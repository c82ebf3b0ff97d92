#include "models/decoder/hf_names.h"
#include "models/mixtral/config.h"

namespace automodel::models::mixtral {

nn::ParallelPlan parallel_plan(const decoder::DecoderConfig& config) {
  return decoder::make_parallel_plan(config);
}

}  // namespace automodel::models::mixtral
