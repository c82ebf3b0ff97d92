#include "serve/listen_socket.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>
#include <optional>

#include "core/error.h"

namespace automodel::serve {

namespace {

constexpr int kMostPort = 65535;

/// An address and its size, as the calls of sockets want it.
struct Address {
  sockaddr_storage storage{};
  socklen_t size = 0;

  int family() const { return storage.ss_family; }
  sockaddr* get() { return reinterpret_cast<sockaddr*>(&storage); }
};

std::optional<Address> address_of(const std::string& host, int port) {
  Address address;
  auto* four = reinterpret_cast<sockaddr_in*>(&address.storage);
  auto* six = reinterpret_cast<sockaddr_in6*>(&address.storage);
  if (::inet_pton(AF_INET, host.c_str(), &four->sin_addr) == 1) {
    four->sin_family = AF_INET;
    four->sin_port = htons(static_cast<uint16_t>(port));
    address.size = sizeof(sockaddr_in);
    return address;
  }
  if (::inet_pton(AF_INET6, host.c_str(), &six->sin6_addr) == 1) {
    six->sin6_family = AF_INET6;
    six->sin6_port = htons(static_cast<uint16_t>(port));
    address.size = sizeof(sockaddr_in6);
    return address;
  }
  return std::nullopt;
}

/// A socket bound to the address; negative with errno where that fails.
Descriptor bound(Address address) {
  Descriptor socket(::socket(address.family(), SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (socket.get() < 0) return Descriptor(-1);
  const int on = 1;
  // A server that starts again does not wait for its old connections' last packets.
  ::setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (address.family() == AF_INET6) {
    ::setsockopt(socket.get(), IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof on);
  }
  constexpr int kBacklog = 128;
  if (::bind(socket.get(), address.get(), address.size) == 0 &&
      ::listen(socket.get(), kBacklog) == 0) {
    return socket;
  }
  const int error = errno;
  { const Descriptor closed = std::move(socket); }
  errno = error;
  return Descriptor(-1);
}

int port_of(const Descriptor& socket) {
  Address address;
  address.size = sizeof address.storage;
  AM_CHECK(::getsockname(socket.get(), address.get(), &address.size) == 0, std::strerror(errno));
  return ntohs(address.family() == AF_INET6
                   ? reinterpret_cast<sockaddr_in6*>(address.get())->sin6_port
                   : reinterpret_cast<sockaddr_in*>(address.get())->sin_port);
}

/// "; 8266 is free: --port 8266", or "" when none near it is.
std::string free_port_after(const std::string& host, int port) {
  constexpr int kTries = 100;
  for (int next = port + 1; next <= std::min(port + kTries, kMostPort); ++next) {
    if (bound(*address_of(host, next)).get() >= 0) {
      return cat("; ", next, " is free: --port ", next);
    }
  }
  return "; --port 0 takes one that is free";
}

}  // namespace

ListenSocket listen_on(const std::string& host, int port) {
  if (port < 0 || port > kMostPort) {
    throw UserError(cat("--port must be from 0 to 65535, found ", port));
  }
  const auto address = address_of(host, port);
  if (!address) {
    throw UserError(
        cat("--host takes an address such as 127.0.0.1, ::1 or 0.0.0.0, found '", host, "'"));
  }
  Descriptor socket = bound(*address);
  if (socket.get() >= 0) {
    const int taken = port_of(socket);
    return {std::move(socket), taken};
  }
  switch (errno) {
    case EADDRINUSE:
      throw UserError(cat("port ", port, " of ", host, " is in use by another program",
                          free_port_after(host, port)));
    case EACCES:
      throw UserError(
          cat("port ", port, " of ", host, " is not allowed to this user; ports from 1024 on are"));
    case EADDRNOTAVAIL:
      throw UserError(cat(host, " is not an address of this machine [--host]"));
    default:
      throw UserError(
          cat("cannot listen on port ", port, " of ", host, ": ", std::strerror(errno)));
  }
}

}  // namespace automodel::serve
