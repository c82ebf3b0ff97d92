#pragma once

#include <ATen/ATen.h>

#include <map>
#include <string>

#include "checkpoint/hf_export.h"
#include "checkpoint/hf_folder.h"
#include "checkpoint/tensor_source.h"
#include "distributed/engine/data_parallel.h"
#include "models/catalog.h"
#include "models/causal_lm.h"
#include "recipes/build/base_weights.h"
#include "recipes/run/session_checkpoint.h"

namespace automodel::test {

/// Every byte of a folder's tensors, by name.
inline std::map<std::string, std::string> bytes_of(const std::string& path) {
  const auto folder = checkpoint::HfFolder::open(path);
  std::map<std::string, std::string> all;
  for (const std::string& name : folder.names()) {
    const checkpoint::HfFolder::Place place = *folder.find(name);
    const at::Tensor values =
        at::empty({place.entry->numel()}, at::TensorOptions().dtype(place.entry->dtype));
    folder.file(place.file).read_elements(*place.entry, 0, values);
    all[name].assign(static_cast<const char*>(values.data_ptr()), values.nbytes());
  }
  return all;
}

/// Loads a folder, and saves it.
inline void save_again(const std::string& from, const std::string& to) {
  const auto folder = checkpoint::HfFolder::open(from);
  const auto model = models::build_causal_lm(folder.config(), at::kFloat);
  distributed::DataParallel engine(*model, model->parallel_plan(), model->key_map(),
                                   comm::ProcessGroup::solo(), {});
  checkpoint::load_weights(folder, model->key_map(), engine.parameters(),
                           recipes::load_options(*model, folder));
  checkpoint::save_hf_folder(to, checkpoint::ShardSource(engine.parameters()),
                             {.config = model->hf_config(),
                              .original_folder = from,
                              .kept_prefixes = model->kept_prefixes()});
}

}  // namespace automodel::test
