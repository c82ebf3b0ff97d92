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

/// On the CPU, or a device that is open (command_device). Gradients have memory unless
/// `has_gradients` is false. Throws UserError for a folder that holds no model.
LoadedModel load_model(const std::string& path, at::Device device = at::kCPU,
                       bool has_gradients = true);

/// The CPU or the first CUDA device, which is opened. Throws UnsupportedError where there is none.
at::Device command_device(bool is_on_device);

}  // namespace automodel::recipes
