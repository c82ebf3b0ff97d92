#include "comm/watch/slow_work.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "core/clock.h"
#include "core/long_work.h"

namespace automodel::comm {

namespace {

constexpr double kBeatSeconds = 0.5;
constexpr double kProgressSeconds = 0.25;
constexpr const char* kDone = "done";

/// What ranks know of each other at one meeting.
struct Meeting {
  std::string key;
  std::string arrived(int rank) const { return cat(key, "/arrived/", rank); }
  std::string all() const { return cat(key, "/all"); }
  std::string num_arrived() const { return cat(key, "/num_arrived"); }
  std::string num_failed() const { return cat(key, "/num_failed"); }
};

/// Beside training a terminal's last line is the training's.
LongWorkOptions telling(const SlowWorkOptions& options) {
  LongWorkOptions telling{.report_seconds = options.report_seconds};
  if (options.is_beside_training) telling.show_after_seconds = HUGE_VAL;
  return telling;
}

}  // namespace

struct SlowWork::State {
  State(Store& store, std::shared_ptr<FailureWatch> failures, WatchedGroup group,
        const SlowWorkOptions& given, const std::atomic<uint64_t>& done)
      : store(store.connect_again()),
        beat_store(store.connect_again()),
        watch(std::move(failures)),
        world(std::move(group)),
        options(given),
        progress(done),
        thread([this] { beat_until_stopped(); }) {}

  ~State() {
    {
      const std::lock_guard lock(mutex);
      is_stopped = true;
    }
    stopped.notify_all();
    thread.join();
  }

  std::string progress_key(int rank) const { return cat(options.name, "/progress/", rank); }

  void beat_until_stopped() {
    std::unique_lock lock(mutex);
    for (int64_t beat = 0; !is_stopped; ++beat) {
      lock.unlock();
      try {
        // A beat is new each time, also while the bytes stand still.
        const std::lock_guard use(beat_store_mutex);
        beat_store->set(progress_key(watch->rank()), cat(beat, " ", progress.load()));
      } catch (const StoreGone&) {
        return;  // whoever waits says what that means
      }
      lock.lock();
      stopped.wait_for(lock, std::chrono::duration<double>(kBeatSeconds),
                       [this] { return is_stopped; });
    }
  }

  /// "3.0 GiB on rank 0, 1.5 GiB on rank 1".
  std::string told_progress() {
    std::vector<std::string> parts;
    try {
      for (const int rank : world.ranks) {
        const std::lock_guard use(beat_store_mutex);
        const std::string text = beat_store->get(progress_key(rank), 0.001).value_or("");
        const auto bytes = parse_int(text.substr(text.find(' ') + 1));
        if (!bytes) continue;
        parts.push_back(
            cat(format_bytes(static_cast<uint64_t>(*bytes)), " on rank ", watch->number_of(rank)));
      }
    } catch (const StoreGone&) {
      return "";  // whoever waits says what that means
    }
    return join(parts, ", ");
  }

  /// Who is told of long work: one rank's reporter is enough.
  Reporter* reporter() const {
    return watch->rank() == world.ranks.front() ? options.reporter : nullptr;
  }

  void arrive(const Meeting& meeting, const std::string& failure) {
    const int64_t size = static_cast<int64_t>(world.ranks.size());
    store->set(meeting.arrived(watch->rank()), failure.empty() ? kDone : failure);
    if (!failure.empty()) store->add(meeting.num_failed(), 1);
    if (store->add(meeting.num_arrived(), 1) == size) store->set(meeting.all(), "1");
  }

  /// Tells how this rank's work ended and waits until all have arrived. Throws PeerFailure.
  WatchedCall meet(const Meeting& meeting, const std::string& own_failure) {
    const WatchedCall call = watch->enter(world, name);
    explaining_a_lost_store(call, [&] {
      arrive(meeting, own_failure);
      if (!options.is_beside_training) watch->begin_wait(call);
      await_all(meeting, call);
      if (!last_key.empty()) forget({last_key});
    });
    last_key = meeting.key;
    watch->leave(call);
    return call;
  }

  /// Nobody asks for a meeting any more once all have come to the next one.
  void forget(const Meeting& meeting) {
    store->erase(meeting.arrived(watch->rank()));
    if (watch->rank() != world.ranks.front()) return;
    for (const std::string& key : {meeting.all(), meeting.num_arrived(), meeting.num_failed()}) {
      store->erase(key);
    }
  }

