#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace automodel::http {

/// How servers are asked.
struct HttpOptions {
  std::string bearer_token;  ///< sent to the first host only; "": none
  std::string user;          ///< with `password`, where there is no token; "": none
  std::string password;
  std::string ca_file;              ///< certificates that are trusted; "": the machine's
  bool checks_certificates = true;  ///< false: whoever answers is believed
  double connect_seconds = 10;
  double stall_seconds = 10;  ///< an answer without a byte for so long has failed
  double total_seconds = 0;   ///< a request that takes longer has failed; 0: however long it takes
  /// Names, in lower case, of fields that are kept from the first answer on the way that has them:
  /// servers behind a redirect do not say them.
  std::vector<std::string> kept_fields;
};

/// What a server said before the bytes. Names are in lower case.
struct HttpHead {
  int status = 0;
  std::map<std::string, std::string> fields;       ///< of the last answer
  std::map<std::string, std::string> kept_fields;  ///< those of HttpOptions::kept_fields

  /// A field's value; "" when there is none.
  std::string field(const std::string& name) const;
  std::string kept_field(const std::string& name) const;
};

struct HttpAnswer {
  HttpHead head;
  std::string body;       ///< of get() and post(); the beginning of an error's body
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

/// Requests over libcurl, one at a time, on connections that are kept. Nothing is thrown but what a
/// sink throws: an answer says what went wrong.
class HttpClient final {
 public:
  /// Ends a transfer when `is_cancelled` becomes true; may be null.
  explicit HttpClient(HttpOptions options, const std::atomic<bool>* is_cancelled = nullptr);
  ~HttpClient();
  HttpClient(const HttpClient&) = delete;
  HttpClient& operator=(const HttpClient&) = delete;

  /// A short answer; one of more than 256 MiB is a problem. Redirects are followed.
  HttpAnswer get(const std::string& url);

  /// Sends JSON; a short answer, as of get(). A redirect is not followed: its status is the answer.
  HttpAnswer post(const std::string& url, const std::string& json);

  /// A file from `offset` on. Redirects are followed. What the sink throws comes out here.
  HttpAnswer download(const std::string& url, uint64_t offset, HttpSink& sink);

  /// Waits between two requests; false as soon as `is_cancelled` is true.
  bool wait(double seconds) const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// A path with everything escaped but letters, digits and -_.~/ .
std::string escape_path(std::string_view path);

}  // namespace automodel::http
