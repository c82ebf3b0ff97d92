#include "hub/cache.h"

#include <cstdlib>

#include "core/error.h"
#include "core/file.h"
#include "core/text.h"

namespace automodel::hub {

namespace {

std::string environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

bool looks_like_hub_name(std::string_view name) {
  if (name.empty() || name.front() == '/' || name.front() == '.' || name.front() == '~') {
    return false;
  }
  size_t slashes = 0;
  for (const char c : name) slashes += c == '/';
  return slashes <= 1;
}

/// Whether a name, joined to a folder, stays inside it.
bool is_inside(std::string_view name) {
  for (const std::string& part : split(name, '/')) {
    if (part.empty() || part == "." || part == "..") return false;
  }
  return true;
}

/// The snapshot of a branch, tag or commit in a repository's cache folder.
std::optional<std::string> find_snapshot(const std::string& repository, std::string commit) {
  if (!is_inside(commit)) {
    throw UserError(cat("revision '", commit, "' is no branch, tag or commit: it must be a name ",
                        "without '..', such as main, refs/pr/1 or a commit's hash"));
  }
  const std::string reference = path_join(repository, "refs/" + commit);
  if (path_exists(reference)) {
    commit = std::string(trim(read_file(reference)));
    if (!is_inside(commit) || commit.find('/') != std::string::npos) {
      throw InputError(cat(reference, ": holds no commit: '", commit, "'"));
    }
  }
  const std::string snapshot = path_join(repository, "snapshots/" + commit);
  if (is_directory(snapshot)) return snapshot;
  return std::nullopt;
}

}  // namespace

std::string cache_folder(const std::optional<std::string>& cache_dir) {
  if (cache_dir) return *cache_dir;
  if (const std::string cache = environment("HF_HUB_CACHE"); !cache.empty()) return cache;
  if (const std::string home = environment("HF_HOME"); !home.empty()) return path_join(home, "hub");
  return path_join(environment("HOME"), ".cache/huggingface/hub");
}

Lookup find_model(std::string_view name_or_path, const std::optional<std::string>& cache_dir,
                  const std::optional<std::string>& revision) {
  const std::string name(name_or_path);
  if (is_directory(name)) return {name, false};
  if (!looks_like_hub_name(name)) return {"", false};
  const std::string model =
      path_join(cache_folder(cache_dir), "models--" + replace_all(name, "/", "--"));
  return {find_snapshot(model, revision.value_or("main")).value_or(""), true};
}

std::optional<std::string> find_dataset(std::string_view name,
                                        const std::optional<std::string>& cache_dir) {
  const std::string folder = "datasets--" + replace_all(std::string(name), "/", "--");
  return find_snapshot(path_join(cache_folder(cache_dir), folder), "main");
}

}  // namespace automodel::hub
