#include "trackers/background_tracker.h"

#include <pthread.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <condition_variable>
#include <csignal>
#include <deque>
#include <exception>
#include <functional>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "core/error.h"

namespace automodel::trackers {

namespace {

constexpr double kGraceSeconds = 2;  // for a call that was cancelled

using Lock = std::unique_lock<std::mutex>;

/// The signals of a run are for the threads that know them.
class NoSignals final {
 public:
  NoSignals() {
    sigset_t all;
    ::sigfillset(&all);
    ::pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  ~NoSignals() { ::pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  NoSignals(const NoSignals&) = delete;
  NoSignals& operator=(const NoSignals&) = delete;

 private:
  sigset_t before_{};
};

/// What came of a call that is about `num_records`. Trackers throw nothing; what a library below
/// them throws ends no run either.
Delivery outcome_of(const std::function<Delivery()>& call, size_t num_records) {
  try {
    return call();
  } catch (const std::exception& error) {
    return {Delivery::Outcome::kRefused, num_records, error.what()};
  }
}

}  // namespace

void LeavingReporter::info(std::string_view text) {
  const std::lock_guard lock(mutex_);
  if (reporter_ != nullptr) reporter_->info(text);
}

void LeavingReporter::warning(std::string_view text) {
  const std::lock_guard lock(mutex_);
  if (reporter_ != nullptr) reporter_->warning(text);
}

void LeavingReporter::error(std::string_view text) {
  const std::lock_guard lock(mutex_);
  if (reporter_ != nullptr) reporter_->error(text);
}

void LeavingReporter::leave() {
  const std::lock_guard lock(mutex_);
  reporter_ = nullptr;
}

struct BackgroundTracker::State {
  std::unique_ptr<Tracker> tracker;
  QueueOptions options;
  // guarded by `mutex`
  std::mutex mutex;
  std::condition_variable changed;   // for the thread
  std::condition_variable finished;  // for end()
  std::deque<std::shared_ptr<const Record>> waiting;
  size_t num_waiting_numbers = 0;
  int64_t num_added = 0;  // to the queue or lost at once
  std::optional<RunEnd> end;
  bool is_cancelled = false;
  bool is_refused = false;  // nothing more will be taken
  bool has_left = false;    // the thread does nothing more
  Tally tally;
  std::shared_ptr<LeavingReporter> reporter;
  int num_failures = 0;       // in a row
  int num_last_failures = 0;  // of those, once the run had ended
  // of the thread
  std::vector<std::shared_ptr<const Record>> in_hand;
  bool has_warned_of_loss = false;

