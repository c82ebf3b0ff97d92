#include "trackers/server_answer.h"

#include <algorithm>
#include <cctype>
#include <string_view>
#include <utility>

#include "core/error.h"
#include "core/utf8.h"

namespace automodel::trackers {

namespace {

constexpr size_t kLongestMessage = 300;

/// The object that an answer is; null when it is none.
Json object_in(const std::string& body) {
  try {
    Json value = Json::parse(body, "answer");
    if (value.is_object()) return value;
  } catch (const InputError&) {
    // Not such a server's: the caller says so.
  }
  return nullptr;
}

bool is_host(std::string_view host) {
  if (host.starts_with('[')) return host.ends_with(']') && host.size() > 2;
  return !host.empty() && std::all_of(host.begin(), host.end(), [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '.' || c == '-' || c == '_';
  });
}

/// What is wrong with HOST[:PORT].
std::string problem_of_authority(const std::string& authority) {
  const size_t bracket = authority.rfind(']');
  const size_t colon = authority.find(':', bracket == std::string::npos ? 0 : bracket);
  if (!is_host(std::string_view(authority).substr(0, colon))) return "it names no host";
  if (colon == std::string::npos) return "";
  const auto port = parse_int(std::string_view(authority).substr(colon + 1));
  if (port && *port >= 1 && *port <= 65535) return "";
  return cat("'", authority.substr(colon + 1), "' is no port");
}

bool is_passing(int status) {
  return status == 408 || status == 429 || status >= 500;
}

}  // namespace

std::string problem_of_server(const std::string& address) {
  const size_t scheme_end = address.find("://");
  const std::string scheme = to_lower(address.substr(0, scheme_end));
  if (scheme_end == std::string::npos || (scheme != "http" && scheme != "https")) {
    return cat("'", address.substr(address.rfind('@') + 1),
               "' does not begin with http:// or https://");
  }
  const std::string rest = address.substr(scheme_end + 3);
  const std::string authority = rest.substr(0, rest.find_first_of("/?#"));
  if (authority.find('@') != std::string::npos) {
    return "a user and password do not belong in an address, where they would be shown";
  }
  const std::string problem = problem_of_authority(authority);
  if (!problem.empty()) return problem;
  const bool has_space = std::any_of(rest.begin(), rest.end(), [](char c) {
    return static_cast<unsigned char>(c) <= 32 || c == 127;
  });
  if (has_space) return cat("'", address, "' holds white space");
  if (const size_t query = address.find_first_of("?#"); query != std::string::npos) {
    return cat("'", address.substr(0, query), "' has a query behind it");
  }
  return "";
}

std::string text_of(const Json& object, const char* key) {
  const Json* value = object.is_object() ? object.find(key) : nullptr;
  return value != nullptr && value->is_string() ? value->as_string() : "";
}

std::string on_a_line(std::string text) {
  text = text.substr(0, text.find('\n'));
  std::erase_if(text, [](char it) { return static_cast<unsigned char>(it) < ' ' || it == '\x7f'; });
  return shortened(text, kLongestMessage);
}

ServerAnswer read_answer(const http::HttpAnswer& answer, const std::string& server,
                         const char* kind, const char* address_key) {
  using Outcome = Delivery::Outcome;
  const int status = answer.head.status;
  if (!answer.problem.empty()) {
    return {answer.is_final ? Outcome::kRefused : Outcome::kLater, nullptr, "",
            cat(server, ": ", answer.problem)};
  }
  Json body = object_in(answer.body);
  if (status == 200) {
    if (!body.is_null()) return {Outcome::kDone, std::move(body), "", ""};
    return {Outcome::kLater, nullptr, "", cat(server, " does not answer as ", kind)};
  }
  std::string problem = cat(server, " answers ", status);
  if (status / 100 == 3) {
    problem += cat(", a redirect to '", on_a_line(answer.head.field("location")), "': set ",
                   address_key, " to where the server is");
  } else if (body.is_null() && status == 404) {
    problem += cat(": is ", address_key, " ", kind, "?");
  }
  return {is_passing(status) ? Outcome::kLater : Outcome::kRefused, std::move(body), "",
          std::move(problem)};
}

}  // namespace automodel::trackers
