#include "comm/store/store_server.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <list>
#include <map>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "comm/store/store_wire.h"
#include "core/clock.h"
#include "core/descriptor.h"
#include "core/text.h"

namespace automodel::comm {

namespace {

constexpr double kGreetingSeconds = 5.0;
constexpr size_t kMostStrangers = 256;
constexpr double kRestSeconds = 0.1;  // of accepting, when there are no descriptors
constexpr size_t kReadBytes = 64 << 10;

}  // namespace

class StoreServer::Server final {
 public:
  Server(int listening_fd, std::string secret)
      : listener_(listening_fd),
        wake_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
        secret_(std::move(secret)) {
    ::fcntl(listener_.get(), F_SETFL, ::fcntl(listener_.get(), F_GETFL) | O_NONBLOCK);
    thread_ = std::thread([this] { serve(); });
  }
  ~Server() {
    const uint64_t one = 1;
    is_stopped_ = true;
    while (::write(wake_.get(), &one, sizeof(one)) < 0 && errno == EINTR) {
    }
    thread_.join();
  }
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

 private:
  /// Somebody who is connected.
  struct Caller {
    explicit Caller(int fd) : descriptor(fd) {}

    enum class State { kGreets, kProves, kKnown };
    struct Waiting {
      std::string key;
      double deadline = 0;
    };

    Descriptor descriptor;
    State state = State::kGreets;
    double since = monotonic_seconds();
    std::string client_nonce, server_nonce;
    std::string in, out;             // bytes that have come, bytes to be sent
    std::optional<Waiting> waiting;  // for a key; its next request is read afterwards
    bool is_over = false;
  };

  void serve() {
    while (!is_stopped_) {
      std::vector<pollfd> polled = {{wake_.get(), POLLIN, 0}};
      const bool accepts = monotonic_seconds() >= rests_until_;
      polled.push_back({listener_.get(), static_cast<short>(accepts ? POLLIN : 0), 0});
      for (const Caller& caller : callers_) {
        const bool reads = !caller.waiting && caller.out.empty();
        const int events = (reads ? POLLIN : 0) | (caller.out.empty() ? 0 : POLLOUT);
        // A caller who hangs up while it waits is noticed too.
        polled.push_back({caller.descriptor.get(), static_cast<short>(events | POLLRDHUP), 0});
      }
      ::poll(polled.data(), polled.size(), milliseconds_to_next_deadline());
      size_t i = 2;
      for (Caller& caller : callers_) attend(caller, polled[i++].revents);
      if ((polled[1].revents & POLLIN) != 0) accept_callers();
      look_at_deadlines();
      callers_.remove_if([](const Caller& caller) { return caller.is_over; });
    }
  }

  int milliseconds_to_next_deadline() const {
    double next = monotonic_seconds() + 3600;
    for (const Caller& caller : callers_) {
      if (caller.state != Caller::State::kKnown) {
        next = std::min(next, caller.since + kGreetingSeconds);
      }
      if (caller.waiting) next = std::min(next, caller.waiting->deadline);
    }
    const double now = monotonic_seconds();
    if (rests_until_ > now) next = std::min(next, rests_until_);
    return static_cast<int>(std::max(0.0, (next - now) * 1e3)) + 1;
  }

