#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace automodel::hub {

/// Where a model, dataset or tokenizer named in a recipe is on this machine.
struct Lookup {
  std::string folder;        ///< "" when it is not here
  bool is_hub_name = false;  ///< it looked like "org/name" and no such folder exists
};

/// A path to a folder as it is; otherwise the newest snapshot of a model of that name in the
/// Hugging Face cache (`cache_dir`, else HF_HUB_CACHE, HF_HOME/hub, ~/.cache/huggingface/hub), of
/// `revision`
/// ("main" when empty; a commit, branch or tag). Nothing is downloaded. Throws UserError for a
/// revision that leads out of the cache, InputError for a cache whose reference does.
Lookup find_model(std::string_view name_or_path, const std::optional<std::string>& cache_dir,
                  const std::optional<std::string>& revision);

/// The cache folder that applies.
std::string cache_folder(const std::optional<std::string>& cache_dir);

}  // namespace automodel::hub
