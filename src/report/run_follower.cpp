#include "report/run_follower.h"

#include <fcntl.h>
#include <sys/stat.h>

#include <fstream>
#include <utility>

#include "core/descriptor.h"
#include "core/file.h"

namespace automodel::report {

namespace {

/// Whether a run holds the lock of its folder; true where that cannot be known.
bool is_locked(const std::string& path) {
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (file.get() < 0) return true;
  struct flock lock {};
  lock.l_type = F_WRLCK;
  lock.l_whence = SEEK_SET;
  return ::fcntl(file.get(), F_OFD_GETLK, &lock) != 0 || lock.l_type != F_UNLCK;
}

/// The bytes from an offset on, up to the end of the last whole line.
std::string whole_lines(const std::string& path, uint64_t offset) {
  constexpr size_t kPiece = 1 << 16;
  std::ifstream file(path, std::ios::binary);
  file.seekg(static_cast<std::streamoff>(offset));
  std::string text, piece(kPiece, '\0');
  while (file.read(piece.data(), static_cast<std::streamsize>(kPiece)) || file.gcount() > 0) {
    text.append(piece, 0, static_cast<size_t>(file.gcount()));
  }
  const size_t end = text.rfind('\n');
  text.resize(end == std::string::npos ? 0 : end + 1);
  return text;
}

}  // namespace

RunFollower::RunFollower(const std::string& folder, std::string name) : folder_(folder) {
  check_run_folder(folder);
  run_.folder = folder;
  run_.name = std::move(name);
  update();
}

RunFollower::Seen RunFollower::look(const std::string& path) {
  struct stat info {};
  if (::stat(path.c_str(), &info) != 0) return {};
  return {static_cast<uint64_t>(info.st_ino), static_cast<uint64_t>(info.st_size)};
}

void RunFollower::read_new_steps(const Seen& now) {
  if (now.inode != training_.inode || now.size < offset_) {
    run_.steps = {};
    offset_ = 0;
  }
  const std::string lines = whole_lines(path_join(folder_, "training.jsonl"), offset_);
  offset_ += lines.size();
  add_steps(lines, run_.steps);
}

bool RunFollower::update() {
  bool has_changed = false;
  const auto changed = [&](Seen& seen, const char* file) {
    const Seen now = look(path_join(folder_, file));
    if (now == seen) return false;
    if (&seen == &training_) read_new_steps(now);
    seen = now;
    return has_changed = true;
  };
  changed(training_, "training.jsonl");
  if (changed(events_, "events.jsonl")) run_.events = read_run_events(folder_);
  if (changed(description_, "run.json")) run_.description = read_run_description(folder_);
  return has_changed;
}

bool RunFollower::has_ended() const {
  return run_.state() != RunState::kUnknown || !is_locked(path_join(folder_, ".lock"));
}

}  // namespace automodel::report
