#include "serve/http_server.h"

#include <fcntl.h>
#include <microhttpd.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "core/error.h"
#include "serve/request_clock.h"

namespace automodel::serve {

struct HttpServer::State {
  Site& site;
  std::string cookie_name;
  RequestClock clock;
  MHD_Daemon* daemon = nullptr;

  MHD_Result answer(MHD_Connection* connection, const char* url, const char* method) const;
};

namespace {

using Body = std::shared_ptr<const std::string>;

void free_body(void* body) {
  delete static_cast<Body*>(body);
}

/// Owns a response of the library until it is queued.
struct DestroyResponse {
  void operator()(MHD_Response* response) const { MHD_destroy_response(response); }
};
using ResponseHandle = std::unique_ptr<MHD_Response, DestroyResponse>;

/// The body stays where it is until the last connection has sent it.
ResponseHandle make_response(const Response& answer) {
  auto body = std::make_unique<Body>(answer.body);
  char* bytes = const_cast<char*>((*body)->data());  // read only, by the library's contract
  ResponseHandle made(MHD_create_response_from_buffer_with_free_callback_cls(
      (*body)->size(), bytes, &free_body, body.get()));
  if (made == nullptr) return nullptr;
  static_cast<void>(body.release());  // the response frees it
  for (const auto& [name, value] : answer.fields) {
    if (MHD_add_response_header(made.get(), name.c_str(), value.c_str()) != MHD_YES) return nullptr;
  }
  return made;
}

std::string_view value_of(MHD_Connection* connection, MHD_ValueKind kind, const char* name) {
  const char* value = MHD_lookup_connection_value(connection, kind, name);
  return value == nullptr ? std::string_view() : std::string_view(value);
}

/// The values of the query's fields `run`; a few more than are shown, so that too many are told.
std::vector<std::string> runs_of(MHD_Connection* connection) {
  constexpr size_t kMost = 2 * kMostCompared;
  std::vector<std::string> runs;
  const auto take = [](void* taken, MHD_ValueKind, const char* name, const char* value) {
    auto& all = *static_cast<std::vector<std::string>*>(taken);
    if (std::string_view(name) == "run" && value != nullptr) all.emplace_back(value);
    return all.size() < kMost ? MHD_YES : MHD_NO;
  };
  MHD_get_connection_values(connection, MHD_GET_ARGUMENT_KIND, take, &runs);
  return runs;
}

bool has_body(MHD_Connection* connection) {
  return !value_of(connection, MHD_HEADER_KIND, MHD_HTTP_HEADER_CONTENT_LENGTH).empty() ||
         !value_of(connection, MHD_HEADER_KIND, MHD_HTTP_HEADER_TRANSFER_ENCODING).empty();
}

/// No exception may pass through the library: one becomes an answer.
Response answer_to(Site& site, const Request& request) {
  try {
    return site.answer(request);
  } catch (const UserError& error) {
    return text_response(503, cat("this cannot be shown now: ", error.what()));
  } catch (const std::exception& error) {
    return text_response(500, internal_error_text(error));
  }
}

}  // namespace

/// A body that would follow the header fields is not read.
MHD_Result HttpServer::State::answer(MHD_Connection* connection, const char* url,
                                     const char* method) const {
  Request request;
  request.method = method;
  request.path = url;
  request.host = value_of(connection, MHD_HEADER_KIND, MHD_HTTP_HEADER_HOST);
  request.authorization = value_of(connection, MHD_HEADER_KIND, MHD_HTTP_HEADER_AUTHORIZATION);
  request.token = value_of(connection, MHD_GET_ARGUMENT_KIND, "token");
  request.cookie = value_of(connection, MHD_COOKIE_KIND, cookie_name.c_str());
  request.if_none_match = value_of(connection, MHD_HEADER_KIND, MHD_HTTP_HEADER_IF_NONE_MATCH);
  request.runs = runs_of(connection);
  const Response answer = answer_to(site, request);
  const ResponseHandle made = make_response(answer);
  if (made == nullptr) return MHD_NO;  // no memory: the connection is closed
  return MHD_queue_response(connection, static_cast<unsigned>(answer.status), made.get());
}

HttpServer::HttpServer(const ListenSocket& socket, Site& site, std::string cookie_name,
                       const ServerLimits& limits)
    : state_(new State{site, std::move(cookie_name), RequestClock(limits.request_seconds)}) {
  const auto handle = [](void* state, MHD_Connection* connection, const char* url,
                         const char* method, const char*, const char*, size_t*, void** seen) {
    static_cast<State*>(state)->clock.end(connection);
    // The first of two calls comes before a body; what is answered there ends the connection.
    if (std::exchange(*seen, state) == nullptr && !has_body(connection)) return MHD_YES;
    return static_cast<const State*>(state)->answer(connection, url, method);
  };
  const MHD_NotifyConnectionCallback notify = [](void* state, MHD_Connection* connection, void**,
                                                 MHD_ConnectionNotificationCode what) {
    RequestClock& clock = static_cast<State*>(state)->clock;
    what == MHD_CONNECTION_NOTIFY_STARTED ? clock.begin(connection) : clock.end(connection);
  };
  const MHD_RequestCompletedCallback completed = [](void* state, MHD_Connection* connection, void**,
                                                    MHD_RequestTerminationCode) {
    static_cast<State*>(state)->clock.begin(connection);  // the next one's time
  };
  // The library closes its socket at its end.
  const int own = ::fcntl(socket.descriptor.get(), F_DUPFD_CLOEXEC, 0);
  if (own < 0) throw InputError(cat("no server could be started: ", std::strerror(errno)));
  state_->daemon = MHD_start_daemon(
      MHD_USE_EPOLL_INTERNAL_THREAD, 0, nullptr, nullptr, handle, state_.get(),
      MHD_OPTION_LISTEN_SOCKET, own, MHD_OPTION_CONNECTION_LIMIT,
      static_cast<unsigned>(limits.num_connections), MHD_OPTION_PER_IP_CONNECTION_LIMIT,
      static_cast<unsigned>(limits.num_connections_of_address), MHD_OPTION_THREAD_POOL_SIZE,
      static_cast<unsigned>(limits.num_threads), MHD_OPTION_CONNECTION_TIMEOUT,
      static_cast<unsigned>(limits.idle_seconds), MHD_OPTION_CONNECTION_MEMORY_LIMIT,
      limits.connection_bytes, MHD_OPTION_NOTIFY_CONNECTION, notify, state_.get(),
      MHD_OPTION_NOTIFY_COMPLETED, completed, state_.get(), MHD_OPTION_STRICT_FOR_CLIENT, 1,
      MHD_OPTION_END);
  AM_CHECK(state_->daemon != nullptr, "no server could be started");
}

HttpServer::~HttpServer() {
  MHD_stop_daemon(state_->daemon);
}

}  // namespace automodel::serve
