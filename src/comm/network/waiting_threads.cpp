#include "comm/network/waiting_threads.h"

#include <condition_variable>
#include <deque>
#include <exception>
#include <mutex>
#include <thread>
#include <utility>

namespace automodel::comm {

struct WaitingThreads::State {
  std::mutex mutex;  // guards the members below
  std::condition_variable changed;
  std::deque<std::function<void()>> waits;
  size_t num_idle = 0;
  bool is_stopped = false;

  void work() {
    std::unique_lock lock(mutex);
    while (true) {
      ++num_idle;
      changed.wait(lock, [this] { return is_stopped || !waits.empty(); });
      --num_idle;
      if (waits.empty()) return;
      std::function<void()> wait = std::move(waits.front());
      waits.pop_front();
      lock.unlock();
      wait();
      wait = nullptr;  // what it holds on to is not kept until the next one
      lock.lock();
    }
  }
};

WaitingThreads::WaitingThreads() : state_(std::make_shared<State>()) {}

WaitingThreads::~WaitingThreads() {
  const std::lock_guard lock(state_->mutex);
  state_->is_stopped = true;
  state_->changed.notify_all();
}

void WaitingThreads::run(std::function<void()> wait) {
  const std::lock_guard lock(state_->mutex);
  state_->waits.push_back(std::move(wait));
  if (state_->waits.size() > state_->num_idle) {
    try {
      std::thread([state = state_] { state->work(); }).detach();
    } catch (const std::exception&) {
      state_->waits.pop_back();
      throw;
    }
  }
  state_->changed.notify_one();
}

}  // namespace automodel::comm
