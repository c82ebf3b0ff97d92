#pragma once

#include <functional>
#include <string>
#include <vector>

#include "core/reporter.h"
#include "http/http_client.h"
#include "hub/hub_error.h"
#include "hub/listing.h"
#include "hub/repository.h"
#include "hub/settings.h"

namespace automodel::hub {

/// The error of an answer that would be the same if it were asked for again. `what`: "model
/// 'org/name'", or that and a file of it.
HubError refused(const http::HttpHead& head, const Repository& repository, const std::string& what,
                 const Settings& settings);

/// Whether an HTTP status tells of trouble that may pass, so that the request is sent again: 408,
/// 429, 5xx.
bool is_passing(int status);

/// Counts the attempts of one request, and waits between them.
class Attempts final {
 public:
  Attempts(const http::HttpClient& client, const Settings& settings, Reporter& reporter,
           std::string what)
      : client_(client), settings_(settings), reporter_(reporter), what_(std::move(what)) {}

  /// After an attempt that failed for a reason that may pass: waits as the server asks
  /// (Retry-After), else longer each time. Throws HubError kUnreachable after the last, and when
  /// the client is cancelled.
  void fail(const http::HttpAnswer& answer);

  /// Called when bytes have come: the next attempt counts as the first again.
  void reset() { num_failed_ = 0; }

 private:
  const http::HttpClient& client_;
  const Settings& settings_;
  Reporter& reporter_;
  std::string what_;
  int num_failed_ = 0;
};

/// The commit that a branch, a tag or a commit's short hash stands for. Throws HubError.
std::string ask_commit(http::HttpClient& client, const Repository& repository,
                       const Settings& settings, Reporter& reporter);

/// All files of a commit, page by page. Throws HubError.
std::vector<HubFile> ask_listing(http::HttpClient& client, const Repository& repository,
                                 const std::string& commit, const Settings& settings,
                                 Reporter& reporter);

/// Where a file of a commit is.
std::string file_url(const Repository& repository, const std::string& commit,
                     const std::string& path, const Settings& settings);

}  // namespace automodel::hub
