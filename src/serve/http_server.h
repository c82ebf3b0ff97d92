#pragma once

#include <memory>

#include "serve/listen_socket.h"
#include "serve/site.h"

namespace automodel::serve {

/// What connections may take of this machine.
struct ServerLimits {
  int num_connections = 128;  ///< more wait until one ends
  /// More of one client's address are closed at once. On loopback all clients have one.
  int num_connections_of_address = 32;
  int num_threads = 4;
  int idle_seconds = 10;        ///< a connection on which nothing moves is closed
  double request_seconds = 20;  ///< so is one whose request's fields take longer to come
  size_t connection_bytes =
      64 << 10;  ///< of one request: its bytes, and what is noted of each field
};

/// Brings HTTP requests from a socket to a site and its answers back, by libmicrohttpd, in threads
/// of its own until it is destroyed. Bodies of answers are not copied.
class HttpServer final {
 public:
  /// `site` outlives this object; `cookie_name` is the cookie that it reads. Throws InputError
  /// when this process has no file descriptor left, InternalError when no thread can be started.
  HttpServer(const ListenSocket& socket, Site& site, std::string cookie_name,
             const ServerLimits& limits = {});
  ~HttpServer();
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace automodel::serve
