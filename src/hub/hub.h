#pragma once

#include <optional>
#include <string>
#include <vector>

#include "core/file.h"
#include "core/reporter.h"
#include "hub/hub_error.h"
#include "hub/listing.h"
#include "hub/repository.h"
#include "hub/settings.h"

namespace automodel::hub {

/// A commit of a repository, as far as it is in the cache.
struct Snapshot {
  std::string commit;
  std::string folder;          ///< of the cache; files appear in it as they are fetched
  std::vector<HubFile> files;  ///< all that the commit has, fetched or not
  /// Whether `files` is the hub's own listing. Else nobody was asked, and it is what lies there.
  bool is_listed = true;
};

/// A repository's snapshot as the cache has it; nullopt where it has none. Asks nobody. Throws
/// UserError, InputError for names and references that lead out of the cache.
std::optional<Snapshot> find_cached(const Repository& repository, const std::string& cache);

/// The hub behind the cache of this machine, which is shared with Python's huggingface_hub.
///
/// What is in the cache is not asked for: a branch stays the commit that it was when it was first
/// fetched, until its reference is removed or fetched anew (`hf download`), so a run that is
/// started again has the same model and data. Of several processes that want the same, one talks
/// to the hub and the others wait for its lock.
class Hub final {
 public:
  /// `bytes` counts what has been fetched; may be null. Both outlive the hub.
  Hub(Settings settings, Reporter& reporter, ByteCounter* bytes = nullptr);

  const Settings& settings() const { return settings_; }

  /// The commit that a repository's revision means, and its files. Asks the hub for what the cache
  /// does not say; where that fails or is switched off and the cache has a snapshot, takes that as
  /// it is. Throws HubError, UserError.
  Snapshot open(const Repository& repository);

  /// Fetches files of a snapshot that are not in the cache yet, several at once. Throws HubError
  /// for paths that the listing does not have.
  void fetch(const Repository& repository, const Snapshot& snapshot,
             const std::vector<std::string>& paths);

 private:
  Snapshot ask(const Repository& repository, const std::string& commit);
  std::string repository_folder(const Repository& repository) const;
  std::string lock_path(const Repository& repository, const std::string& name) const;

  Settings settings_;
  Reporter& reporter_;
  ByteCounter own_bytes_{0};
  ByteCounter& bytes_;
};

/// The paths that are not in a snapshot's folder.
std::vector<std::string> missing_files(const Snapshot& snapshot,
                                       const std::vector<std::string>& paths);

/// What of a model is wanted.
enum class ModelPart {
  kConfig,     ///< config.json
  kTokenizer,  ///< the tokenizer's files and chat templates
  kWeights,    ///< generation_config.json, and safetensors by the index where there is one
};

/// The files of a model that make up a part, of those that are listed. For kWeights without the
/// index in the folder yet, the index alone: fetch it, and ask again. Throws HubError for a model
/// without config.json or safetensors, InputError for an index that names files that the model does
/// not have.
std::vector<std::string> model_files(const Repository& repository, const Snapshot& snapshot,
                                     ModelPart part);

/// Fetches a part of a model.
void fetch_model_part(Hub& hub, const Repository& repository, const Snapshot& snapshot,
                      ModelPart part);

/// Opens a model and fetches parts of it, in this order.
Snapshot fetch_model(Hub& hub, const Repository& repository, const std::vector<ModelPart>& parts);

}  // namespace automodel::hub