  void accept_callers() {
    while (true) {
      const int fd = ::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK);
      if (fd < 0) {
        const bool is_short = errno == EMFILE || errno == ENFILE || errno == ENOBUFS;
        if (is_short && !drop_oldest_stranger()) rests_until_ = monotonic_seconds() + kRestSeconds;
        return;
      }
      const int on = 1;
      ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
      ::setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof(on));
      callers_.emplace_back(fd);
      const auto num_strangers = std::count_if(
          callers_.begin(), callers_.end(),
          [](const Caller& it) { return !it.is_over && it.state != Caller::State::kKnown; });
      if (static_cast<size_t>(num_strangers) > kMostStrangers) drop_oldest_stranger();
    }
  }

  bool drop_oldest_stranger() {
    for (Caller& caller : callers_) {
      if (caller.is_over || caller.state == Caller::State::kKnown) continue;
      caller.is_over = true;
      return true;
    }
    return false;
  }

  void look_at_deadlines() {
    const double now = monotonic_seconds();
    for (Caller& caller : callers_) {
      if (caller.state != Caller::State::kKnown && now > caller.since + kGreetingSeconds) {
        caller.is_over = true;
      }
      if (caller.waiting && now >= caller.waiting->deadline) {
        caller.waiting.reset();
        answer(caller, WireWriter().byte(0));
      }
    }
  }

  void attend(Caller& caller, int events) {
    if ((events & (POLLERR | POLLNVAL)) != 0) caller.is_over = true;
    const bool has_hung_up = (events & (POLLHUP | POLLRDHUP)) != 0;
    if (has_hung_up && (caller.waiting || (events & POLLIN) == 0)) caller.is_over = true;
    if (caller.is_over) return;
    if ((events & POLLIN) != 0) read(caller);
    if ((events & POLLOUT) != 0) send(caller);
  }

  /// Reads what a caller says; of a stranger no more bytes than a greeting and a proof have.
  void read(Caller& caller) {
    std::array<char, kReadBytes> bytes;
    size_t most = bytes.size();
    if (caller.state == Caller::State::kGreets) most = kGreetingBytes - caller.in.size();
    if (caller.state == Caller::State::kProves) most = kProofBytes - caller.in.size();
    const ssize_t size = ::recv(caller.descriptor.get(), bytes.data(), most, 0);
    if (size == 0 || (size < 0 && errno != EAGAIN && errno != EINTR)) caller.is_over = true;
    if (size <= 0) return;
    caller.in.append(bytes.data(), static_cast<size_t>(size));
    listen_to(caller);
  }

  void listen_to(Caller& caller) {
    switch (caller.state) {
      case Caller::State::kGreets:
        return greet(caller);
      case Caller::State::kProves:
        return let_in(caller);
      case Caller::State::kKnown:
        while (!caller.is_over && !caller.waiting && take_request(caller)) {
        }
        return;
    }
  }

  void greet(Caller& caller) {
    const size_t known = std::min(caller.in.size(), kHello.size());
    if (std::string_view(caller.in).substr(0, known) != kHello.substr(0, known)) {
      caller.is_over = true;
      return;
    }
    if (caller.in.size() < kGreetingBytes) return;
    caller.client_nonce = caller.in.substr(kHello.size());
    caller.server_nonce = random_bytes(kNonceBytes);
    caller.in.clear();
    caller.state = Caller::State::kProves;
    caller.out += caller.server_nonce;
    caller.out += prove(secret_, "server", caller.client_nonce, caller.server_nonce);
    send(caller);
  }

  void let_in(Caller& caller) {
    if (caller.in.size() < kProofBytes) return;
    const std::string wanted = prove(secret_, "client", caller.client_nonce, caller.server_nonce);
    if (!is_same_proof(caller.in, wanted)) {
      caller.is_over = true;
      return;
    }
    caller.in.clear();
    caller.state = Caller::State::kKnown;
    caller.out += kWelcome;
    send(caller);
  }

  /// False when the rest of a request has not come yet.
  bool take_request(Caller& caller) {
    constexpr size_t kHeader = 5;
    if (caller.in.size() < kHeader) return false;
    const uint32_t size = size_of_bytes(std::string_view(caller.in).substr(1, 4));
    if (size > kLargestFrame) {
      caller.is_over = true;
      return false;
    }
    if (caller.in.size() < kHeader + size) return false;
    const auto operation = static_cast<StoreOperation>(caller.in[0]);
    const std::string arguments = caller.in.substr(kHeader, size);
    caller.in.erase(0, kHeader + size);
    WireReader reader(arguments);
    if (!serve_request(caller, operation, reader) || !reader.is_at_end()) caller.is_over = true;
    return !caller.is_over;
  }

  /// False for what is no request.
  bool serve_request(Caller& caller, StoreOperation operation, WireReader& reader) {
    if (operation == StoreOperation::kCount) {
      answer(caller, WireWriter().number(static_cast<int64_t>(values_.size())));
      return true;
    }
    const std::optional<std::string> key = reader.text();
    if (!key) return false;
    switch (operation) {
      case StoreOperation::kSet: {
        std::optional<std::string> value = reader.text();
        if (!value) return false;
        set(*key, std::move(*value));
        answer(caller, WireWriter());
        return true;
      }
      case StoreOperation::kGet: {
        const std::optional<int64_t> milliseconds = reader.number();
        if (!milliseconds) return false;
        const auto found = values_.find(*key);
        if (found != values_.end()) {
          answer(caller, WireWriter().byte(1).text(found->second));
        } else if (*milliseconds <= 0) {
          answer(caller, WireWriter().byte(0));
        } else {
          constexpr int64_t kLongest = 1000LL * 3600 * 24 * 365;
          const auto wait = static_cast<double>(std::min(*milliseconds, kLongest)) / 1e3;
          caller.waiting = Caller::Waiting{*key, monotonic_seconds() + wait};
        }
        return true;
      }
      case StoreOperation::kHas:
        answer(caller, WireWriter().byte(values_.contains(*key) ? 1 : 0));
        return true;
      case StoreOperation::kAdd: {
        const std::optional<int64_t> amount = reader.number();
        if (!amount) return false;
        const auto found = values_.find(*key);
        const int64_t before = found == values_.end() ? 0 : parse_int(found->second).value_or(0);
        // As unsigned numbers, which may go round.
        const auto sum =
            static_cast<int64_t>(static_cast<uint64_t>(before) + static_cast<uint64_t>(*amount));
        set(*key, cat(sum));
        answer(caller, WireWriter().number(sum));
        return true;
      }
      case StoreOperation::kCompareSet: {
        const std::optional<std::string> expected = reader.text();
        const std::optional<std::string> wanted = reader.text();
        if (!expected || !wanted) return false;
        const auto found = values_.find(*key);
        const bool is_expected =
            found == values_.end() ? expected->empty() : found->second == *expected;
        if (is_expected) set(*key, *wanted);
        const auto now = values_.find(*key);
        answer(caller, WireWriter().text(now == values_.end() ? *expected : now->second));
        return true;
      }
      case StoreOperation::kErase:
        answer(caller, WireWriter().byte(values_.erase(*key) > 0 ? 1 : 0));
        return true;
      case StoreOperation::kCount:
        break;
    }
    return false;
  }

  void set(const std::string& key, std::string value) {
    values_[key] = std::move(value);
    for (Caller& caller : callers_) {
      if (caller.is_over || !caller.waiting || caller.waiting->key != key) continue;
      caller.waiting.reset();
      answer(caller, WireWriter().byte(1).text(values_[key]));
    }
  }

  static void answer(Caller& caller, const WireWriter& result) {
    caller.out += size_bytes(result.bytes().size());
    caller.out += result.bytes();
    send(caller);
  }

  static void send(Caller& caller) {
    while (!caller.out.empty()) {
      const ssize_t size = ::send(caller.descriptor.get(), caller.out.data(), caller.out.size(),
                                  MSG_NOSIGNAL | MSG_DONTWAIT);
      if (size < 0 && errno == EINTR) continue;
      if (size < 0) {
        if (errno != EAGAIN) caller.is_over = true;
        return;
      }
      caller.out.erase(0, static_cast<size_t>(size));
    }
  }

  Descriptor listener_, wake_;
  std::string secret_;
  std::atomic<bool> is_stopped_ = false;
  std::list<Caller> callers_;  // the thread's, from here on
  std::map<std::string, std::string> values_;
  double rests_until_ = 0;
  std::thread thread_;
};

StoreServer::StoreServer(int listening_fd, std::string secret)
    : server_(std::make_unique<Server>(listening_fd, std::move(secret))) {}

StoreServer::~StoreServer() = default;

}  // namespace automodel::comm
