#include "training/signals.h"

#include <signal.h>

#include <algorithm>
#include <array>
#include <utility>

#include "core/error.h"

namespace automodel::training {

namespace {

constexpr std::array<std::pair<std::string_view, int>, 10> kSignals = {{
    {"SIGTERM", SIGTERM},
    {"SIGINT", SIGINT},
    {"SIGHUP", SIGHUP},
    {"SIGUSR1", SIGUSR1},
    {"SIGUSR2", SIGUSR2},
    {"SIGQUIT", SIGQUIT},
    {"SIGALRM", SIGALRM},
    {"SIGXCPU", SIGXCPU},
    {"SIGCONT", SIGCONT},
    {"SIGPWR", SIGPWR},
}};

// A handler can use static storage only; this lock-free flag is all that it writes.
volatile sig_atomic_t received_signal = 0;

void remember(int signal) {
  received_signal = signal;
}

}  // namespace

std::optional<int> parse_signal(std::string_view name) {
  if (const auto number = parse_int(name)) {
    const bool is_known = *number > 0 && *number < NSIG && *number != SIGKILL && *number != SIGSTOP;
    return is_known ? std::optional<int>(static_cast<int>(*number)) : std::nullopt;
  }
  std::string upper(name);
  std::transform(upper.begin(), upper.end(), upper.begin(),
                 [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
  if (!upper.starts_with("SIG")) upper = "SIG" + upper;
  for (const auto& [known, number] : kSignals) {
    if (known == upper) return number;
  }
  return std::nullopt;
}

std::string signal_name(int signal) {
  for (const auto& [name, number] : kSignals) {
    if (number == signal) return std::string(name);
  }
  return cat("signal ", signal);
}

std::vector<int> parse_signals(const std::vector<std::string>& names) {
  std::vector<std::string> known;
  for (const auto& [name, number] : kSignals) known.emplace_back(name);
  std::vector<int> numbers;
  for (const std::string& name : names) {
    const auto number = parse_signal(name);
    if (!number) {
      throw UserError(cat("step_scheduler.preemption_signal: unknown signal '", name, "'",
                          did_you_mean(name, known)));
    }
    if (std::find(numbers.begin(), numbers.end(), *number) != numbers.end()) {
      throw UserError(
          cat("step_scheduler.preemption_signal: ", signal_name(*number), " is listed twice"));
    }
    numbers.push_back(*number);
  }
  return numbers;
}

SignalWatch::SignalWatch(const std::vector<std::string>& signals)
    : signals_(parse_signals(signals)) {
  received_signal = 0;
  for (const int number : signals_) {
    struct sigaction action {};
    action.sa_handler = remember;
    action.sa_flags = SA_RESTART;
    ::sigaction(number, &action, nullptr);
  }
}

SignalWatch::~SignalWatch() {
  for (const int number : signals_) ::signal(number, received() != 0 ? SIG_IGN : SIG_DFL);
}

int SignalWatch::received() const {
  return received_signal;
}

}  // namespace automodel::training
