#pragma once

#include <functional>
#include <string>

#include "core/file.h"
#include "core/reporter.h"
#include "http/http_client.h"
#include "hub/hub_error.h"
#include "hub/listing.h"
#include "hub/settings.h"

namespace automodel::hub {

/// One file's way into the cache.
struct BlobRequest {
  HubFile file;
  std::string url;
  std::string path;  ///< where it goes; "PATH.incomplete" until it is whole
  std::string what;  ///< "model.safetensors of model 'org/name'"
};

/// Who hears of a download.
struct DownloadWatch {
  Reporter* reporter = nullptr;
  ByteCounter* bytes = nullptr;  ///< counts what is there: what has come, and what lay there
  ByteCounter* found = nullptr;  ///< counts those of them that lay there from before
};

/// Turns an answer that cannot be had by asking again into an error.
using Refusal = std::function<HubError(const http::HttpHead& head, const std::string& what)>;

/// Fetches a file into `request.path`, which appears by one rename once its size and checksum are
/// right and it is on the disk. Goes on with what an earlier try left in PATH.incomplete, asks
/// again after failures that may pass, and once more from the start when the checksum is wrong.
/// The caller holds the blob's lock. Throws HubError, InputError (a full disk).
void download_blob(http::HttpClient& client, const BlobRequest& request, const Settings& settings,
                   const DownloadWatch& watch, const Refusal& refusal);

}  // namespace automodel::hub
