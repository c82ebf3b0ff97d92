#pragma once

#include <curl/curl.h>

#include <map>
#include <string>
#include <vector>

#include "core/text.h"

namespace automodel::test {

/// What a server said.
struct HttpAnswer {
  long status = 0;                            ///< 0: no answer
  std::map<std::string, std::string> fields;  ///< by lower-case name
  std::string body;
};

/// A request by libcurl, as a browser or Prometheus would send it.
class HttpCall final {
 public:
  explicit HttpCall(const std::string& url) : curl_(curl_easy_init()) {
    curl_easy_setopt(curl_, CURLOPT_URL, url.c_str());
    curl_easy_setopt(curl_, CURLOPT_TIMEOUT, 60L);
    curl_easy_setopt(curl_, CURLOPT_PROXY, "");
    curl_easy_setopt(curl_, CURLOPT_PATH_AS_IS, 1L);
  }
  ~HttpCall() {
    curl_slist_free_all(fields_);
    curl_easy_cleanup(curl_);
  }
  HttpCall(const HttpCall&) = delete;
  HttpCall& operator=(const HttpCall&) = delete;

  HttpCall& field(const std::string& line) {
    fields_ = curl_slist_append(fields_, line.c_str());
    return *this;
  }
  HttpCall& method(const std::string& name) {
    if (name == "HEAD") {
      curl_easy_setopt(curl_, CURLOPT_NOBODY, 1L);
    } else {
      curl_easy_setopt(curl_, CURLOPT_CUSTOMREQUEST, name.c_str());
    }
    return *this;
  }
  HttpCall& body(const std::string& bytes) {
    curl_easy_setopt(curl_, CURLOPT_POSTFIELDSIZE, static_cast<long>(bytes.size()));
    curl_easy_setopt(curl_, CURLOPT_COPYPOSTFIELDS, bytes.c_str());
    return *this;
  }

  HttpAnswer send() {
    HttpAnswer answer;
    curl_easy_setopt(curl_, CURLOPT_HTTPHEADER, fields_);
    curl_easy_setopt(curl_, CURLOPT_WRITEDATA, &answer.body);
    curl_easy_setopt(curl_, CURLOPT_WRITEFUNCTION, &take_body);
    curl_easy_setopt(curl_, CURLOPT_HEADERDATA, &answer.fields);
    curl_easy_setopt(curl_, CURLOPT_HEADERFUNCTION, &take_field);
    curl_easy_perform(curl_);
    curl_easy_getinfo(curl_, CURLINFO_RESPONSE_CODE, &answer.status);
    return answer;
  }

 private:
  static size_t take_body(char* bytes, size_t one, size_t count, void* body) {
    static_cast<std::string*>(body)->append(bytes, one * count);
    return one * count;
  }
  static size_t take_field(char* bytes, size_t one, size_t count, void* fields) {
    const std::string line(bytes, one * count);
    const size_t colon = line.find(':');
    if (colon != std::string::npos) {
      (*static_cast<std::map<std::string, std::string>*>(fields))[to_lower(line.substr(0, colon))] =
          std::string(trim(line.substr(colon + 1)));
    }
    return one * count;
  }

  CURL* curl_;
  curl_slist* fields_ = nullptr;
};

inline HttpAnswer get(const std::string& url, const std::vector<std::string>& fields = {}) {
  HttpCall call(url);
  for (const std::string& line : fields) call.field(line);
  return call.send();
}

}  // namespace automodel::test
