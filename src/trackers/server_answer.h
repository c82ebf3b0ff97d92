#pragma once

#include <string>

#include "core/json.h"
#include "http/http_client.h"
#include "trackers/tracker.h"

namespace automodel::trackers {

/// What a tracker's server answered.
struct ServerAnswer {
  Delivery::Outcome outcome = Delivery::Outcome::kDone;
  Json body;         ///< an object; null where the answer held none
  std::string code;  ///< of a refusal of MLflow's: RESOURCE_DOES_NOT_EXIST and others
  /// Why it is not done, with the server's address; never with a key, token or password.
  std::string problem;

  bool is_done() const { return outcome == Delivery::Outcome::kDone; }
  Delivery delivery() const { return {outcome, 0, problem}; }
};

/// An answer without what depends on the kind of server. kLater is what may pass: no connection, no
/// answer in time, statuses 408, 429 and 5xx, and a 200 without an object. Other statuses are
/// kRefused, a redirect too, since it would turn a POST into a GET. `kind` such as "an MLflow
/// server"; `address_key` is where its address is said.
ServerAnswer read_answer(const http::HttpAnswer& answer, const std::string& server,
                         const char* kind, const char* address_key);

/// What is wrong with a server's address; "" for http://HOST[:PORT][/PATH] and https://... It is
/// never asked.
std::string problem_of_server(const std::string& address);

/// A text of an object; "" when it has none of this name.
std::string text_of(const Json& object, const char* key);

/// A server's own words, on one line and not too many.
std::string on_a_line(std::string text);

}  // namespace automodel::trackers
