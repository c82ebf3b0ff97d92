#include "recipes/commands/loaded_model.h"

#include <optional>

#include "checkpoint/hf_folder.h"
#include "comm/groups/process_group.h"
#include "core/reporter.h"
#include "models/catalog.h"
#include "peft/adapter_folder.h"
#include "peft/adapter_keys.h"
#include "peft/apply_lora.h"
#include "recipes/build/base_weights.h"
#include "recipes/run/rank_device.h"
#include "tensor/cuda_runtime.h"

namespace automodel::recipes {

LoadedModel load_model(const std::string& path, const LoadModelOptions& options) {
  const auto folder = checkpoint::HfFolder::open(path);
  LoadedModel loaded;
  loaded.model = models::build_causal_lm(folder.config(), at::kFloat);
  std::optional<peft::PeftConfig> adapters;
  if (!options.adapter.empty()) {
    adapters = peft::config_of_adapter(options.adapter, *loaded.model);
    peft::apply_lora(*loaded.model, *adapters, at::kFloat);
  }
  loaded.engine = std::make_unique<distributed::DataParallel>(
      *loaded.model, loaded.model->parallel_plan(), loaded.model->key_map(),
      comm::ProcessGroup::solo(), distributed::DataParallelOptions{.device = options.device});
  // Commands read gradients whenever they like.
  if (options.has_gradients) loaded.engine->keep_gradients();
  checkpoint::load_weights(folder, peft::base_keys(*loaded.model), loaded.engine->parameters(),
                           load_options(*loaded.model, folder));
  if (adapters) {
    peft::load_adapter(options.adapter, *adapters, *loaded.model, loaded.engine->parameters());
  }
  return loaded;
}

at::Device command_device(bool is_on_device) {
  SilentReporter nobody;
  const DeviceRequest request{.is_wanted = is_on_device, .is_demanded = is_on_device};
  return agree_on_device(request, comm::ProcessGroup::solo(), tensor::open_cuda, nobody).device;
}

}  // namespace automodel::recipes
