#pragma once

#include <c10/util/Exception.h>

#include <condition_variable>
#include <cstdint>
#include <limits>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "comm/device/device_groups.h"
#include "comm/groups/group_backend.h"

namespace automodel::comm {

/// A device that is made up, the process's only one, with what NCCL and CUDA do that is hard:
/// - its operations are never done until they are given up, but for those that a test lets it do;
/// - a group is given up only once all groups of the device are being given up;
/// - whoever asks it anything after it has failed gets its error, in any thread;
/// - an answer may take as long as it likes.
class StuckDevice final {
 public:
  /// What a host does that reads a number of the device.
  void synchronize() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] {
      return !error_.empty() || position_ == kEverything ||
             (num_groups() > 0 && num_aborts_ == num_groups());
    });
    throw_error();
  }

  /// From now on all that is asked of it throws.
  void fail(const std::string& error) {
    change([&] { error_ = error; });
  }
  /// Lets the device reach its first `position` marks, in the order in which they were set: at
  /// first one, the beginning of the first operation.
  void come_to(int64_t position) {
    change([&] { position_ = position; });
  }
  void finish_everything() { come_to(kEverything); }
  void never_give_up() {
    change([&] { gives_up_ = false; });
  }
  void hold_answers() {
    change([&] { answers_ = false; });
  }
  void release_answers() {
    change([&] { answers_ = true; });
  }
  /// Waits until somebody waits for an answer that is held.
  void await_held_question() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return num_held_ > 0; });
  }
  /// Waits until it has been asked for marks `count` times, from now on.
  void await_questions(int count) {
    std::unique_lock lock(mutex_);
    const int wanted = num_questions_ + count;
    changed_.wait(lock, [&] { return num_questions_ >= wanted; });
  }

  int num_groups() const { return static_cast<int>(timeouts_.size()); }
  int num_aborts() {
    const std::lock_guard lock(mutex_);
    return num_aborts_;
  }
  /// The groups' timeouts in seconds, in the order in which they were made.
  const std::vector<double>& timeouts() const { return timeouts_; }

  // What a backend does.
  void add_group(const DevicePlace& place) {
    change([&] { timeouts_.push_back(place.timeout_seconds); });
  }
  int64_t set_mark() {
    const std::lock_guard lock(mutex_);
    return ++num_marks_;
  }
  bool is_reached(int64_t mark) {
    std::unique_lock lock(mutex_);
    num_questions_ += 1;
    num_held_ += 1;
    changed_.notify_all();
    changed_.wait(lock, [this] { return answers_; });
    num_held_ -= 1;
    throw_error();
    return mark <= position_;
  }
  void abort() {
    std::unique_lock lock(mutex_);
    num_aborting_ += 1;
    changed_.notify_all();
    changed_.wait(lock, [this] { return gives_up_ && num_aborting_ == num_groups(); });
    num_aborts_ += 1;
    changed_.notify_all();
  }

 private:
  static constexpr int64_t kEverything = std::numeric_limits<int64_t>::max();

  template <typename Change>
  void change(Change body) {
    const std::lock_guard lock(mutex_);
    body();
    changed_.notify_all();
  }

  void throw_error() const {
    if (error_.empty()) return;
    throw c10::AcceleratorError({__func__, __FILE__, __LINE__}, 700, error_);
  }

  std::mutex mutex_;  // guards what follows
  std::condition_variable changed_;
  std::string error_;
  int64_t num_marks_ = 0;
  int64_t position_ = 1;
  int num_questions_ = 0;
  int num_held_ = 0;  // questions whose answer is waited for
  int num_aborting_ = 0;
  int num_aborts_ = 0;
  bool gives_up_ = true;
  bool answers_ = true;
  std::vector<double> timeouts_;
};

/// A rank is a process of its own.
inline StuckDevice& device_of_process() {
  static StuckDevice device;
  return device;
}

/// A group of the device's.
class StuckBackend final : public GroupBackend {
 public:
  explicit StuckBackend(const DevicePlace& place) : place_(place) {
    device_of_process().add_group(place);
  }
  int rank() const override { return place_.rank; }
  int size() const override { return place_.size; }
  std::unique_ptr<BackendWork> start(const Collective&) override {
    return std::make_unique<Going>();
  }
  void abort() override { device_of_process().abort(); }
  std::unique_ptr<StreamMark> mark(at::Device) override { return std::make_unique<Mark>(); }

 private:
  class Mark final : public StreamMark {
   public:
    void set() override { place_ = device_of_process().set_mark(); }
    bool is_reached() override { return device_of_process().is_reached(place_); }

   private:
    int64_t place_ = 0;
  };
  class Going final : public BackendWork {
   public:
    void wait() override {}  // the host goes on
    bool is_done() override { return false; }
  };

  DevicePlace place_;
};

}  // namespace automodel::comm
