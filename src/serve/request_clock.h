#pragma once

#include <microhttpd.h>
#include <sys/socket.h>

#include <chrono>
#include <condition_variable>
#include <map>
#include <mutex>
#include <thread>

#include "core/clock.h"

namespace automodel::serve {

/// Ends connections whose request does not come to the end of its header fields in time, however
/// steadily its bytes drip: the library's own limit is on the pauses between them.
class RequestClock final {
 public:
  explicit RequestClock(double most_seconds)
      : most_seconds_(most_seconds),
        thread_([this](const std::stop_token& stop) { watch(stop); }) {}

  /// A request may begin now on the connection, of this socket.
  void begin(MHD_Connection* connection, int socket) {
    const std::lock_guard lock(mutex_);
    waiting_[connection] = {socket, monotonic_seconds()};
  }
  void begin(MHD_Connection* connection) {
    begin(connection,
          MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD)->connect_fd);
  }
  /// The request's fields are here, or the connection ends; its socket is open until this returns.
  void end(MHD_Connection* connection) {
    const std::lock_guard lock(mutex_);
    waiting_.erase(connection);
  }

 private:
  struct Waiting {
    int socket;
    double since;
  };

  void watch(const std::stop_token& stop) {
    std::unique_lock lock(mutex_);
    const auto pause = std::chrono::duration<double>(most_seconds_ / 4);
    while (!wakes_.wait_for(lock, stop, pause, [&] { return stop.stop_requested(); })) {
      const double now = monotonic_seconds();
      for (const auto& [connection, waiting] : waiting_) {
        // The library then finds the connection ended, and closes the socket.
        if (now - waiting.since > most_seconds_) ::shutdown(waiting.socket, SHUT_RDWR);
      }
    }
  }

  double most_seconds_;
  std::mutex mutex_;
  std::map<MHD_Connection*, Waiting> waiting_;
  std::condition_variable_any wakes_;
  std::jthread thread_;  // last: it uses the others
};

}  // namespace automodel::serve
