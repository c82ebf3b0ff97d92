#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "serve/run_index.h"

namespace automodel::serve {

/// What a request says, as far as it counts. What it does not say is "".
struct Request {
  std::string_view method;
  std::string_view path;  ///< without escapes
  std::string_view host;
  std::string_view authorization;
  std::string_view token;   ///< of the query
  std::string_view cookie;  ///< of SiteOptions::cookie_name
  std::string_view if_none_match;
  std::vector<std::string> runs;  ///< of the query's fields `run`, without escapes
};

struct Response {
  int status = 200;
  std::vector<std::pair<std::string, std::string>> fields;
  std::shared_ptr<const std::string> body;
};

struct SiteOptions {
  bool is_on_loopback = true;  ///< then Host must name it
  std::string token;           ///< demanded where it is not ""
  std::string cookie_name = "automodel_serve";
};

/// Answers requests: GET and HEAD of
///   /             the page of all runs
///   /runs/ID      a run's page
///   /compare      a page of the runs that the query names: ?run=ID&run=ID
///   /api/runs     the list as JSON
///   /metrics      the list for Prometheus
///   /health       "ok", without a token too
/// A token comes as `Authorization: Bearer`, as `?token=`, or as the cookie that a page which was
/// asked for with `?token=` sets; that cookie does not hold the token. Any thread may ask.
class Site final {
 public:
  /// `index` outlives this object.
  Site(RunIndex& index, SiteOptions options);

  /// Throws UserError when a run's files cannot be read.
  Response answer(const Request& request);

 private:
  bool is_allowed(const Request& request) const;
  Response page_response(const Request& request, const Page& page) const;
  Response list_response(const Request& request);
  Response compare_response(const Request& request);
  Response route(const Request& request);

  RunIndex& index_;
  SiteOptions options_;
  std::string session_;  // the cookie's value
};

/// An answer of plain text, with the fields that all answers have.
Response text_response(int status, std::string text);

}  // namespace automodel::serve