  /// Throws a peer's failure as PeerFailure.
  void throw_if_failed(const Meeting& meeting, const WatchedCall& call) {
    explaining_a_lost_store(call, [&] {
      if (store->add(meeting.num_failed(), 0) == 0) return;
      for (const int rank : world.ranks) {
        const std::string text = store->get(meeting.arrived(rank), kBeatSeconds).value_or("");
        if (text == kDone) continue;
        throw PeerFailure(cat("rank ", watch->number_of(rank), " failed: ", text));
      }
    });
  }

  template <typename Talk>
  void explaining_a_lost_store(const WatchedCall& call, const Talk& talk) {
    try {
      talk();
    } catch (const StoreGone&) {
      throw watch->explain(call, "the store is gone");
    }
  }

  void await_all(const Meeting& meeting, const WatchedCall& call) {
    Seen seen;
    while (!store->get(meeting.all(), kProgressSeconds)) {
      if (watch->has_lost_peer(world)) throw watch->explain(call, "a peer is gone");
      look_at_progress(meeting, call, seen);
    }
  }

  struct Seen {
    std::string beat;
    std::string bytes;
    double beat_seconds = monotonic_seconds();
    double bytes_seconds = monotonic_seconds();
  };

  /// Everybody looks at the next rank, so somebody who waits looks at every rank, or at one of
  /// those that should.
  void look_at_progress(const Meeting& meeting, const WatchedCall& call, Seen& seen) {
    const int rank = (watch->rank() + 1) % static_cast<int>(world.ranks.size());
    const double now = monotonic_seconds();
    if (store->has(meeting.arrived(rank))) {
      seen = {};
      return;
    }
    const std::string beat = store->get(progress_key(rank), kProgressSeconds).value_or("");
    const std::string bytes = beat.substr(beat.find(' ') + 1);
    if (std::exchange(seen.beat, beat) != beat) seen.beat_seconds = now;
    if (std::exchange(seen.bytes, bytes) != bytes) seen.bytes_seconds = now;
    if (now - seen.beat_seconds > options.silence_seconds) {
      throw watch->explain(call, cat("no sign of life from rank ", watch->number_of(rank)));
    }
    if (now - seen.bytes_seconds > options.stall_seconds) {
      throw PeerFailure(cat("rank ", watch->number_of(rank), " has made no progress in ", name,
                            " for ", format_duration(now - seen.bytes_seconds)));
    }
  }

  std::unique_ptr<Store> store;
  std::unique_ptr<Store> beat_store;  // of the threads
  std::mutex beat_store_mutex;
  std::shared_ptr<FailureWatch> watch;
  WatchedGroup world;
  SlowWorkOptions options;
  const std::atomic<uint64_t>& progress;
  int64_t num_meetings = 0;
  std::string last_key;  // of the meeting whose keys are still in the store
  std::mutex mutex;      // guards is_stopped
  std::condition_variable stopped;
  bool is_stopped = false;
  std::string name;  // of the work under way, "" for none
  std::thread thread;
};

SlowWork::SlowWork(const SlowWorkOptions& options) : options_(options) {}

SlowWork::SlowWork(Store& store, std::shared_ptr<FailureWatch> watch, WatchedGroup world,
                   const SlowWorkOptions& options)
    : state_(
          std::make_unique<State>(store, std::move(watch), std::move(world), options, progress_)) {}

SlowWork::~SlowWork() = default;

std::atomic<uint64_t>& SlowWork::progress() {
  return progress_;
}

void SlowWork::run(const std::string& name, const std::function<void()>& work) {
  has_met_ = state_ == nullptr;
  if (state_ == nullptr) {
    const LongWork told(options_.reporter, name, bytes_moved(progress_), telling(options_));
    work();
    return;
  }
  const LongWork told(
      state_->reporter(), name, [this] { return state_->told_progress(); },
      telling(state_->options));
  const Meeting meeting{cat(state_->options.name, "/", ++state_->num_meetings)};
  state_->name = name;
  std::exception_ptr own_failure;
  std::string text;
  try {
    work();
  } catch (const PeerFailure&) {
    throw;  // everybody ends with it
  } catch (const UserError& error) {
    own_failure = std::current_exception();
    text = error.what();
  } catch (const std::exception& error) {
    own_failure = std::current_exception();
    text = internal_error_text(error);
  }
  const WatchedCall call = state_->meet(meeting, text);
  has_met_ = true;
  state_->name.clear();
  if (own_failure) std::rethrow_exception(own_failure);
  state_->throw_if_failed(meeting, call);
}

}  // namespace automodel::comm
