#include "serve/site.h"

#include <algorithm>

#include "core/text.h"
#include "report/page/live_page.h"
#include "report/page/style.h"
#include "serve/access.h"
#include "serve/list_page.h"
#include "serve/run_metrics.h"

namespace automodel::serve {

namespace {

constexpr const char* kHtml = "text/html; charset=utf-8";
constexpr const char* kText = "text/plain; charset=utf-8";
constexpr std::string_view kRuns = "/runs/";
constexpr size_t kSessionBytes = 32;

/// Nothing is loaded but the page's own style sheets and script, whose hashes these are; the script
/// may fetch from here, forms lead here, and no other page may frame this one.
const std::string& content_policy() {
  static const std::string policy =
      cat("default-src 'none'; style-src ", policy_hash(report::kStyle), " ",
          policy_hash(list_style()), "; script-src ", policy_hash(report::kLiveScript),
          "; connect-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'");
  return policy;
}

Response response(int status, const char* type, std::shared_ptr<const std::string> body) {
  return {status,
          {{"Content-Type", type},
           {"Content-Security-Policy", content_policy()},
           {"X-Content-Type-Options", "nosniff"},
           {"Referrer-Policy", "no-referrer"},
           {"Cross-Origin-Resource-Policy", "same-origin"},
           // What is kept is asked for again each time.
           {"Cache-Control", "private, no-cache"}},
          std::move(body)};
}

Response response(int status, const char* type, std::string body) {
  return response(status, type, std::make_shared<const std::string>(std::move(body)));
}

/// The last part of a path, from the page that lies there, with the runs that were asked for.
std::string own_address(const Request& request) {
  const std::string_view path = request.path;
  std::string address = cat("./", percent_encoded(path.substr(path.rfind('/') + 1)));
  for (const std::string& run : request.runs) {
    // In a field a slash may stay, and what else has a meaning is escaped.
    address +=
        cat(address.find('?') == std::string::npos ? "?" : "&", "run=", percent_encoded(run));
  }
  return address;
}

}  // namespace

Response text_response(int status, std::string text) {
  return response(status, kText, text + "\n");
}

Site::Site(RunIndex& index, SiteOptions options)
    : index_(index), options_(std::move(options)), session_(random_secret(kSessionBytes)) {}

bool Site::is_allowed(const Request& request) const {
  if (options_.token.empty()) return true;
  const bool has_token = same_secret(bearer_token(request.authorization), options_.token);
  const bool has_query = same_secret(request.token, options_.token);
  const bool has_session = same_secret(request.cookie, session_);
  return has_token || has_query || has_session;
}

Response Site::page_response(const Request& request, const Page& page) const {
  if (!options_.token.empty() && !request.token.empty()) {
    // The token leaves the address bar, and links need none.
    Response moved = text_response(303, "this page without the token in its address");
    moved.fields.emplace_back("Location", own_address(request));
    moved.fields.emplace_back(
        "Set-Cookie", cat(options_.cookie_name, "=", session_, "; Path=/; HttpOnly; SameSite=Lax"));
    return moved;
  }
  const bool is_known = request.if_none_match.find(page.tag) != std::string_view::npos;
  Response answer =
      is_known ? response(304, kHtml, std::string()) : response(200, kHtml, page.html);
  answer.fields.emplace_back("ETag", page.tag);
  return answer;
}

Response Site::list_response(const Request& request) {
  Page page;
  page.html = std::make_shared<const std::string>(list_page(*index_.list(), {}));
  page.tag = entity_tag(*page.html);
  return page_response(request, page);
}

Response Site::compare_response(const Request& request) {
  std::vector<std::string> ids;
  for (const std::string& id : request.runs) {
    if (std::ranges::find(ids, id) == ids.end()) ids.push_back(id);
  }
  if (ids.empty() || ids.size() > kMostCompared) {
    return text_response(
        400, cat("this page shows from one to ", kMostCompared, " runs beside each other, found ",
                 ids.size(), "; choose them at /"));
  }
  const auto page = index_.page(ids, "./");
  if (page != nullptr) return page_response(request, *page);
  return text_response(404, "there is no such run, or it is there no more; all runs are at /");
}

Response Site::route(const Request& request) {
  if (request.path == "/") return list_response(request);
  if (request.path == "/metrics") {
    return response(200, kMetricsType, metrics_text(*index_.list()));
  }
  if (request.path == "/api/runs") {
    return response(200, "application/json", runs_json(*index_.list()));
  }
  if (request.path == "/compare") return compare_response(request);
  if (request.path.starts_with(kRuns)) {
    const std::string id(request.path.substr(kRuns.size()));
    const auto page = index_.page({id}, way_home(id));
    if (page != nullptr) return page_response(request, *page);
  }
  return text_response(404, "there is no such page, or no such run any more; all runs are at /");
}

Response Site::answer(const Request& request) {
  if (request.method != "GET" && request.method != "HEAD") {
    Response refused = text_response(405, "this server only shows: GET and HEAD");
    refused.fields.emplace_back("Allow", "GET, HEAD");
    return refused;
  }
  if (options_.is_on_loopback && !names_loopback(request.host)) {
    return text_response(403, "this server answers to localhost and addresses of loopback only");
  }
  if (request.path == "/health") return text_response(200, "ok");
  if (!is_allowed(request)) {
    Response refused = text_response(
        401, "this server wants its token: Authorization: Bearer TOKEN, or ?token=TOKEN");
    refused.fields.emplace_back("WWW-Authenticate", "Bearer realm=\"automodel\"");
    return refused;
  }
  return route(request);
}

}  // namespace automodel::serve
