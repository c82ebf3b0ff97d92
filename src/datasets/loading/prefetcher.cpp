#include "datasets/loading/prefetcher.h"

#include <utility>

namespace automodel::datasets {

Prefetcher::Prefetcher(const Options& options, Make make)
    : options_(options), make_(std::move(make)) {
  try {
    for (int64_t i = 0; i < options_.num_threads; ++i) {
      threads_.emplace_back([this] { work(); });
    }
  } catch (...) {
    stop();  // the threads that are there, which end before this goes on
    throw;
  }
}

Prefetcher::~Prefetcher() {
  stop();
}

void Prefetcher::stop() {
  {
    const std::lock_guard lock(mutex_);
    is_stopping_ = true;
  }
  changed_.notify_all();
}

void Prefetcher::work() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] {
      return is_stopping_ || next_made_ >= options_.num_batches ||
             next_made_ < next_taken_ + options_.capacity;
    });
    if (is_stopping_ || next_made_ >= options_.num_batches) return;
    const int64_t batch = next_made_++;
    lock.unlock();
    Slot slot;
    try {
      slot.batch = make_(batch);
    } catch (...) {
      slot.error = std::current_exception();  // goes on in take(), on the thread that trains
    }
    lock.lock();
    ready_.emplace(batch, std::move(slot));
    changed_.notify_all();
  }
}

std::optional<PreparedBatch> Prefetcher::take() {
  std::unique_lock lock(mutex_);
  if (next_taken_ >= options_.num_batches) return std::nullopt;
  changed_.wait(lock, [this] { return ready_.contains(next_taken_); });
  const auto slot = ready_.find(next_taken_);
  if (slot->second.error) std::rethrow_exception(slot->second.error);
  PreparedBatch batch = std::move(slot->second.batch);
  ready_.erase(slot);
  ++next_taken_;
  lock.unlock();
  changed_.notify_all();
  return batch;
}

}  // namespace automodel::datasets
