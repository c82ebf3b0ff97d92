#include "report/records/run_follower.h"

#include <utility>

#include "core/file.h"

namespace automodel::report {

namespace {

// The latest steps of a thinned table are as the file has them: for the last values, and rates.
constexpr size_t kExactRows = 1024;

}  // namespace

RunFollower::RunFollower(const std::string& folder, std::string name, const FollowerLimits& limits)
    : folder_(folder), limits_(limits) {
  check_run_folder(folder);
  run_.folder = folder;
  run_.name = std::move(name);
  update();
}

bool RunFollower::is_rewritten(const Followed& file, const std::string& path,
                               const FileState& now) {
  if (now.inode != file.state.inode || now.size < file.offset || now.size == file.state.size) {
    return true;
  }
  // A log that was cut in place may have grown past where it was read to.
  return bytes_before(path, file.offset) != file.end;
}

void RunFollower::read_new_steps(const std::string& path, const FileState& now) {
  if (is_rewritten(training_, path, now)) {
    run_.steps = {};
    ++run_.num_step_rewrites;
    num_unread_steps_ = 0;
    training_.offset = 0;
  }
  while (true) {
    const std::string lines = whole_lines(path, training_.offset, limits_.piece_bytes);
    if (lines.empty()) return;
    training_.offset += lines.size();
    num_unread_steps_ += add_steps(lines, run_.steps);
    if (limits_.num_rows > 0) thin(run_.steps, {limits_.num_rows, kExactRows});
  }
}

void RunFollower::read_new_events(const std::string& path, const FileState& now) {
  if (is_rewritten(events_, path, now)) {
    run_.events = {};
    events_.offset = 0;
  }
  while (true) {
    const std::string lines = whole_lines(path, events_.offset, limits_.piece_bytes);
    if (lines.empty()) return;
    events_.offset += lines.size();
    run_.events.add(lines);
  }
}

bool RunFollower::update() {
  bool has_changed = false;
  const auto follow = [&](Followed& file, const char* name, auto read_new) {
    const std::string path = path_join(folder_, name);
    const FileState now = look_at(path);
    if (now == file.state) return;
    (this->*read_new)(path, now);
    file.end = bytes_before(path, file.offset);
    file.state = now;
    has_changed = true;
  };
  follow(training_, "training.jsonl", &RunFollower::read_new_steps);
  follow(events_, "events.jsonl", &RunFollower::read_new_events);
  const FileState description = look_at(path_join(folder_, "run.json"));
  if (description != description_) {
    run_.description = read_run_description(folder_);
    description_ = description;
    has_changed = true;
  }
  const LockState lock_before = std::exchange(run_.lock, lock_state(folder_));
  has_changed |= run_.lock != lock_before;
  has_changed |= update_validations();
  run_.num_unread_lines = num_unread_steps_ + run_.events.num_unread() + num_unread_validations_;
  return has_changed;
}

bool RunFollower::update_validations() {
  std::map<std::string, FileState> now;
  for (const std::string& name : validation_files(folder_)) {
    now[name] = look_at(path_join(folder_, name));
  }
  if (now == validations_) return false;
  validations_ = std::move(now);
  num_unread_validations_ = 0;
  run_.validations = read_validations(folder_, &num_unread_validations_);
  return true;
}

bool RunFollower::has_ended() const {
  return run_.state() != RunState::kUnknown || lock_state(folder_) == LockState::kFree;
}

}  // namespace automodel::report
