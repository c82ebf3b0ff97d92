#include "hub/repository.h"

#include <algorithm>

#include "core/error.h"
#include "core/file.h"
#include "core/text.h"

namespace automodel::hub {

bool looks_like_hub_name(std::string_view name) {
  if (name.empty() || name.front() == '/' || name.front() == '.' || name.front() == '~') {
    return false;
  }
  return std::count(name.begin(), name.end(), '/') <= 1;
}

std::string local_hint(const std::string& name) {
  return cat("; there is no ", name, " on this machine either", similar_path_hint(name));
}

bool is_inside(std::string_view name) {
  for (const std::string& part : split(name, '/')) {
    if (part.empty() || part == "." || part == "..") return false;
  }
  return true;
}

bool is_commit(std::string_view revision) {
  return revision.size() == 40 && std::all_of(revision.begin(), revision.end(), [](char c) {
           return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
         });
}

void check_repository(const Repository& repository) {
  if (!is_inside(repository.revision)) {
    throw UserError(cat("revision '", repository.revision,
                        "' is no branch, tag or commit: it must be a name ",
                        "without '..', such as main, refs/pr/1 or a commit's hash"));
  }
  if (!is_inside(repository.id) || !looks_like_hub_name(repository.id)) {
    throw UserError(cat("'", repository.id, "' is no name of the hub: use org/name"));
  }
}

std::string cache_name(const Repository& repository) {
  const char* kind = repository.kind == RepositoryKind::kModel ? "models--" : "datasets--";
  return kind + replace_all(repository.id, "/", "--");
}

std::string describe(const Repository& repository) {
  const char* kind = repository.kind == RepositoryKind::kModel ? "model" : "dataset";
  const std::string at = repository.revision == "main" ? "" : cat(" at ", repository.revision);
  return cat(kind, " '", repository.id, "'", at);
}

}  // namespace automodel::hub