  void take_in_hand();
  bool settle(const Delivery& delivery, Lock& lock);
  bool wait_to_try_again(Lock& lock);
  bool insist(Lock& lock, const std::function<Delivery()>& call);
  void pause(Lock& lock, double seconds, bool until_end);
  void wait_for_records(Lock& lock);
};

/// Moves records out of the queue: what a delivery is made of is not dropped meanwhile.
void BackgroundTracker::State::take_in_hand() {
  while (!waiting.empty() && in_hand.size() < options.most_at_once) {
    num_waiting_numbers -= waiting.front()->num_numbers();
    in_hand.push_back(std::move(waiting.front()));
    waiting.pop_front();
  }
}

/// Waits, until the run ends or what waits is given up.
void BackgroundTracker::State::pause(Lock& lock, double seconds, bool until_end) {
  changed.wait_for(lock, std::chrono::duration<double>(seconds),
                   [&] { return is_cancelled || (until_end && end.has_value()); });
}

/// Waits for records or the end.
void BackgroundTracker::State::wait_for_records(Lock& lock) {
  const auto has_work = [&] { return end || !waiting.empty() || !in_hand.empty(); };
  const double idle_seconds = tracker->idle_seconds();
  if (idle_seconds <= 0) return changed.wait(lock, has_work);
  while (!changed.wait_for(lock, std::chrono::duration<double>(idle_seconds), has_work)) {
    lock.unlock();
    outcome_of(
        [&] {
          tracker->idle();
          return Delivery{};
        },
        0);
    lock.lock();
  }
}

/// After a failure that may pass. False: there is no time for another attempt.
bool BackgroundTracker::State::wait_to_try_again(Lock& lock) {
  if (is_cancelled) return false;
  ++num_failures;
  if (num_failures == 1) {
    lock.unlock();
    reporter->warning(
        cat(tracker->name(), ": ", tally.problem, "; trying again while the run goes on"));
    lock.lock();
  }
  const bool is_ending = end.has_value();
  if (is_ending) ++num_last_failures;
  if (is_cancelled || num_last_failures >= options.num_last_attempts) return false;
  const double longer = options.backoff_seconds * std::pow(2.0, std::min(num_failures - 1, 30));
  const double longest = is_ending ? options.backoff_seconds : options.longest_backoff_seconds;
  pause(lock, std::min(longer, longest), !is_ending);
  return !is_cancelled;
}

/// Takes note of what came of records. False: no more attempts.
bool BackgroundTracker::State::settle(const Delivery& delivery, Lock& lock) {
  if (!delivery.problem.empty() && !is_cancelled) tally.problem = delivery.problem;
  if (delivery.outcome == Delivery::Outcome::kLater) return wait_to_try_again(lock);
  const auto num_settled = static_cast<std::ptrdiff_t>(delivery.num_records);
  in_hand.erase(in_hand.begin(), in_hand.begin() + num_settled);
  const bool is_done = delivery.outcome == Delivery::Outcome::kDone;
  if (is_done) tally.num_sent += num_settled;
  const bool has_recovered = std::exchange(num_failures, 0) > 0 && is_done;
  num_last_failures = 0;
  // A call that was cancelled may say anything; end() counts what is lost then.
  const bool is_first_loss = !is_done && !is_cancelled && !std::exchange(has_warned_of_loss, true);
  lock.unlock();
  if (has_recovered) reporter->info(cat(tracker->name(), ": takes records again"));
  if (is_first_loss) {
    reporter->warning(
        cat(tracker->name(), ": records are lost: ", delivery.problem, "; the run goes on"));
  }
  lock.lock();
  return !is_cancelled;
}

/// Calls until it is done. False: it never will be.
bool BackgroundTracker::State::insist(Lock& lock, const std::function<Delivery()>& call) {
  while (true) {
    lock.unlock();
    const Delivery delivery = outcome_of(call, 0);
    lock.lock();
    if (!delivery.problem.empty() && !is_cancelled) tally.problem = delivery.problem;
    if (delivery.outcome == Delivery::Outcome::kRefused) return false;
    if (delivery.outcome == Delivery::Outcome::kDone) {
      num_failures = num_last_failures = 0;
      return true;
    }
    if (!wait_to_try_again(lock)) return false;
  }
}

BackgroundTracker::BackgroundTracker(std::unique_ptr<Tracker> tracker, const QueueOptions& options,
                                     std::shared_ptr<LeavingReporter> reporter)
    : state_(std::make_shared<State>()) {
  state_->tally.tracker = tracker->name();
  state_->tracker = std::move(tracker);
  state_->options = options;
  state_->reporter = std::move(reporter);
  const NoSignals none;
  thread_ = std::thread([state = state_] { work(*state); });
}

BackgroundTracker::~BackgroundTracker() {
  if (thread_.joinable()) end(RunEnd::kFailed, 0);
}

void BackgroundTracker::add(std::shared_ptr<const Record> record) {
  const std::lock_guard lock(state_->mutex);
  ++state_->num_added;
  if (state_->is_refused || state_->end) return;
  state_->num_waiting_numbers += record->num_numbers();
  state_->waiting.push_back(std::move(record));
  while (state_->num_waiting_numbers > state_->options.most_values && state_->waiting.size() > 1) {
    state_->num_waiting_numbers -= state_->waiting.front()->num_numbers();
    state_->waiting.pop_front();
  }
  state_->changed.notify_one();
}

void BackgroundTracker::work(State& state) {
  Lock lock(state.mutex);
  state.tally.has_started = state.insist(lock, [&] { return state.tracker->start(); });
  if (!state.tally.has_started && !state.is_cancelled && !state.end) {
    const std::string problem = state.tally.problem;
    lock.unlock();
    state.reporter->warning(
        cat(state.tracker->name(), ": ", problem, "; nothing is sent to it, the run goes on"));
    lock.lock();
  }
  while (state.tally.has_started) {
    state.wait_for_records(lock);
    if (state.in_hand.empty()) state.take_in_hand();
    if (state.in_hand.empty()) break;  // the end
    lock.unlock();
    const Delivery delivery =
        outcome_of([&] { return state.tracker->deliver(state.in_hand); }, state.in_hand.size());
    lock.lock();
    if (!state.settle(delivery, lock)) break;
    if (state.in_hand.empty()) state.pause(lock, state.options.pause_seconds, true);
  }
  state.is_refused = true;
  state.in_hand.clear();
  state.waiting.clear();
  state.changed.wait(lock, [&] { return state.end.has_value(); });
  if (state.tally.has_started && !state.is_cancelled) {
    const RunEnd how = *state.end;
    state.tally.has_finished = state.insist(lock, [&] { return state.tracker->finish(how); });
  }
  if (!state.tally.has_finished) {
    state.tally.num_sent -= static_cast<int64_t>(state.tracker->num_held());
  }
  state.has_left = true;
  state.finished.notify_all();
}

Tally BackgroundTracker::end(RunEnd how, double most_seconds) {
  const auto has_left = [this] { return state_->has_left; };
  Lock lock(state_->mutex);
  state_->end = how;
  state_->changed.notify_all();
  state_->finished.wait_for(lock, std::chrono::duration<double>(most_seconds), has_left);
  if (!state_->has_left) {
    state_->is_cancelled = true;
    state_->changed.notify_all();
    state_->tracker->cancel();
    state_->finished.wait_for(lock, std::chrono::duration<double>(kGraceSeconds), has_left);
  }
  Tally tally = state_->tally;
  const bool is_left_behind = !state_->has_left;
  tally.num_lost = state_->num_added - tally.num_sent;
  if (state_->is_cancelled && (is_left_behind || state_->num_failures <= 1)) {
    tally.problem = cat("no answer within ", format_duration(most_seconds));
  }
  lock.unlock();
  if (is_left_behind) {
    state_->reporter->leave();
    thread_.detach();
  } else {
    thread_.join();
  }
  return tally;
}

}  // namespace automodel::trackers
