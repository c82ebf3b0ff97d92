#include "recipes/commands/loaded_model.h"

#include "checkpoint/hf_folder.h"
#include "models/catalog.h"
#include "recipes/build/base_weights.h"

namespace automodel::recipes {

LoadedModel load_model(const std::string& path, at::Device device) {
  const auto folder = checkpoint::HfFolder::open(path);
  LoadedModel loaded;
  loaded.model = models::build_causal_lm(folder.config(), at::kFloat);
  loaded.engine = std::make_unique<distributed::DataParallel>(
      *loaded.model, loaded.model->parallel_plan(), loaded.model->key_map(),
      comm::ProcessGroup::solo(), distributed::DataParallelOptions{.device = device});
  loaded.engine->keep_gradients();  // these commands read gradients whenever they like
  checkpoint::load_weights(folder, loaded.model->key_map(), loaded.engine->parameters(),
                           load_options(*loaded.model, folder));
  return loaded;
}

}  // namespace automodel::recipes
