#include "checkpoint/state_files.h"

#include "core/error.h"
#include "core/file.h"

namespace automodel::checkpoint {

std::string step_scheduler_path(std::string_view checkpoint) {
  return path_join(checkpoint, "step_scheduler.json");
}

std::string rng_path(std::string_view checkpoint, int global_rank) {
  return path_join(checkpoint, cat("rng/rng_global_rank_", global_rank, ".json"));
}

std::string dataloader_path(std::string_view checkpoint, int dp_rank) {
  return path_join(checkpoint, cat("dataloader/dataloader_dp_rank_", dp_rank, ".json"));
}

std::string optimizer_path(std::string_view checkpoint) {
  return path_join(checkpoint, "optim/optimizer.json");
}

std::string losses_path(std::string_view checkpoint) {
  return path_join(checkpoint, "losses.json");
}

std::string signature_path(std::string_view checkpoint) {
  return path_join(checkpoint, "signature.json");
}

std::string recipe_path(std::string_view checkpoint) {
  return path_join(checkpoint, "config.yaml");
}

void write_state(const std::string& path, const Json& state) {
  create_directories(parent_path(path));
  write_file_atomic(path, state.dump(2) + "\n");
}

Json read_state(const std::string& path) {
  if (!path_exists(path)) throw InputError(cat("checkpoint file ", path, " is missing"));
  return Json::parse_file(path);
}

}  // namespace automodel::checkpoint
