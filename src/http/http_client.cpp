#include "http/http_client.h"

#include <curl/curl.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <exception>
#include <thread>
#include <utility>

#include "core/clock.h"
#include "core/error.h"
#include "core/file.h"
#include "core/text.h"

namespace automodel::http {

namespace {

constexpr size_t kLongestBody = size_t{256} << 20;
constexpr size_t kLongestErrorBody = size_t{64} << 10;

std::string lookup(const std::map<std::string, std::string>& fields, const std::string& name) {
  const auto found = fields.find(name);
  return found == fields.end() ? "" : found->second;
}

/// Failures that the same request meets again.
bool is_final(CURLcode code) {
  return code == CURLE_UNSUPPORTED_PROTOCOL || code == CURLE_URL_MALFORMAT ||
         code == CURLE_PEER_FAILED_VERIFICATION || code == CURLE_SSL_CACERT_BADFILE ||
         code == CURLE_TOO_MANY_REDIRECTS || code == CURLE_ABORTED_BY_CALLBACK;
}

/// Where other distributions than the one that libcurl was built on keep their certificates.
const char* usual_ca_file() {
  for (const char* file : {"/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt",
                           "/etc/ssl/ca-bundle.pem", "/etc/ssl/cert.pem"}) {
    if (path_exists(file)) return file;
  }
  return nullptr;
}

/// A request's fields.
class HeaderList final {
 public:
  explicit HeaderList(const char* line) : list_(curl_slist_append(nullptr, line)) {
    AM_CHECK(list_ != nullptr);
  }
  ~HeaderList() { curl_slist_free_all(list_); }
  HeaderList(const HeaderList&) = delete;
  HeaderList& operator=(const HeaderList&) = delete;

  curl_slist* get() const { return list_; }

 private:
  curl_slist* list_;
};

}  // namespace

std::string HttpHead::field(const std::string& name) const {
  return lookup(fields, name);
}

std::string HttpHead::kept_field(const std::string& name) const {
  return lookup(kept_fields, name);
}

struct HttpClient::State {
  State(HttpOptions given, const std::atomic<bool>* cancelled)
      : options(std::move(given)), is_cancelled(cancelled), curl(curl_easy_init()) {
    AM_CHECK(curl != nullptr);
  }
  ~State() { curl_easy_cleanup(curl); }
  State(const State&) = delete;
  State& operator=(const State&) = delete;

  template <typename Value>
  void set(CURLoption option, Value value) {
    AM_CHECK(curl_easy_setopt(curl, option, value) == CURLE_OK, "curl option ",
             static_cast<int>(option));
  }

  void set_options(const std::string& url);
  /// Sets what every request has.
  void begin(const std::string& url, HttpSink* to);
  HttpAnswer perform();
  size_t take_header(std::string_view line);
  size_t take_bytes(std::string_view bytes);

  static size_t on_header(char* data, size_t size, size_t count, void* self) {
    return static_cast<State*>(self)->take_header({data, size * count});
  }
  static size_t on_bytes(char* data, size_t size, size_t count, void* self) {
    return static_cast<State*>(self)->take_bytes({data, size * count});
  }
  static int on_progress(void* self, curl_off_t, curl_off_t, curl_off_t, curl_off_t) {
    const std::atomic<bool>* flag = static_cast<State*>(self)->is_cancelled;
    return flag != nullptr && flag->load() ? 1 : 0;
  }

