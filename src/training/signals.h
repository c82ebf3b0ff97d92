#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace automodel::training {

/// A signal's number from its name (with or without "SIG", in any case) or number; nullopt
/// otherwise.
std::optional<int> parse_signal(std::string_view name);

/// "SIGTERM".
std::string signal_name(int signal);

/// Records preemption signals during its lifetime; afterwards the signals have their default effect
/// again, or none where one came: a process that was told to end does so as it means to. At most
/// one may exist in a process.
class SignalWatch final {
 public:
  /// Throws UserError for an unknown or repeated signal (naming step_scheduler.preemption_signal).
  explicit SignalWatch(const std::vector<std::string>& signals);
  ~SignalWatch();
  SignalWatch(const SignalWatch&) = delete;
  SignalWatch& operator=(const SignalWatch&) = delete;

  /// The last signal received, or 0.
  int received() const;

 private:
  std::vector<int> signals_;
};

/// Number of each name; throws as SignalWatch does.
std::vector<int> parse_signals(const std::vector<std::string>& names);

}  // namespace automodel::training
