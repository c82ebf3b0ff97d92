#include "hub/cache.h"

#include "core/error.h"
#include "core/file.h"
#include "core/text.h"
#include "hub/repository.h"
#include "hub/settings.h"

namespace automodel::hub {

namespace {

/// The snapshot of a branch, tag or commit in a repository's cache folder.
std::optional<std::string> find_snapshot(const std::string& cache, const Repository& repository) {
  check_repository(repository);
  const std::string folder = path_join(cache, cache_name(repository));
  std::string commit = repository.revision;
  const std::string reference = path_join(folder, "refs/" + commit);
  if (path_exists(reference)) {
    commit = std::string(trim(read_file(reference)));
    if (!is_inside(commit) || commit.find('/') != std::string::npos) {
      throw InputError(cat(reference, ": holds no commit: '", commit, "'"));
    }
  }
  const std::string snapshot = path_join(folder, "snapshots/" + commit);
  if (is_directory(snapshot)) return snapshot;
  return std::nullopt;
}

}  // namespace

std::string cache_folder(const std::optional<std::string>& cache_dir) {
  return cache_folder(process_environment(), cache_dir);
}

Lookup find_model(std::string_view name_or_path, const std::optional<std::string>& cache_dir,
                  const std::optional<std::string>& revision) {
  const std::string name(name_or_path);
  if (is_directory(name)) return {name, false};
  if (!looks_like_hub_name(name)) return {"", false};
  const Repository model{RepositoryKind::kModel, name, revision.value_or("main")};
  return {find_snapshot(cache_folder(cache_dir), model).value_or(""), true};
}

}  // namespace automodel::hub
