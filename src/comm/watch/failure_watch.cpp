#include "comm/watch/failure_watch.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>

#include "comm/watch/beat.h"
#include "core/awake_clock.h"
#include "core/clock.h"
#include "core/file.h"
#include "core/process.h"

namespace automodel::comm {

namespace {

constexpr const char* kFailureKey = "failure";
constexpr const char* kSeenKey = "failure_seen";
constexpr double kPollSeconds = 0.01;
/// The most that one look at the peers adds to their silence: a longer one was a process that stood
/// still, and its peers with it.
constexpr double kLongestRoundSeconds = 0.5;
constexpr double kPeersKnowSeconds = 2.0;
constexpr double kStoreSeconds = 5.0;
constexpr size_t kMaxPlaces = 8;  // of late ranks, in a text

std::string beat_key(int64_t rank) {
  return cat("beat/", rank);
}

void pause(double seconds) {
  std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
}

/// What a rank that did not come is doing instead.
std::string whereabouts(const Beat& beat) {
  for (const BeatLine& line : beat.lines) {
    if (line.waited.empty()) continue;
    return cat("has been in ", line.waited, " of group ", line.group, " for ",
               format_duration(line.wait_seconds));
  }
  return cat("has been computing for ", format_duration(beat.computing_seconds));
}

}  // namespace

RankProcess RankProcess::current() {
  std::array<char, 64> pid_namespace{};
  if (::readlink("/proc/self/ns/pid", pid_namespace.data(), pid_namespace.size() - 1) < 0) {
    pid_namespace[0] = '\0';
  }
  // Machines may share a name, and their first pid namespaces have the same number.
  std::string boot;
  const char* const kBootId = "/proc/sys/kernel/random/boot_id";
  if (path_exists(kBootId)) boot = trim(read_file(kBootId));
  return {cat(host_name(), " ", pid_namespace.data(), " ", boot), ::getpid()};
}

RankProcess RankProcess::parse(const std::string& text) {
  const size_t space = text.find(' ');
  if (space == std::string::npos) return {};
  return {text.substr(space + 1), parse_int(text.substr(0, space)).value_or(0)};
}

std::string RankProcess::text() const {
  return cat(pid, " ", host);
}

FailureWatch::FailureWatch(std::unique_ptr<Store> store, std::vector<RankProcess> processes,
                           const WatchOptions& options)
    : options_(options),
      processes_(std::move(processes)),
      store_(std::move(store)),
      beat_store_(store_->connect_again()),
      computing_since_(monotonic_seconds()) {
  const auto num_ranks = static_cast<int>(processes_.size());
  for (int i = 1; i < num_ranks && neighbour_ < 0; ++i) {
    const int rank = (options_.rank + i) % num_ranks;
    const std::string& here = processes_[static_cast<size_t>(options_.rank)].host;
    if (processes_[static_cast<size_t>(rank)].host != here) neighbour_ = rank;
  }
  send_beat(*store_);
  thread_ = std::thread([this] { beat_until_stopped(); });
}

FailureWatch::~FailureWatch() {
  stop();
}

void FailureWatch::stop() {
  {
    const std::lock_guard lock(mutex_);
    is_stopped_ = true;
  }
  stopped_.notify_all();
  if (thread_.joinable()) thread_.join();
}

WatchedCall FailureWatch::enter(const WatchedGroup& group, const std::string& operation,
                                const std::optional<WatchedPeer>& peer) {
  WatchedCall call{group, operation, peer, 0, monotonic_seconds()};
  const std::lock_guard lock(mutex_);
  Progress& progress = progress_[channel_of(call)];
  call.number = ++progress.num_started;
  progress.under_way.push_back({call.number, operation, call.begin_seconds, std::nullopt});
  return call;
}

void FailureWatch::begin_wait(const WatchedCall& call) {
  const std::lock_guard lock(mutex_);
  for (Operation& it : progress_[channel_of(call)].under_way) {
    if (it.number == call.number) it.wait_begin_seconds = monotonic_seconds();
  }
}

void FailureWatch::leave(const WatchedCall& call) {
  const std::lock_guard lock(mutex_);
  const double now = monotonic_seconds();
  const size_t num_left =
      std::erase_if(progress_[channel_of(call)].under_way, [&](const Operation& it) {
        if (it.number != call.number) return false;
        waited_seconds_ += now - it.wait_begin_seconds.value_or(now);
        return true;
      });
  if (num_left > 0) computing_since_ = now;
}

double FailureWatch::waited_seconds() const {
  const std::lock_guard lock(mutex_);
  return waited_seconds_;
}

FailureWatch::Channel FailureWatch::channel_of(const WatchedCall& call) {
  return {call.group.name,
          call.peer ? channel_name(call.peer->rank, call.peer->is_receiver) : std::string()};
}

std::string FailureWatch::next_beat() {
  const std::lock_guard lock(mutex_);
  const double now = monotonic_seconds();
  Beat beat{++num_beats_, now - computing_since_, {}};
  for (const auto& [channel, progress] : progress_) {
    const auto waited =
        std::find_if(progress.under_way.begin(), progress.under_way.end(),
                     [](const Operation& it) { return it.wait_begin_seconds.has_value(); });
    const bool is_waiting = waited != progress.under_way.end();
    beat.lines.push_back({channel.first, channel.second, progress.num_started,
                          is_waiting ? waited->name : std::string(),
                          is_waiting ? now - *waited->wait_begin_seconds : 0});
  }
  return format_beat(beat);
}

void FailureWatch::send_beat(Store& store) {
  store.set(beat_key(options_.rank), next_beat());
}

/// A machine that dies or is cut off closes no connection: its ranks' silence alone tells of it.
void FailureWatch::look_at_neighbour(Store& store) {
  if (neighbour_ < 0) return;
  const std::string beat = store.get(beat_key(neighbour_), kStoreSeconds).value_or("");
  if (neighbours_silence_.seconds(beat, awake_.seconds()) <= options_.lost_seconds) return;
  store.set_if_absent(kFailureKey, cat(name_ranks({neighbour_}), " vanished (no sign of life for ",
                                       format_duration(options_.lost_seconds), ")"));
}

void FailureWatch::beat_until_stopped() {
  std::unique_lock lock(mutex_);
  while (!is_stopped_) {
    lock.unlock();
    try {
      send_beat(*beat_store_);
      look_at_neighbour(*beat_store_);
      first_failure(*beat_store_);
    } catch (const StoreGone&) {
      lock.lock();
      is_store_gone_ = true;  // the rank's next collective says what that means
      return;
    }
    lock.lock();
    stopped_.wait_for(lock, std::chrono::duration<double>(options_.beat_seconds),
                      [this] { return is_stopped_; });
  }
}

std::optional<std::string> FailureWatch::first_failure(Store& store) {
  {
    const std::lock_guard lock(mutex_);
    if (failure_) return failure_;
  }
  if (!store.has(kFailureKey)) return std::nullopt;
  const std::optional<std::string> failure = store.get(kFailureKey, kStoreSeconds);
  bool is_first_look = false;
  {
    const std::lock_guard lock(mutex_);
    if (!failure_) failure_ = failure;
    is_first_look = failure_ && !std::exchange(has_seen_failure_, true);
    if (!is_first_look) return failure_;
  }
  store.add(kSeenKey, 1);  // not under the mutex, which every operation takes
  return this->failure();
}

std::string FailureWatch::publish(const std::string& verdict) {
  store_->set_if_absent(kFailureKey, verdict);
  return first_failure(*store_).value_or(verdict);
}

void FailureWatch::post(const std::string& text) {
  {
    const std::lock_guard lock(mutex_);
    if (failure_ == text || verdict_ == text) {
      if (!options_.serves_store) return;
    }
  }
  const std::lock_guard store_lock(store_mutex_);
  publish(cat("rank ", number_of(options_.rank), " failed: ", text));
  if (options_.serves_store) wait_until_peers_know();
}

void FailureWatch::wait_until_peers_know() {
  const auto num_ranks = static_cast<int64_t>(processes_.size());
  const double deadline = monotonic_seconds() + kPeersKnowSeconds;
  while (store_->add(kSeenKey, 0) < num_ranks && monotonic_seconds() < deadline) {
    pause(kPollSeconds);
  }
}

void FailureWatch::tell(const std::string& text) noexcept {
  const std::string verdict = cat("rank ", number_of(options_.rank), " failed: ", text);
  try {
    const std::lock_guard store_lock(store_mutex_);
    publish(verdict);
  } catch (const std::exception&) {
    // The store is gone, which the others find out by themselves.
  }
  const std::lock_guard lock(mutex_);
  if (!failure_) failure_ = verdict;
}

PeerFailure FailureWatch::explain(const WatchedCall& call, const std::string& reason,
                                  bool is_cause) {
  const std::lock_guard store_lock(store_mutex_);
  std::string cause;
  try {
    cause = is_cause ? publish_end(call, reason) : find_cause(call, reason);
  } catch (const StoreGone&) {
    const std::lock_guard lock(mutex_);
    if (!failure_) {
      failure_ = cat(options_.store_place, " vanished during ", call.operation, " of group ",
                     call.group.name, " (it served the run's store)");
    }
    cause = *failure_;
  }
  const std::lock_guard lock(mutex_);
  verdict_ = cause;
  return PeerFailure(cause);
}

/// "rank 2", "ranks 2, 3".
std::string FailureWatch::name_ranks(std::vector<int64_t> ranks) const {
  for (int64_t& rank : ranks) rank = number_of(rank);
  return cat(ranks.size() == 1 ? "rank " : "ranks ", join(ranks));
}

std::vector<int64_t> FailureWatch::ended_ranks(const WatchedGroup& group) const {
  const std::string& here = processes_[static_cast<size_t>(options_.rank)].host;
  std::vector<int64_t> ended;
  for (const int rank : group.ranks) {
    const RankProcess& process = processes_[static_cast<size_t>(rank)];
    if (process.host == here && has_ended(process.pid)) ended.push_back(rank);
  }
  return ended;
}

bool FailureWatch::has_lost_peer(const WatchedGroup& group) const {
  {
    const std::lock_guard lock(mutex_);
    if (failure_ || is_store_gone_) return true;
  }
  return !ended_ranks(group).empty();
}

std::optional<std::string> FailureWatch::failure() const {
  const std::lock_guard lock(mutex_);
  return failure_;
}

std::string FailureWatch::beat_of(int rank) {
  const std::lock_guard lock(store_mutex_);
  return last_beat(rank);
}

std::string FailureWatch::last_beat(int64_t rank) {
  return store_->get(beat_key(rank), kStoreSeconds).value_or("");
}

/// The ranks that did not come to a call: "" when all did.
struct FailureWatch::Late {
  std::string text;
  /// All of them wait for somebody else, and say whom they miss within this time.
  double seconds_until_known = 0;
};

FailureWatch::Late FailureWatch::find_late(const WatchedCall& call) {
  const WatchedGroup& group = call.group;
  // What a rank that has come counts: the same collectives, or the messages' other direction.
  const std::string counted =
      call.peer ? channel_name(options_.rank, !call.peer->is_receiver) : std::string();
  constexpr double kMarginSeconds = 0.5;
  const double most = group.timeout_seconds + options_.silence_seconds + kMarginSeconds;
  double until_known = 0;
  bool all_wait = true;
  std::vector<int64_t> late;
  std::vector<std::string> places;
  for (const int rank : group.ranks) {
    if (rank == options_.rank || (call.peer && rank != call.peer->rank)) continue;
    const Beat beat = parse_beat(last_beat(rank));
    const auto line = std::find_if(beat.lines.begin(), beat.lines.end(), [&](const BeatLine& it) {
      return it.group == group.name && it.peer == counted;
    });
    if (line != beat.lines.end() && line->num_started >= call.number) continue;
    late.push_back(rank);
    places.push_back(cat("rank ", number_of(rank), " ", whereabouts(beat)));
    const std::optional<double> waited = beat.waited_seconds();
    all_wait = all_wait && waited.has_value();
    until_known = std::max(until_known, most - waited.value_or(0));
  }
  if (late.empty()) return {};
  if (late.size() == 1) places[0] = cat("it", places[0].substr(places[0].find(" has")));
  if (places.size() > kMaxPlaces) {
    const size_t num_more = places.size() - kMaxPlaces;
    places.resize(kMaxPlaces);
    places.push_back(cat(num_more, " more"));
  }
  return {cat(name_ranks(late), " did not come to ", call.operation, " of group ", group.name,
              " within ", format_duration(group.timeout_seconds), " (", join(places, "; "), ")"),
          all_wait ? until_known : 0.0};
}

/// The failure that a rank leaves within some seconds.
std::optional<std::string> FailureWatch::await_failure(double seconds) {
  const double deadline = monotonic_seconds() + seconds;
  std::optional<std::string> failure = first_failure(*store_);
  while (!failure && monotonic_seconds() < deadline) {
    pause(kPollSeconds);
    failure = first_failure(*store_);
  }
  return failure;
}

std::string FailureWatch::find_cause(const WatchedCall& call, const std::string& reason) {
  const WatchedGroup& group = call.group;
  const double begin = monotonic_seconds();
  send_beat(*store_);
  std::map<int, std::string> beats;
  for (const int rank : group.ranks) beats[rank] = last_beat(rank);
  const std::string during = cat(" during ", call.operation, " of group ", group.name);
  AwakeClock clock(kLongestRoundSeconds);
  while (clock.seconds() < options_.silence_seconds) {
    // A rank leaves its text before it ends: look at processes first, at texts second.
    const std::vector<int64_t> ended = ended_ranks(group);
    if (const auto failure = first_failure(*store_)) return *failure;
    if (!ended.empty()) {
      return publish(
          cat(name_ranks(ended), " vanished", during,
              ended.size() == 1 ? " (its process has ended)" : " (their processes have ended)"));
    }
    pause(kPollSeconds);
  }
  std::vector<int64_t> silent;
  for (const int rank : group.ranks) {
    if (rank != options_.rank && last_beat(rank) == beats[rank]) silent.push_back(rank);
  }
  if (!silent.empty()) {
    return publish(cat(name_ranks(silent), " vanished", during, " (no sign of life for ",
                       format_duration(options_.silence_seconds), ")"));
  }
  if (begin - call.begin_seconds >= group.timeout_seconds) {
    const Late late = find_late(call);
    if (const auto failure = await_failure(late.seconds_until_known)) return *failure;
    if (!late.text.empty()) return publish(late.text);
  }
  return publish_end(call, reason);
}

std::string FailureWatch::publish_end(const WatchedCall& call, const std::string& reason) {
  return publish(cat(call.operation, " of group ", call.group.name, " failed: ", reason));
}

}  // namespace automodel::comm
