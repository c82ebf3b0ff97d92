#pragma once

#include <string>
#include <string_view>

namespace automodel::hub {

enum class RepositoryKind { kModel, kDataset };

/// A model or data set on the hub, at a branch, tag or commit.
struct Repository {
  RepositoryKind kind = RepositoryKind::kModel;
  std::string id;  ///< "org/name" or "name"
  std::string revision = "main";

  bool operator==(const Repository&) const = default;
};

/// Whether a name could be one of the hub's: at most one slash, and no path.
bool looks_like_hub_name(std::string_view name);

/// What to say of a name that the hub did not give, which may have been meant as a path: "; there
/// is no models/Qwn on this machine either; did you mean 'models/Qwen'?"
std::string local_hint(const std::string& name);

/// Whether a name, joined to a folder, stays inside it.
bool is_inside(std::string_view name);

/// Whether this is a commit's full hash, which never means another commit.
bool is_commit(std::string_view revision);

/// Throws UserError for a revision or an id that leads out of the cache.
void check_repository(const Repository& repository);

/// The folder of the cache, "models--org--name".
std::string cache_name(const Repository& repository);

/// "model 'org/name'", for texts; with the revision when it is not main.
std::string describe(const Repository& repository);

}  // namespace automodel::hub
