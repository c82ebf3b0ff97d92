#include "hub/hub.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "core/error.h"
#include "core/file_lock.h"
#include "core/text.h"
#include "hub/download_files.h"
#include "hub/hub_api.h"

namespace automodel::hub {

namespace {

constexpr const char* kCacheTag =
    "Signature: 8a477f597d28d172789f06886806bc55\n"
    "# This file is a cache directory tag of the Hugging Face cache.\n";

std::string listing_path(const std::string& folder, const std::string& commit) {
  return path_join(folder, cat("trees/", commit, ".json"));
}

void collect(const std::string& folder, const std::string& inside, std::vector<HubFile>& files) {
  for (const std::string& name : list_directory(path_join(folder, inside))) {
    const std::string path = inside.empty() ? name : path_join(inside, name);
    const std::string whole = path_join(folder, path);
    if (is_directory(whole)) {
      collect(folder, path, files);
    } else if (path_exists(whole)) {
      files.push_back({.path = path,
                       .num_bytes = file_size(whole),
                       .git_sha1 = "",
                       .sha256 = "",
                       .xet_hash = ""});
    }
  }
}

/// The reference's commit; "" where there is none.
std::string read_reference(const std::string& folder, const std::string& revision) {
  if (is_commit(revision)) return revision;
  const std::string path = path_join(folder, "refs/" + revision);
  if (!path_exists(path) || is_directory(path)) {
    // A commit's name as others may have put it there.
    return is_directory(path_join(folder, "snapshots/" + revision)) ? revision : "";
  }
  std::string commit(trim(read_file(path)));
  if (!is_inside(commit) || commit.find('/') != std::string::npos) {
    throw InputError(cat(path, ": holds no commit: '", commit, "'"));
  }
  return commit;
}

/// A snapshot of what is known, without a commit where nothing is.
Snapshot read_cached(const Repository& repository, const std::string& cache) {
  const std::string folder = path_join(cache, cache_name(repository));
  Snapshot snapshot;
  snapshot.commit = read_reference(folder, repository.revision);
  if (snapshot.commit.empty()) return snapshot;
  snapshot.folder = path_join(folder, "snapshots/" + snapshot.commit);
  if (auto files = read_listing(listing_path(folder, snapshot.commit))) {
    snapshot.files = std::move(*files);
    return snapshot;
  }
  snapshot.is_listed = false;
  if (is_directory(snapshot.folder)) collect(snapshot.folder, "", snapshot.files);
  return snapshot;
}

}  // namespace

std::optional<Snapshot> find_cached(const Repository& repository, const std::string& cache) {
  check_repository(repository);
  Snapshot snapshot = read_cached(repository, cache);
  if (snapshot.commit.empty() || (!snapshot.is_listed && snapshot.files.empty())) {
    return std::nullopt;
  }
  return snapshot;
}

Hub::Hub(Settings settings, Reporter& reporter, ByteCounter* bytes)
    : settings_(std::move(settings)),
      reporter_(reporter),
      bytes_(bytes == nullptr ? own_bytes_ : *bytes) {}

std::string Hub::repository_folder(const Repository& repository) const {
  return path_join(settings_.cache, cache_name(repository));
}

std::string Hub::lock_path(const Repository& repository, const std::string& name) const {
  return path_join(settings_.cache, cat(".locks/", cache_name(repository), "/", name, ".lock"));
}

Snapshot Hub::ask(const Repository& repository, const std::string& commit) {
  http::HttpClient client(http_options(settings_));
  Snapshot snapshot;
  snapshot.commit = commit.empty() ? ask_commit(client, repository, settings_, reporter_) : commit;
  snapshot.files = ask_listing(client, repository, snapshot.commit, settings_, reporter_);
  const std::string folder = repository_folder(repository);
  snapshot.folder = path_join(folder, "snapshots/" + snapshot.commit);
  create_directories(path_join(folder, "trees"));
  const std::string tag = path_join(settings_.cache, "CACHEDIR.TAG");
  if (!path_exists(tag)) write_file_atomic(tag, kCacheTag);
  write_file_atomic(listing_path(folder, snapshot.commit), format_listing(snapshot.files));
  if (snapshot.commit != repository.revision) {
    const std::string reference = path_join(folder, "refs/" + repository.revision);
    create_directories(parent_path(reference));
    write_file_atomic(reference, snapshot.commit);
  }
  return snapshot;
}

Snapshot Hub::open(const Repository& repository) {
  check_repository(repository);
  Snapshot cached = read_cached(repository, settings_.cache);
  if (!cached.commit.empty() && cached.is_listed) return cached;
  const bool has_files = !cached.files.empty();
  if (settings_.is_offline) {
    if (has_files) return cached;
    throw HubError(HubFailure::kUnreachable,
                   cat(describe(repository), " is not in the cache ", settings_.cache,
                       ", and HF_HUB_OFFLINE forbids to ask for it"));
  }
  // A snapshot that is no commit's name cannot be asked for.
  if (has_files && !is_commit(cached.commit)) return cached;
  try {
    const FileLock lock(lock_path(repository, "listing"), [] {});
    cached = read_cached(repository, settings_.cache);
    if (!cached.commit.empty() && cached.is_listed) return cached;
    return ask(repository, cached.commit);
  } catch (const UserError& error) {
    // A cache that cannot be written to, or a hub that does not answer, or not to this token.
    if (!has_files) throw;
    reporter_.warning(
        cat(error.what(), "; taking ", describe(repository), " as it is in the cache"));
    return cached;
  }
}

std::vector<std::string> missing_files(const Snapshot& snapshot,
                                       const std::vector<std::string>& paths) {
  std::vector<std::string> missing;
  for (const std::string& path : paths) {
    if (!path_exists(path_join(snapshot.folder, path))) missing.push_back(path);
  }
  return missing;
}

void Hub::fetch(const Repository& repository, const Snapshot& snapshot,
                const std::vector<std::string>& paths) {
  const std::vector<std::string> missing = missing_files(snapshot, paths);
  if (missing.empty()) return;
  if (settings_.is_offline || !snapshot.is_listed) {
    const char* reason =
        settings_.is_offline ? "HF_HUB_OFFLINE forbids to fetch" : "the hub could not be asked for";
    const std::string others = missing.size() == 1 ? "it" : cat("these ", missing.size(), " files");
    throw HubError(HubFailure::kUnreachable,
                   cat(missing.front(), " of ", describe(repository), " is not in the cache (",
                       snapshot.folder, "), and ", reason, " ", others));
  }
  std::vector<HubFile> files;
  for (const std::string& path : missing) {
    const auto found = std::find_if(snapshot.files.begin(), snapshot.files.end(),
                                    [&](const HubFile& file) { return file.path == path; });
    if (found == snapshot.files.end()) {
      throw HubError(HubFailure::kAbsent,
                     cat(describe(repository), " (", snapshot.commit, ") has no file ", path));
    }
    files.push_back(*found);
  }
  download_files({.repository = repository,
                  .commit = snapshot.commit,
                  .folder = repository_folder(repository),
                  .locks = parent_path(lock_path(repository, "x")),
                  .files = files},
                 settings_, reporter_, bytes_);
}

}  // namespace automodel::hub
