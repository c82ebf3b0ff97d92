#include "report/run_follower.h"

#include <utility>

#include "core/file.h"

namespace automodel::report {

RunFollower::RunFollower(const std::string& folder, std::string name) : folder_(folder) {
  check_run_folder(folder);
  run_.folder = folder;
  run_.name = std::move(name);
  update();
}

void RunFollower::read_new_steps(const FileState& now) {
  constexpr uint64_t kPiece = 1 << 25;  // of a large file at a time
  const bool is_rewritten = now.size == training_.size && now.inode == training_.inode;
  if (now.inode != training_.inode || now.size < offset_ || is_rewritten) {
    run_.steps = {};
    num_unread_steps_ = 0;
    offset_ = 0;
  }
  const std::string path = path_join(folder_, "training.jsonl");
  while (true) {
    const std::string lines = whole_lines(path, offset_, kPiece);
    if (lines.empty()) return;
    offset_ += lines.size();
    num_unread_steps_ += add_steps(lines, run_.steps);
  }
}

bool RunFollower::update() {
  bool has_changed = false;
  const auto changed = [&](FileState& seen, const char* file) {
    const FileState now = look_at(path_join(folder_, file));
    if (now == seen) return false;
    if (&seen == &training_) read_new_steps(now);
    seen = now;
    return has_changed = true;
  };
  changed(training_, "training.jsonl");
  if (changed(events_, "events.jsonl")) {
    num_unread_events_ = 0;
    run_.events = read_run_events(folder_, &num_unread_events_);
  }
  if (changed(description_, "run.json")) run_.description = read_run_description(folder_);
  has_changed |= update_validations();
  run_.num_unread_lines = num_unread_steps_ + num_unread_events_ + num_unread_validations_;
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
