#include "support/http_server.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>

#include "core/error.h"

namespace automodel::test {

namespace {

/// Reads until the buffer has `size` bytes. False: the client has gone.
bool fill(int fd, std::string& buffer, size_t size) {
  char bytes[1 << 16];
  while (buffer.size() < size) {
    const ssize_t received = ::recv(fd, bytes, sizeof(bytes), 0);
    if (received <= 0) return false;
    buffer.append(bytes, static_cast<size_t>(received));
  }
  return true;
}

void send_all(int fd, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t sent = ::send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent <= 0) return;
    bytes.remove_prefix(static_cast<size_t>(sent));
  }
}

std::string field_of(const std::string& head, const std::string& name) {
  for (const std::string& line : split(head, '\n')) {
    if (to_lower(line).starts_with(name + ":")) {
      return std::string(trim(std::string_view(line).substr(name.size() + 1)));
    }
  }
  return "";
}

}  // namespace

HttpServer::HttpServer(Handler handler) : handler_(std::move(handler)) {
  fd_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(address);
  AM_CHECK(::bind(fd_, reinterpret_cast<sockaddr*>(&address), size) == 0);
  AM_CHECK(::listen(fd_, 64) == 0);
  AM_CHECK(::getsockname(fd_, reinterpret_cast<sockaddr*>(&address), &size) == 0);
  port_ = ntohs(address.sin_port);
  acceptor_ = std::thread([this] { accept_connections(); });
}

HttpServer::~HttpServer() {
  is_stopped_ = true;
  ::shutdown(fd_, SHUT_RDWR);
  acceptor_.join();
  {
    const std::lock_guard lock(mutex_);
    for (const int fd : connections_) ::shutdown(fd, SHUT_RDWR);
  }
  for (std::thread& thread : threads_) thread.join();
  for (const int fd : connections_) ::close(fd);
  ::close(fd_);
}

std::string HttpServer::address() const {
  return cat("http://127.0.0.1:", port_);
}

std::vector<HttpRequest> HttpServer::requests() const {
  const std::lock_guard lock(mutex_);
  return requests_;
}

void HttpServer::accept_connections() {
  while (!is_stopped_) {
    const int fd = ::accept4(fd_, nullptr, nullptr, SOCK_CLOEXEC);
    if (fd < 0) continue;
    const std::lock_guard lock(mutex_);
    connections_.push_back(fd);
    threads_.emplace_back([this, fd] { serve(fd); });
  }
}

void HttpServer::serve(int fd) {
  std::string buffer;
  while (!is_stopped_ && answer_one(fd, buffer)) {
  }
  ::shutdown(fd, SHUT_RDWR);
}

bool HttpServer::answer_one(int fd, std::string& buffer) {
  constexpr std::string_view kEnd = "\r\n\r\n";
  while (buffer.find(kEnd) == std::string::npos) {
    if (!fill(fd, buffer, buffer.size() + 1)) return false;
  }
  const std::string head = buffer.substr(0, buffer.find(kEnd));
  buffer.erase(0, head.size() + kEnd.size());
  const auto size = static_cast<size_t>(parse_int(field_of(head, "content-length")).value_or(0));
  if (to_lower(field_of(head, "expect")) == "100-continue") {
    send_all(fd, "HTTP/1.1 100 Continue\r\n\r\n");
  }
  if (!fill(fd, buffer, size)) return false;
  const std::vector<std::string> words = split(head.substr(0, head.find('\r')), ' ');
  const HttpRequest request{words.at(0), words.at(1), field_of(head, "authorization"),
                            buffer.substr(0, size)};
  buffer.erase(0, size);
  HttpReply reply;
  {
    const std::lock_guard lock(mutex_);
    requests_.push_back(request);
    reply = handler_(request);
  }
  // Ends early when the server does.
  for (double waited = 0; waited < reply.pause_seconds && !is_stopped_; waited += 0.01) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  if (reply.hangs_up || is_stopped_) return false;
  send_all(fd, cat("HTTP/1.1 ", reply.status, " Said\r\nContent-Length: ", reply.body.size(),
                   "\r\n", reply.fields, "\r\n", reply.body));
  return true;
}

}  // namespace automodel::test
