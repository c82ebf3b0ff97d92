#pragma once

#include <cstdint>
#include <functional>
#include <string>

namespace automodel::tables {

/// A file made of another one, to be read in its place.
struct FileCopy {
  std::string path;
  uint64_t checksum = 0;  ///< of the other's bytes
};

/// The copy of `source` in the folder `copies`, which `write` makes at the path that it is given.
/// It is made once, by one process under a lock, and known again by the source's path, size and
/// time. Throws InputError.
FileCopy find_or_make_copy(const std::string& source, const std::string& copies,
                           const std::string& ending,
                           const std::function<void(const std::string& to)>& write);

}  // namespace automodel::tables
