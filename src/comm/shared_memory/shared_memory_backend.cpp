#include "comm/shared_memory/shared_memory_backend.h"

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "comm/groups/group_backend.h"
#include "comm/shared_memory/rounds.h"
#include "comm/shared_memory/slot_rings.h"
#include "core/awake_clock.h"
#include "core/text.h"

namespace automodel::comm {

namespace {

constexpr double kLookSeconds = 0.5;        // period of looking after the peers
constexpr double kLongestPauseSeconds = 2;  // of a wait; a longer one is a process that stood still
constexpr int kNumSpins = 200;
/// Rounds that are written ahead of those taken, while both are possible: what has been written is
/// then read out of a cache.
constexpr int64_t kLead = 2;

struct Operation {
  std::unique_ptr<Rounds> rounds;
  SlotMark mark;
  int64_t num_rounds = 0;
  int64_t num_written = 0;
  int64_t num_taken = 0;
  bool is_done() const { return num_taken == num_rounds; }
};

/// The group's operations, in their order. Whoever waits for one moves them; while nobody waits, a
/// thread does. Once a peer has come with another operation than this rank nothing moves any more,
/// and every wait throws.
class Mover final {
 public:
  Mover(std::unique_ptr<SharedSegment> segment, const SharedMemoryPlace& place)
      : place_(place),
        rings_(std::move(segment), place.rank, place.size),
        slots_(static_cast<size_t>(place.size)),
        thread_([this] { move_unwaited(); }) {}

  ~Mover() {
    {
      const std::lock_guard lock(mutex_);
      is_stopped_ = true;
    }
    changed_.notify_all();
    rings_.bell().ring();
    thread_.join();
  }
  Mover(const Mover&) = delete;
  Mover& operator=(const Mover&) = delete;

  int rank() const { return place_.rank; }
  int size() const { return place_.size; }

  std::shared_ptr<Operation> start(std::unique_ptr<Rounds> rounds, const SlotMark& mark) {
    auto operation = std::make_shared<Operation>();
    operation->mark = mark;
    operation->num_rounds = rounds->num_rounds();
    operation->rounds = std::move(rounds);
    {
      const std::lock_guard lock(mutex_);
      queue_.push_back(operation);
      while (try_write()) {
      }
    }
    changed_.notify_one();
    return operation;
  }

  /// Also where a wait throws without waiting.
  bool is_done(const Operation& operation) {
    const std::lock_guard lock(mutex_);
    return operation.is_done() || !disagreement_.empty();
  }

  void wait(const Operation& operation) {
    ++num_waiting_;
    std::unique_lock lock(mutex_);
    // Under the lock: the thread that moves what nobody waits for must not read the number just
    // before and then sleep through the notification.
    const auto leave = [&] {
      if (!lock.owns_lock()) lock.lock();
      --num_waiting_;
      lock.unlock();
      changed_.notify_one();
    };
    try {
      move_until_done(operation, lock);
    } catch (const std::exception&) {
      leave();
      throw;
    }
    leave();
  }

 private:
  void move_until_done(const Operation& operation, std::unique_lock<std::mutex>& lock) {
    AwakeClock clock(kLongestPauseSeconds);
    double moved_at = 0;
    double looked_at = 0;
    bool has_moved = false;
    bool has_lost_peer = false;
    while (!operation.is_done()) {
      if (!disagreement_.empty()) throw RanksDisagree(disagreement_);
      const uint32_t seen = rings_.bell().num_rings();
      if (step()) {
        has_moved = true;
        continue;
      }
      lock.unlock();
      const double now = clock.seconds();
      if (std::exchange(has_moved, false)) moved_at = now;
      if (now - moved_at >= place_.timeout_seconds) {
        throw std::runtime_error(cat("nothing moved for ", format_duration(now - moved_at)));
      }
      if (now - looked_at >= kLookSeconds) {
        looked_at = now;
        // A peer that ends well may do so a moment before we see what it wrote: ask twice.
        if (place_.has_lost_peer() && std::exchange(has_lost_peer, true)) {
          throw std::runtime_error("a peer is gone");
        }
      }
      pause(seen);
      lock.lock();
    }
  }

  /// Until the bell rings; a while at most.
  void pause(uint32_t seen) {
    for (int i = 0; i < kNumSpins; ++i) {
      if (rings_.bell().num_rings() != seen) return;
      __builtin_ia32_pause();
    }
    rings_.bell().sleep(seen, std::min(kLookSeconds, place_.timeout_seconds));
  }

