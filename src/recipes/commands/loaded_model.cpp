#include "recipes/commands/loaded_model.h"

#include "checkpoint/hf_folder.h"
#include "comm/groups/process_group.h"
#include "core/reporter.h"
#include "models/catalog.h"
#include "recipes/build/base_weights.h"
#include "recipes/run/rank_device.h"
#include "tensor/cuda_runtime.h"

namespace automodel::recipes {

LoadedModel load_model(const std::string& path, at::Device device, bool has_gradients) {
  const auto folder = checkpoint::HfFolder::open(path);
  LoadedModel loaded;
  loaded.model = models::build_causal_lm(folder.config(), at::kFloat);
  loaded.engine = std::make_unique<distributed::DataParallel>(
      *loaded.model, loaded.model->parallel_plan(), loaded.model->key_map(),
      comm::ProcessGroup::solo(), distributed::DataParallelOptions{.device = device});
  // Commands read gradients whenever they like.
  if (has_gradients) loaded.engine->keep_gradients();
  checkpoint::load_weights(folder, loaded.model->key_map(), loaded.engine->parameters(),
                           load_options(*loaded.model, folder));
  return loaded;
}

at::Device command_device(bool is_on_device) {
  SilentReporter nobody;
  const DeviceRequest request{.is_wanted = is_on_device, .is_demanded = is_on_device};
  return agree_on_device(request, comm::ProcessGroup::solo(), tensor::open_cuda, nobody).device;
}

}  // namespace automodel::recipes