  HttpOptions options;
  const std::atomic<bool>* is_cancelled;
  CURL* curl;
  // of the request under way
  HttpSink* sink = nullptr;
  HttpAnswer answer;
  bool has_begun = false;
  std::exception_ptr thrown;
};

void HttpClient::State::set_options(const std::string& url) {
  curl_easy_reset(curl);  // connections stay
  set(CURLOPT_URL, url.c_str());
  set(CURLOPT_NOSIGNAL, 1L);
  set(CURLOPT_FOLLOWLOCATION, 1L);
  set(CURLOPT_MAXREDIRS, 10L);
  set(CURLOPT_PROTOCOLS_STR, "http,https");
  set(CURLOPT_REDIR_PROTOCOLS_STR, "http,https");
  set(CURLOPT_USERAGENT, "automodel");
  // Refused, and in force already, where the last request's buffer is still there.
  curl_easy_setopt(curl, CURLOPT_BUFFERSIZE, 512L << 10);
  set(CURLOPT_CONNECTTIMEOUT_MS, static_cast<long>(options.connect_seconds * 1000));
  set(CURLOPT_LOW_SPEED_LIMIT, 1L);
  set(CURLOPT_LOW_SPEED_TIME, std::max(1L, static_cast<long>(options.stall_seconds)));
  set(CURLOPT_HEADERFUNCTION, &State::on_header);
  set(CURLOPT_HEADERDATA, this);
  set(CURLOPT_WRITEFUNCTION, &State::on_bytes);
  set(CURLOPT_WRITEDATA, this);
  set(CURLOPT_NOPROGRESS, 0L);
  set(CURLOPT_XFERINFOFUNCTION, &State::on_progress);
  set(CURLOPT_XFERINFODATA, this);
  if (!options.ca_file.empty()) {
    set(CURLOPT_CAINFO, options.ca_file.c_str());
  } else if (const char* file = usual_ca_file()) {
    set(CURLOPT_CAINFO, file);
  }
  if (options.total_seconds > 0) {
    set(CURLOPT_TIMEOUT_MS, static_cast<long>(options.total_seconds * 1000));
  }
  if (!options.checks_certificates) {
    set(CURLOPT_SSL_VERIFYPEER, 0L);
    set(CURLOPT_SSL_VERIFYHOST, 0L);
  }
  // Unlike a header of our own, libcurl keeps these from other hosts.
  if (!options.bearer_token.empty()) {
    set(CURLOPT_HTTPAUTH, CURLAUTH_BEARER);
    set(CURLOPT_XOAUTH2_BEARER, options.bearer_token.c_str());
  } else if (!options.user.empty()) {
    set(CURLOPT_HTTPAUTH, CURLAUTH_BASIC);
    set(CURLOPT_USERNAME, options.user.c_str());
    set(CURLOPT_PASSWORD, options.password.c_str());
  }
}

size_t HttpClient::State::take_header(std::string_view line) {
  if (line.starts_with("HTTP/")) answer.head.fields.clear();
  const size_t colon = line.find(':');
  if (colon == std::string_view::npos) return line.size();
  const std::string name = to_lower(line.substr(0, colon));
  const std::string value(trim(line.substr(colon + 1)));
  answer.head.fields[name] = value;
  for (const std::string& kept : options.kept_fields) {
    if (name == kept) answer.head.kept_fields.emplace(name, value);
  }
  return line.size();
}

size_t HttpClient::State::take_bytes(std::string_view bytes) {
  long status = 0;
  curl_easy_getinfo(curl, CURLINFO_RESPONSE_CODE, &status);
  const bool is_file = sink != nullptr && (status == 200 || status == 206);
  try {
    if (is_file && !std::exchange(has_begun, true)) {
      answer.head.status = static_cast<int>(status);
      answer.problem = sink->begin(answer.head);
      if (!answer.problem.empty()) return 0;
    }
    if (is_file) {
      sink->write(bytes);
    } else if (answer.body.size() + bytes.size() > kLongestBody) {
      answer.problem = "the answer is longer than 256 MiB";
      return 0;
    } else if (status / 100 == 2 || answer.body.size() < kLongestErrorBody) {
      answer.body.append(bytes);
    }
  } catch (...) {
    thrown = std::current_exception();  // not through C; thrown again in perform()
    return 0;
  }
  return bytes.size();
}

void HttpClient::State::begin(const std::string& url, HttpSink* to) {
  sink = to;
  answer = {};
  has_begun = false;
  thrown = nullptr;
  set_options(url);
}

HttpAnswer HttpClient::State::perform() {
  std::array<char, CURL_ERROR_SIZE> text{};
  set(CURLOPT_ERRORBUFFER, text.data());
  const CURLcode code = curl_easy_perform(curl);
  curl_easy_setopt(curl, CURLOPT_ERRORBUFFER, nullptr);
  if (thrown) std::rethrow_exception(thrown);
  long status = 0;
  curl_easy_getinfo(curl, CURLINFO_RESPONSE_CODE, &status);
  answer.head.status = static_cast<int>(status);
  if (code != CURLE_OK && answer.problem.empty()) {
    answer.problem = text[0] != '\0' ? text.data() : curl_easy_strerror(code);
    answer.is_final = is_final(code);
  }
  // An empty file has no byte that would begin it.
  if (code == CURLE_OK && sink != nullptr && status == 200 && !has_begun) {
    answer.problem = sink->begin(answer.head);
  }
  return std::move(answer);
}

HttpClient::HttpClient(HttpOptions options, const std::atomic<bool>* is_cancelled)
    : state_(std::make_unique<State>(std::move(options), is_cancelled)) {}

HttpClient::~HttpClient() = default;

HttpAnswer HttpClient::get(const std::string& url) {
  state_->begin(url, nullptr);
  return state_->perform();
}

HttpAnswer HttpClient::post(const std::string& url, const std::string& json) {
  state_->begin(url, nullptr);
  const HeaderList headers("Content-Type: application/json");
  state_->set(CURLOPT_FOLLOWLOCATION, 0L);
  state_->set(CURLOPT_HTTPHEADER, headers.get());
  state_->set(CURLOPT_POSTFIELDS, json.c_str());
  state_->set(CURLOPT_POSTFIELDSIZE_LARGE, static_cast<curl_off_t>(json.size()));
  return state_->perform();
}

HttpAnswer HttpClient::download(const std::string& url, uint64_t offset, HttpSink& sink) {
  state_->begin(url, &sink);
  // Not CURLOPT_RESUME_FROM, which gives up where a server knows no ranges.
  const std::string range = cat(offset, "-");
  if (offset > 0) state_->set(CURLOPT_RANGE, range.c_str());
  return state_->perform();
}

bool HttpClient::wait(double seconds) const {
  constexpr double kLookSeconds = 0.05;
  const double end = monotonic_seconds() + seconds;
  while (state_->is_cancelled == nullptr || !state_->is_cancelled->load()) {
    const double rest = end - monotonic_seconds();
    if (rest <= 0) return true;
    std::this_thread::sleep_for(std::chrono::duration<double>(std::min(rest, kLookSeconds)));
  }
  return false;
}

std::string escape_path(std::string_view path) {
  std::string escaped;
  for (const char c : path) {
    const bool is_plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
                          (c >= '0' && c <= '9') || c == '-' || c == '_' || c == '.' || c == '~' ||
                          c == '/';
    if (is_plain) {
      escaped += c;
      continue;
    }
    const auto byte = static_cast<unsigned char>(c);
    escaped += '%';
    escaped += "0123456789ABCDEF"[byte >> 4];
    escaped += "0123456789ABCDEF"[byte & 15];
  }
  return escaped;
}

}  // namespace automodel::http
