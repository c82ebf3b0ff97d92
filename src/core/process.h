#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace automodel {

/// What the kernel tells of a process: the fields of /proc/PROCESS/stat from the state, its third
/// one, on. `process` is a number or "self". Empty when the process is gone.
std::vector<std::string> process_fields(const std::string& process);

/// This host's name; "localhost" when it has none that can be read.
std::string host_name();

/// Whether a host's name or numeric address means the machine that uses it, which no other reaches.
bool is_loopback(const std::string& host);

/// Whether a process of this host has ended; one that nobody has waited for yet counts as ended.
bool has_ended(int64_t pid);

/// Whether it has ended, or was killed and will end once what it waits for is there, as a disk.
bool is_ending(int64_t pid);

}  // namespace automodel
