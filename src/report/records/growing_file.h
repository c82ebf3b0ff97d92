#pragma once

#include <cstdint>
#include <string>

namespace automodel::report {

/// What tells that a file is another one, has grown or was written anew; zeros for one that is not
/// there.
struct FileState {
  uint64_t inode = 0;
  uint64_t size = 0;
  int64_t modified_ns = 0;  ///< since 1970, by the file system's clock
  bool operator==(const FileState&) const = default;
};

FileState look_at(const std::string& path);

/// Bytes from an offset on that are whole lines, about `most` of them unless a line is longer. ""
/// when no line has ended yet, or the file is not there.
std::string whole_lines(const std::string& path, uint64_t offset, uint64_t most);

/// What the bytes of a file before `offset` end in; "" when it has no so many.
std::string bytes_before(const std::string& path, uint64_t offset);

/// The whole lines within the last `most` bytes of a file that has `size`.
std::string last_lines(const std::string& path, uint64_t size, uint64_t most);

/// Whether a process holds the lock of a run's folder.
enum class LockState { kHeld, kFree, kUnknown };

/// Whether FOLDER/.lock is held; unknown where it is absent or its file system has no locks.
LockState lock_state(const std::string& folder);

}  // namespace automodel::report
