#pragma once

#include <condition_variable>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "comm/groups/process_group.h"
#include "comm/store/store.h"
#include "comm/watch/beat.h"
#include "core/awake_clock.h"

namespace automodel::comm {

/// The host of a rank's process, by which ranks on that host can check whether it is alive.
struct RankProcess {
  std::string host;  ///< host name, pid namespace and number of the boot
  int64_t pid = 0;

  static RankProcess current();
  static RankProcess parse(const std::string& text);
  std::string text() const;
};

struct WatchOptions {
  int rank = 0;
  int first_rank = 0;            ///< added to ranks in texts, of a world that is part of a run
  bool serves_store = false;     ///< waits in post() until the peers have read it
  std::string store_place;       ///< who serves the store, for texts: "rank 0", "the launcher"
  double beat_seconds = 0.5;     ///< period of the signs of life
  double silence_seconds = 2.0;  ///< a rank without one for so long has vanished
  /// So long a rank on another host, whose process cannot be looked at, may be without one while
  /// nothing else says that it is lost.
  double lost_seconds = 30;
};

/// A group's name and ranks, for texts.
struct WatchedGroup {
  std::string name;
  std::vector<int> ranks;  ///< global
  double timeout_seconds = 60;
};

/// The other end of a send or a receive.
struct WatchedPeer {
  int rank = 0;  ///< global
  bool is_receiver = false;
};

/// An operation that this rank has started.
struct WatchedCall {
  WatchedGroup group;
  std::string operation;            ///< "all_reduce", "send to rank 3"
  std::optional<WatchedPeer> peer;  ///< nullopt: a collective of the whole group
  int64_t number = 0;  ///< from 1, among the group's collectives or the peer's messages
  double begin_seconds = 0;
};

/// Finds the cause of a failed collective. A thread publishes this rank's signs of life with the
/// collectives that it is in, and reads the first failure that any rank leaves in the store.
class FailureWatch final {
 public:
  /// `processes`: those of all ranks, by rank.
  FailureWatch(std::unique_ptr<Store> store, std::vector<RankProcess> processes,
               const WatchOptions& options);
  ~FailureWatch();
  FailureWatch(const FailureWatch&) = delete;
  FailureWatch& operator=(const FailureWatch&) = delete;

  /// Called when an operation has been started. leave() ends it, and may be called more than once;
  /// several operations may be under way.
  WatchedCall enter(const WatchedGroup& group, const std::string& operation,
                    const std::optional<WatchedPeer>& peer = std::nullopt);
  /// From now on this rank only waits for the operation, until leave().
  void begin_wait(const WatchedCall& call);
  void leave(const WatchedCall& call);
  /// How long this rank has only waited for operations that have ended.
  double waited_seconds() const;

  int rank() const { return options_.rank; }
  /// What texts call a rank.
  int64_t number_of(int64_t rank) const { return options_.first_rank + rank; }
  /// The first failure of any rank, if this rank knows it.
  std::optional<std::string> failure() const;
  /// A rank's latest beat (beat.h), as it lies in the store. May be called from any thread. Throws
  /// StoreGone.
  std::string beat_of(int rank);

  /// Whether a rank is known to have failed, or a process of the group on this host has ended.
  bool has_lost_peer(const WatchedGroup& group) const;

  /// The cause of an operation that ended with `reason`: a peer's own text, the ranks that
  /// vanished, or those that did not start it. Takes up to 2.5 s, and a timeout more when all
  /// missing ranks wait for another one; none where `is_cause` says that the reason is the cause.
  /// Leaves the cause in the store for the others. From any thread.
  PeerFailure explain(const WatchedCall& call, const std::string& reason, bool is_cause = false);

  /// Leaves this rank's failure in the store for the others, unless it only repeats theirs.
  void post(const std::string& text);
  /// Posts without waiting until others have read it. Never throws: without a store nobody can read
  /// it.
  void tell(const std::string& text) noexcept;

  /// Ends the signs of life.
  void stop();

 private:
  struct Operation {
    int64_t number = 0;
    std::string name;
    double begin_seconds = 0;
    std::optional<double> wait_begin_seconds;
  };
  /// How far this rank is with a group's collectives, or with its messages to or from one rank.
  struct Progress {
    int64_t num_started = 0;
    std::deque<Operation> under_way;
  };
  /// A group and the other rank, "" for collectives.
  using Channel = std::pair<std::string, std::string>;

  static Channel channel_of(const WatchedCall& call);
  std::string name_ranks(std::vector<int64_t> ranks) const;
  void beat_until_stopped();
  std::string next_beat();
  void send_beat(Store& store);
  void look_at_neighbour(Store& store);
  std::optional<std::string> first_failure(Store& store);
  std::string publish(const std::string& verdict);
  std::string find_cause(const WatchedCall& call, const std::string& reason);
  std::string publish_end(const WatchedCall& call, const std::string& reason);
  std::vector<int64_t> ended_ranks(const WatchedGroup& group) const;
  std::string last_beat(int64_t rank);
  struct Late;
  Late find_late(const WatchedCall& call);
  std::optional<std::string> await_failure(double seconds);
  void wait_until_peers_know();

  WatchOptions options_;
  std::vector<RankProcess> processes_;
  std::mutex store_mutex_;             // held while explaining a failure
  std::unique_ptr<Store> store_;       // for explaining
  std::unique_ptr<Store> beat_store_;  // used by the thread
  mutable std::mutex mutex_;           // guards the members below
  std::condition_variable stopped_;
  bool is_stopped_ = false;
  bool has_seen_failure_ = false;
  bool is_store_gone_ = false;
  int64_t num_beats_ = 0;
  std::optional<std::string> failure_;
  std::string verdict_;
  double computing_since_ = 0;  ///< the end of the last wait
  double waited_seconds_ = 0;
  std::map<Channel, Progress> progress_;
  // The thread alone uses these.
  int neighbour_ = -1;  ///< the next rank on another host; -1: there is none
  Silence neighbours_silence_;
  AwakeClock awake_{0.5};  ///< a longer round was a process that stood still
  std::thread thread_;
};

}  // namespace automodel::comm
