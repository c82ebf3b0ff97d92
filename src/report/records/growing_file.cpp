#include "report/records/growing_file.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <algorithm>
#include <fstream>

#include "core/descriptor.h"
#include "core/file.h"

namespace automodel::report {

FileState look_at(const std::string& path) {
  struct stat info {};
  if (::stat(path.c_str(), &info) != 0) return {};
  constexpr int64_t kNanoseconds = 1000000000;
  return {static_cast<uint64_t>(info.st_ino), static_cast<uint64_t>(info.st_size),
          static_cast<int64_t>(info.st_mtim.tv_sec) * kNanoseconds + info.st_mtim.tv_nsec};
}

std::string whole_lines(const std::string& path, uint64_t offset, uint64_t most) {
  constexpr size_t kPiece = 1 << 16;
  std::ifstream file(path, std::ios::binary);
  file.seekg(static_cast<std::streamoff>(offset));
  std::string text, piece(kPiece, '\0');
  size_t end = 0;  // of the last whole line
  while (end == 0 || text.size() < most) {
    file.read(piece.data(), static_cast<std::streamsize>(kPiece));
    const auto count = static_cast<size_t>(std::max<std::streamsize>(file.gcount(), 0));
    if (count == 0) break;
    const size_t newline = std::string_view(piece).substr(0, count).rfind('\n');
    if (newline != std::string_view::npos) end = text.size() + newline + 1;
    text.append(piece, 0, count);
  }
  text.resize(end);
  return text;
}

std::string bytes_before(const std::string& path, uint64_t offset) {
  constexpr uint64_t kMost = 256;  // a record's loss and time of day are in there
  std::string text(std::min(offset, kMost), '\0');
  std::ifstream file(path, std::ios::binary);
  file.seekg(static_cast<std::streamoff>(offset - text.size()));
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  return file.gcount() == static_cast<std::streamsize>(text.size()) ? text : "";
}

std::string last_lines(const std::string& path, uint64_t size, uint64_t most) {
  const uint64_t offset = size > most ? size - most : 0;
  std::string lines = whole_lines(path, offset, most);
  if (offset == 0) return lines;
  // Where it begins is the middle of a line, or by chance its beginning: left out either way.
  return lines.substr(std::min(lines.find('\n'), lines.size() - 1) + 1);
}

LockState lock_state(const std::string& folder) {
  const Descriptor file(::open(path_join(folder, ".lock").c_str(), O_RDONLY | O_CLOEXEC));
  if (file.get() < 0) return LockState::kUnknown;
  struct flock lock {};
  lock.l_type = F_WRLCK;
  lock.l_whence = SEEK_SET;
  if (::fcntl(file.get(), F_OFD_GETLK, &lock) != 0) return LockState::kUnknown;
  return lock.l_type == F_UNLCK ? LockState::kFree : LockState::kHeld;
}

}  // namespace automodel::report
