#include "comm/store/store_client.h"

#include <c10/util/Exception.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <thread>
#include <utility>

#include "comm/store/tcp_store.h"
#include "core/clock.h"
#include "core/text.h"

namespace automodel::comm {

namespace {

constexpr double kMarginSeconds = 30.0;  // for an answer that the server gives at once
constexpr double kRetrySeconds = 0.05;
constexpr double kLeastSeconds = 1.0;  // for a greeting, once there is a connection

[[noreturn]] void lose(const std::string& what) {
  C10_THROW_ERROR(DistNetworkError, what);
}

std::string text_of(const std::vector<uint8_t>& bytes) {
  return {bytes.begin(), bytes.end()};
}

std::vector<uint8_t> bytes_of(const std::string& text) {
  return {text.begin(), text.end()};
}

/// Until the socket can be read or written; false when the time is up, of which so much is left
/// afterwards. The time in which this process was stopped does not count: its store may have been
/// stopped with it.
bool poll_for(int fd, short events, double& left_seconds) {
  constexpr double kSlice = 0.5;
  while (left_seconds > 0) {
    const double slice = std::min(left_seconds, kSlice);
    const double begin = monotonic_seconds();
    pollfd polled{fd, events, 0};
    const int count = ::poll(&polled, 1, static_cast<int>(std::ceil(slice * 1e3)));
    if (count > 0) return true;
    if (count < 0 && errno != EINTR) lose(cat("poll: ", std::strerror(errno)));
    left_seconds -= std::min(monotonic_seconds() - begin, slice);
  }
  return false;
}

void send_all(int fd, std::string_view bytes, double& left_seconds) {
  while (!bytes.empty()) {
    const ssize_t size = ::send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (size >= 0) {
      bytes.remove_prefix(static_cast<size_t>(size));
    } else if (errno == EAGAIN) {
      if (!poll_for(fd, POLLOUT, left_seconds)) lose("the store takes nothing");
    } else if (errno != EINTR) {
      lose(std::strerror(errno));
    }
  }
}

std::string receive(int fd, size_t count, double& left_seconds) {
  std::string bytes(count, '\0');
  size_t filled = 0;
  while (filled < count) {
    const ssize_t size = ::recv(fd, bytes.data() + filled, count - filled, 0);
    if (size > 0) {
      filled += static_cast<size_t>(size);
    } else if (size == 0) {
      lose("the store has hung up");
    } else if (errno == EAGAIN) {
      if (!poll_for(fd, POLLIN, left_seconds)) lose("the store does not answer");
    } else if (errno != EINTR) {
      lose(std::strerror(errno));
    }
  }
  return bytes;
}

/// A socket that looks for a listener on a port that the system hands out may be given that very
/// port, and is then connected to itself.
bool is_connected_to_itself(int fd) {
  sockaddr_storage own{}, other{};
  socklen_t own_size = sizeof(own), other_size = sizeof(other);
  return ::getsockname(fd, reinterpret_cast<sockaddr*>(&own), &own_size) == 0 &&
         ::getpeername(fd, reinterpret_cast<sockaddr*>(&other), &other_size) == 0 &&
         own_size == other_size && std::memcmp(&own, &other, own_size) == 0;
}

/// A socket that is connected, or -1 with errno.
int connect_to(const addrinfo& address, double& left_seconds) {
  const int fd = ::socket(address.ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd < 0) return -1;
  int error = 0;
  if (::connect(fd, address.ai_addr, address.ai_addrlen) != 0) error = errno;
  if (error == EINPROGRESS) {
    socklen_t size = sizeof(error);
    error = ETIMEDOUT;
    if (poll_for(fd, POLLOUT, left_seconds)) ::getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size);
  }
  if (error == 0 && is_connected_to_itself(fd)) error = ECONNREFUSED;
  if (error == 0) {
    const int on = 1;
    ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    ::setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof(on));
    return fd;
  }
  ::close(fd);
  errno = error;
  return -1;
}

/// connect_to() one address after the other. One that swallows what is sent to it leaves the ones
/// behind it their share of the time.
int connect_to_any(const addrinfo* addresses, double& left_seconds) {
  int num_left = 0;
  for (const addrinfo* it = addresses; it != nullptr; it = it->ai_next) ++num_left;
  for (const addrinfo* it = addresses; it != nullptr; it = it->ai_next, --num_left) {
    const double share = left_seconds / num_left;
    double left_of_share = share;
    const int fd = connect_to(*it, left_of_share);
    left_seconds -= share - left_of_share;
    if (fd >= 0) return fd;
  }
  return -1;
}

/// Until somebody answers there. Asks a name server only for names.
int connect_within(const StorePlace& place, double& left_seconds) {
  std::string problem;
  while (true) {
    const double begin = monotonic_seconds();
    addrinfo hints{};
    hints.ai_socktype = SOCK_STREAM;
    addrinfo* found = nullptr;
    const int code =
        ::getaddrinfo(place.host.c_str(), std::to_string(place.port).c_str(), &hints, &found);
    left_seconds -= monotonic_seconds() - begin;
    if (code != 0) {
      problem = ::gai_strerror(code);
    } else {
      const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> addresses(found, ::freeaddrinfo);
      const int fd = connect_to_any(addresses.get(), left_seconds);
      if (fd >= 0) return fd;
      problem = std::strerror(errno);
    }
    left_seconds -= kRetrySeconds;
    if (left_seconds <= 0) lose(problem);
    std::this_thread::sleep_for(std::chrono::duration<double>(kRetrySeconds));
  }
}

