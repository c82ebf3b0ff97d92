#include "report/run_follower.h"

#include <utility>

#include "core/file.h"

namespace automodel::report {

namespace {

// The latest steps of a thinned table are as the file has them: for the last values, and rates.
constexpr size_t kExactRows = 1024;

/// Whether a file is another one than was seen, or was written anew in its place.
bool is_rewritten(const FileState& seen, const FileState& now, uint64_t offset) {
  return now.inode != seen.inode || now.size < offset || now.size == seen.size;
}

}  // namespace

RunFollower::RunFollower(const std::string& folder, std::string name, const FollowerLimits& limits)
    : folder_(folder), limits_(limits) {
  check_run_folder(folder);
  run_.folder = folder;
  run_.name = std::move(name);
  update();
}

void RunFollower::read_new_steps(const FileState& now) {
  if (is_rewritten(training_, now, training_offset_)) {
    run_.steps = {};
    num_unread_steps_ = 0;
    training_offset_ = 0;
  }
  const std::string path = path_join(folder_, "training.jsonl");
  while (true) {
    const std::string lines = whole_lines(path, training_offset_, limits_.piece_bytes);
    if (lines.empty()) return;
    training_offset_ += lines.size();
    num_unread_steps_ += add_steps(lines, run_.steps);
    if (limits_.num_rows > 0) thin(run_.steps, {limits_.num_rows, kExactRows});
  }
}

void RunFollower::read_new_events(const FileState& now) {
  if (is_rewritten(events_, now, events_offset_)) {
    run_.events = {};
    events_offset_ = 0;
  }
  const std::string path = path_join(folder_, "events.jsonl");
  while (true) {
    const std::string lines = whole_lines(path, events_offset_, limits_.piece_bytes);
    if (lines.empty()) return;
    events_offset_ += lines.size();
    run_.events.add(lines);
  }
}

bool RunFollower::update() {
  bool has_changed = false;
  const auto changed = [&](FileState& seen, const char* file) {
    const FileState now = look_at(path_join(folder_, file));
    if (now == seen) return false;
    if (&seen == &training_) read_new_steps(now);
    if (&seen == &events_) read_new_events(now);
    seen = now;
    return has_changed = true;
  };
  changed(training_, "training.jsonl");
  changed(events_, "events.jsonl");
  if (changed(description_, "run.json")) run_.description = read_run_description(folder_);
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