  void move_unwaited() {
    std::unique_lock lock(mutex_);
    while (true) {
      changed_.wait(
          lock, [this] { return is_stopped_ || (!queue_.empty() && num_waiting_.load() == 0); });
      if (is_stopped_) return;
      const uint32_t seen = rings_.bell().num_rings();
      const bool has_moved = step();
      lock.unlock();
      if (!has_moved) rings_.bell().sleep(seen, kLookSeconds);
      lock.lock();
    }
  }

  /// Moves one slot; false when nothing can be moved now.
  bool step() {
    if (queue_.empty() || !disagreement_.empty()) return false;
    const Operation& front = *queue_.front();
    if (front.num_written - front.num_taken < kLead && try_write()) return true;
    return try_take() || try_write();
  }

  bool try_write() {
    for (const std::shared_ptr<Operation>& operation : queue_) {
      Operation& it = *operation;
      if (it.num_written == it.num_rounds) continue;
      if (!it.rounds->is_writer(place_.rank)) {
        it.num_written = it.num_rounds;
        continue;
      }
      if (!it.rounds->is_ready(it.num_written, it.num_taken)) return false;
      std::byte* slot = rings_.free_slot();
      if (slot == nullptr) return false;
      it.rounds->write(it.num_written++, slot);
      rings_.publish(it.mark);
      return true;
    }
    return false;
  }

  bool try_take() {
    Operation& it = *queue_.front();
    if (it.num_taken == it.num_written) return false;
    for (int rank = 0; rank < place_.size; ++rank) {
      const std::byte*& slot = slots_[static_cast<size_t>(rank)];
      slot = nullptr;
      if (rank == place_.rank || !it.rounds->is_writer(rank)) continue;
      slot = rings_.next_slot(rank);
      if (slot == nullptr) return false;
      if (const SlotMark& mark = rings_.next_mark(rank); mark != it.mark) {
        disagreement_ = cat("rank ", place_.rank, " of the group came with ", describe(it.mark),
                            ", its rank ", rank, " with ", describe(mark));
        rings_.bell().ring();  // other threads that wait
        return true;
      }
    }
    it.rounds->take(it.num_taken, slots_);
    for (int rank = 0; rank < place_.size; ++rank) {
      if (slots_[static_cast<size_t>(rank)] != nullptr) rings_.release(rank);
    }
    if (++it.num_taken == it.num_rounds) {
      it.rounds.reset();
      queue_.pop_front();
    }
    return true;
  }

  SharedMemoryPlace place_;
  std::mutex mutex_;  // guards what follows, but for the bell
  std::condition_variable changed_;
  std::atomic<int> num_waiting_{0};
  bool is_stopped_ = false;
  SlotRings rings_;
  std::deque<std::shared_ptr<Operation>> queue_;
  std::string disagreement_;  // "" while all come with the same
  std::vector<const std::byte*> slots_;
  std::thread thread_;
};

class SharedMemoryWork final : public BackendWork {
 public:
  SharedMemoryWork(std::shared_ptr<Mover> mover, std::shared_ptr<Operation> operation)
      : mover_(std::move(mover)), operation_(std::move(operation)) {}

  void wait() override { mover_->wait(*operation_); }
  bool is_done() override { return mover_->is_done(*operation_); }

 private:
  std::shared_ptr<Mover> mover_;
  std::shared_ptr<Operation> operation_;
};

class SharedMemoryBackend final : public GroupBackend {
 public:
  SharedMemoryBackend(std::shared_ptr<Mover> mover, std::shared_ptr<GroupBackend> other)
      : mover_(std::move(mover)),
        other_(std::move(other)),
        place_{mover_->rank(), mover_->size(), SlotRings::kSlotBytes} {}

  int rank() const override { return place_.rank; }
  int size() const override { return place_.size; }

  std::unique_ptr<BackendWork> start(const Collective& collective) override {
    std::unique_ptr<Rounds> rounds;
    if (collective.device().is_cpu()) rounds = rounds_of(place_, collective);
    if (rounds == nullptr) return other_->start(collective);
    return std::make_unique<SharedMemoryWork>(
        mover_, mover_->start(std::move(rounds), mark_of(collective)));
  }

 private:
  std::shared_ptr<Mover> mover_;
  std::shared_ptr<GroupBackend> other_;
  RoundsPlace place_;
};

}  // namespace

size_t shared_memory_bytes(int num_ranks) {
  return SlotRings::num_bytes(num_ranks);
}

std::shared_ptr<GroupBackend> share_memory(std::unique_ptr<SharedSegment> segment,
                                           const SharedMemoryPlace& place,
                                           std::shared_ptr<GroupBackend> other) {
  return std::make_shared<SharedMemoryBackend>(std::make_shared<Mover>(std::move(segment), place),
                                               std::move(other));
}

}  // namespace automodel::comm
