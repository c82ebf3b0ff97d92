#include "comm/store/store_listener.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <memory>

#include "core/error.h"

namespace automodel::comm {

namespace {

bool is_loopback(const sockaddr& address) {
  if (address.sa_family == AF_INET) {
    const auto& four = reinterpret_cast<const sockaddr_in&>(address);
    return (ntohl(four.sin_addr.s_addr) >> 24) == 127;
  }
  return IN6_IS_ADDR_LOOPBACK(&reinterpret_cast<const sockaddr_in6&>(address).sin6_addr);
}

/// The descriptor, or -1 with errno.
int listen_on(const sockaddr& address, socklen_t size) {
  const int fd = ::socket(address.sa_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return -1;
  const int on = 1;
  ::setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  if (::bind(fd, &address, size) == 0 && ::listen(fd, SOMAXCONN) == 0) return fd;
  const int error = errno;
  ::close(fd);
  errno = error;
  return -1;
}

[[noreturn]] void throw_unserved(const std::string& host, int port) {
  if (errno == EADDRINUSE) {
    throw UserError(cat("port ", port,
                        " is taken by another process of this host; set MASTER_PORT to a free "
                        "one"));
  }
  throw UserError(
      cat("cannot serve the run's store on ", host, ":", port, ": ", std::strerror(errno)),
      ExitCode::kRankFailed);
}

}  // namespace

StoreListener listen_for_store(const std::string& host, int port, bool is_local) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int problem = ::getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found);
  if (problem != 0) {
    throw UserError(
        cat("cannot serve the run's store on ", host, ":", port, ": ", ::gai_strerror(problem)),
        ExitCode::kRankFailed);
  }
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> addresses(found, ::freeaddrinfo);
  for (const addrinfo* it = addresses.get(); it != nullptr; it = it->ai_next) {
    if (!is_local && is_loopback(*it->ai_addr)) continue;
    const int fd = listen_on(*it->ai_addr, it->ai_addrlen);
    if (fd >= 0) return {fd, false};
    if (errno != EADDRNOTAVAIL && errno != EAFNOSUPPORT) throw_unserved(host, port);
  }
  sockaddr_in everywhere{};
  everywhere.sin_family = AF_INET;
  everywhere.sin_addr.s_addr = htonl(INADDR_ANY);
  everywhere.sin_port = htons(static_cast<uint16_t>(port));
  const int fd = listen_on(reinterpret_cast<const sockaddr&>(everywhere), sizeof(everywhere));
  if (fd < 0) throw_unserved(host, port);
  return {fd, true};
}

}  // namespace automodel::comm