void greet(int fd, const std::string& secret, double left_seconds) {
  const std::string own = random_bytes(kNonceBytes);
  send_all(fd, cat(kHello, own), left_seconds);
  const std::string reply = receive(fd, kReplyBytes, left_seconds);
  const std::string nonce = reply.substr(0, kNonceBytes);
  if (!is_same_proof(reply.substr(kNonceBytes), prove(secret, "server", own, nonce))) {
    lose(
        "who answers does not know this run's secret: AUTOMODEL_RUN_SECRET is another there or, "
        "where none is set, MASTER_ADDR is spelled otherwise");
  }
  send_all(fd, prove(secret, "client", own, nonce), left_seconds);
  if (receive(fd, kWelcome.size(), left_seconds) != kWelcome) lose("who answers is no store");
}

}  // namespace

StoreClient::StoreClient(StorePlace place)
    : Store(std::chrono::milliseconds(static_cast<int64_t>(place.timeout_seconds * 1e3))),
      place_(std::move(place)) {
  double left_seconds = place_.timeout_seconds;
  fd_ = connect_within(place_, left_seconds);
  try {
    greet(fd_, place_.secret, std::max(left_seconds, kLeastSeconds));
  } catch (const std::exception&) {
    ::close(fd_);
    throw;
  }
}

StoreClient::~StoreClient() {
  ::close(fd_);
}

c10::intrusive_ptr<c10d::Store> StoreClient::clone() {
  return c10::make_intrusive<StoreClient>(place_);
}

std::string StoreClient::ask(StoreOperation operation, const WireWriter& arguments,
                             double extra_seconds) {
  const std::lock_guard lock(mutex_);
  if (!lost_.empty()) lose(lost_);
  double left_seconds = kMarginSeconds + extra_seconds;
  std::string request(1, static_cast<char>(operation));
  request += size_bytes(arguments.bytes().size());
  request += arguments.bytes();
  try {
    send_all(fd_, request, left_seconds);
    const uint32_t size = size_of_bytes(receive(fd_, 4, left_seconds));
    if (size > kLargestFrame) lose("the store's answer is no answer");
    return receive(fd_, size, left_seconds);
  } catch (const std::exception& error) {
    // What comes late would be read as the answer to the next request.
    lost_ = reason_of(error.what());
    throw;
  }
}

std::optional<std::string> StoreClient::wait_for(const std::string& key, double seconds) {
  const auto milliseconds = static_cast<int64_t>(std::ceil(std::max(0.0, seconds) * 1e3));
  const std::string result =
      ask(StoreOperation::kGet, WireWriter().text(key).number(milliseconds), seconds);
  WireReader reader(result);
  return reader.byte() == 1 ? reader.text() : std::nullopt;
}

void StoreClient::set(const std::string& key, const std::vector<uint8_t>& value) {
  ask(StoreOperation::kSet, WireWriter().text(key).text(text_of(value)));
}

std::vector<uint8_t> StoreClient::compareSet(const std::string& key,
                                             const std::vector<uint8_t>& expected,
                                             const std::vector<uint8_t>& wanted) {
  const std::string result =
      ask(StoreOperation::kCompareSet,
          WireWriter().text(key).text(text_of(expected)).text(text_of(wanted)));
  return bytes_of(WireReader(result).text().value_or(""));
}

std::vector<uint8_t> StoreClient::get(const std::string& key) {
  const double seconds = std::chrono::duration<double>(getTimeout()).count();
  const std::optional<std::string> value = wait_for(key, seconds);
  if (!value) {
    C10_THROW_ERROR(DistStoreError, cat(key, " did not come within ", format_duration(seconds)));
  }
  return bytes_of(*value);
}

int64_t StoreClient::add(const std::string& key, int64_t value) {
  const std::string result = ask(StoreOperation::kAdd, WireWriter().text(key).number(value));
  return WireReader(result).number().value_or(0);
}

bool StoreClient::deleteKey(const std::string& key) {
  const std::string result = ask(StoreOperation::kErase, WireWriter().text(key));
  return WireReader(result).byte() == 1;
}

bool StoreClient::check(const std::vector<std::string>& keys) {
  return std::all_of(keys.begin(), keys.end(), [this](const std::string& key) {
    const std::string result = ask(StoreOperation::kHas, WireWriter().text(key));
    return WireReader(result).byte() == 1;
  });
}

int64_t StoreClient::getNumKeys() {
  const std::string result = ask(StoreOperation::kCount, WireWriter());
  return WireReader(result).number().value_or(0);
}

void StoreClient::wait(const std::vector<std::string>& keys) {
  wait(keys, getTimeout());
}

void StoreClient::wait(const std::vector<std::string>& keys,
                       const std::chrono::milliseconds& timeout) {
  const double seconds = std::chrono::duration<double>(timeout).count();
  const double deadline = monotonic_seconds() + seconds;
  for (const std::string& key : keys) {
    if (wait_for(key, deadline - monotonic_seconds())) continue;
    C10_THROW_ERROR(DistStoreError, cat(key, " did not come within ", format_duration(seconds)));
  }
}

}  // namespace automodel::comm
