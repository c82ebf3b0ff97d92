#pragma once

#include <atomic>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace automodel::test {

/// What a client asked for.
struct HttpRequest {
  std::string method;
  std::string target;  ///< with the query
  std::string authorization;
  std::string body;
};

/// What it is answered.
struct HttpReply {
  int status = 200;
  std::string body;
  std::string fields;        ///< "Name: value\r\n" each
  double pause_seconds = 0;  ///< in front of the answer
  bool hangs_up = false;     ///< without an answer
};

/// A server on a free port of loopback. The handler is called from the connections' threads, one
/// call at a time.
class HttpServer final {
 public:
  using Handler = std::function<HttpReply(const HttpRequest&)>;

  explicit HttpServer(Handler handler);
  ~HttpServer();
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  /// http://127.0.0.1:PORT
  std::string address() const;
  std::vector<HttpRequest> requests() const;

 private:
  void accept_connections();
  void serve(int fd);
  bool answer_one(int fd, std::string& buffer);

  Handler handler_;
  int fd_ = -1;
  int port_ = 0;
  std::atomic<bool> is_stopped_{false};
  mutable std::mutex mutex_;
  std::vector<HttpRequest> requests_;
  std::vector<int> connections_;
  std::vector<std::thread> threads_;
  std::thread acceptor_;
};

}  // namespace automodel::test
