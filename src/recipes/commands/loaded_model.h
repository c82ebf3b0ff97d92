#pragma once

#include <memory>
#include <string>

#include "distributed/engine/data_parallel.h"
#include "models/causal_lm.h"

namespace automodel::recipes {

/// A model with the weights of a Hugging Face folder, in float32.
struct LoadedModel {
  std::shared_ptr<models::CausalLM> model;
  std::unique_ptr<distributed::DataParallel> engine;
};

/// On the CPU, or a device that is open (tensor::open_cuda). Throws UserError for a folder that
/// holds no model.
LoadedModel load_model(const std::string& path, at::Device device = at::kCPU);

}  // namespace automodel::recipes
