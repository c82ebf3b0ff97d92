#include "models/decoder/hf_names.h"
#include "models/olmo2/config.h"

namespace automodel::models::olmo2 {

nn::ParallelPlan parallel_plan(const decoder::DecoderConfig& config) {
  return decoder::make_parallel_plan(config);
}

}  // namespace automodel::models::olmo2
