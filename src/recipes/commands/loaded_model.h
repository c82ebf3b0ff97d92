#pragma once

#include <memory>
#include <string>

#include "distributed/engine/data_parallel.h"
#include "models/causal_lm.h"

namespace automodel::recipes {

/// A model with the weights of a Hugging Face folder, and perhaps an adapter, in float32.
struct LoadedModel {
  std::shared_ptr<models::CausalLM> model;
  std::unique_ptr<distributed::DataParallel> engine;
};

struct LoadModelOptions {
  at::Device device = at::kCPU;  ///< an open one (command_device)
  bool has_gradients = true;     ///< gradients have memory
  std::string adapter = {};      ///< folder in Hugging Face PEFT's format; "": none
};

/// Throws UserError for a folder that holds no model, and for an adapter that is not one of it.
LoadedModel load_model(const std::string& path, const LoadModelOptions& options = {});

/// The CPU or the first CUDA device, which is opened. Throws UnsupportedError where there is none.
at::Device command_device(bool is_on_device);

}  // namespace automodel::recipes
