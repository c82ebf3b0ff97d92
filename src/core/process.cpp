#include "core/process.h"

#include <signal.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <fstream>

#include "core/text.h"

namespace automodel {

namespace {

// Places in process_fields().
constexpr size_t kState = 0;
constexpr size_t kFlags = 6;
constexpr size_t kPendingSignals = 28;

/// A field that is a set of bits.
uint64_t bits_of(const std::vector<std::string>& fields, size_t place) {
  return static_cast<uint64_t>(parse_int(fields[place]).value_or(0));
}

}  // namespace

std::string host_name() {
  std::array<char, 256> name{};
  if (::gethostname(name.data(), name.size() - 1) != 0 || name[0] == '\0') return "localhost";
  return name.data();
}

bool is_loopback(const std::string& host) {
  return host == "localhost" || host == "::1" || host.starts_with("127.");
}

std::vector<std::string> process_fields(const std::string& process) {
  std::ifstream file(cat("/proc/", process, "/stat"));
  std::string line;
  std::getline(file, line);
  // The name before the state may hold spaces and parentheses.
  const size_t name_end = line.rfind(')');
  if (name_end == std::string::npos) return {};
  return split(trim(line.substr(name_end + 1)), ' ');
}

bool has_ended(int64_t pid) {
  if (::kill(static_cast<pid_t>(pid), 0) != 0 && errno == ESRCH) return true;
  const std::vector<std::string> fields = process_fields(cat(pid));
  return !fields.empty() && (fields[kState] == "Z" || fields[kState] == "X");
}

bool is_ending(int64_t pid) {
  constexpr uint64_t kExiting = 4;  // the kernel's PF_EXITING
  constexpr uint64_t kKilled = uint64_t{1} << (SIGKILL - 1);
  if (has_ended(pid)) return true;
  const std::vector<std::string> fields = process_fields(cat(pid));
  if (fields.size() <= kPendingSignals) return has_ended(pid);  // it may have ended meanwhile
  return (bits_of(fields, kFlags) & kExiting) != 0 ||
         (bits_of(fields, kPendingSignals) & kKilled) != 0;
}

}  // namespace automodel
