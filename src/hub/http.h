#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>

#include "hub/settings.h"

namespace automodel::hub {

/// What a server said before the bytes. Names are in lower case.
struct HttpHead {
  int status = 0;
  std::map<std::string, std::string> fields;  ///< of the last answer
  /// The hub's own fields, of the first answer on the way that had them: X-Repo-Commit,
  /// X-Linked-Etag, X-Linked-Size, X-Error-Code, X-Error-Message. Servers behind a redirect do not
  /// say them.
  std::map<std::string, std::string> hub_fields;

  std::string field(const std::string& name) const;
  std::string hub_field(const std::string& name) const;
};

struct HttpAnswer {
  HttpHead head;
  std::string body;       ///< of get(); the beginning of an error's body
  std::string problem;    ///< why the answer is not whole; "" when it is
  bool is_final = false;  ///< with a problem: trying again cannot help (a URL, a certificate)
};

/// Takes a file's bytes.
class HttpSink {
 public:
  virtual ~HttpSink() = default;
  /// Before the first byte of a 200 or 206. What it returns, other than "", ends the transfer.
  virtual std::string begin(const HttpHead& head) = 0;
  virtual void write(std::string_view bytes) = 0;
};

/// Requests over libcurl, one at a time, on connections that are kept. Redirects are followed; the
/// token is sent to the first host only.
class HttpClient final {
 public:
  /// Ends a transfer when `is_cancelled` becomes true; may be null.
  explicit HttpClient(const Settings& settings, const std::atomic<bool>* is_cancelled = nullptr);
  ~HttpClient();
  HttpClient(const HttpClient&) = delete;
  HttpClient& operator=(const HttpClient&) = delete;

  /// A short answer; one of more than 256 MiB is a problem.
  HttpAnswer get(const std::string& url);

  /// A file from `offset` on. What the sink throws comes out here.
  HttpAnswer download(const std::string& url, uint64_t offset, HttpSink& sink);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// A path with everything escaped but letters, digits and -_.~/ .
std::string escape_path(std::string_view path);

}  // namespace automodel::hub
