#include "models/decoder/hf_names.h"
#include "models/gpt_oss/config.h"

namespace automodel::models::gpt_oss {

nn::ParallelPlan parallel_plan(const decoder::DecoderConfig& config) {
  return decoder::make_parallel_plan(config);
}

}  // namespace automodel::models::gpt_oss
