#pragma once

#include <ATen/ATen.h>

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "comm/groups/group_backend.h"
#include "comm/groups/process_group.h"
#include "comm/shared_memory/reduce.h"
#include "core/text.h"

namespace automodel::comm {

/// Groups of ranks that are threads of one process, which keep the rules of NCCL under c10d:
/// - A group's collectives are one communicator, each pair of ranks that sends or receives is
///   another. A communicator is made in its first operation, which blocks until all members come.
/// - A communicator's operations of a rank are one stream: none begins before the one before it is
///   done. A receive at its head keeps a send behind it from going out.
/// - Messages have no tags; a send is not done before its receive has come.
/// - Ranks whose streams come to different operations hang, or get each other's bytes.
/// Nobody is waited for by the clock: once no rank can go on, all throw who waits for what.
class NcclRules final {
 public:
  explicit NcclRules(int num_ranks) : ranks_(static_cast<size_t>(num_ranks)) {}

  using Kind = CollectiveKind;

  /// An operation of one rank. Its tag is nothing but a text in errors.
  struct Operation : Collective {
    std::string what;  ///< "all_gather of dp"
    bool is_done = false;
  };
  using Started = std::shared_ptr<Operation>;

  /// What a communicator is of: a group's ranks in the world, and for messages the two of them.
  struct Place {
    std::vector<int> group;
    std::vector<int> pair;
    const std::vector<int>& members() const { return pair.empty() ? group : pair; }
    auto operator<=>(const Place&) const = default;
  };

  /// Starts what `rank` of the world gives. Blocks until the communicator is made.
  Started start(int rank, const Place& of_whom, Operation given) {
    std::unique_lock lock(mutex_);
    Communicator& communicator = of(of_whom);
    const size_t place = communicator.place_of(rank);
    if (!communicator.has_come[place]) {
      communicator.has_come[place] = true;
      changed_.notify_all();
      block(lock, rank,
            cat("the start of the communicator of ranks ", names_of(communicator.members), " in ",
                given.what),
            [&] { return communicator.is_made(); });
    }
    auto started = std::make_shared<Operation>(std::move(given));
    communicator.streams[place].push_back(started);
    run(communicator);
    changed_.notify_all();
    throw_problem();
    return started;
  }

  void wait(int rank, const Place& of_whom, const Started& operation) {
    std::unique_lock lock(mutex_);
    const Communicator& communicator = of(of_whom);
    block(
        lock, rank, operation->what, [&] { return operation->is_done; },
        [&] { return communicator.where(); });
  }

  bool is_done(const Started& operation) {
    const std::lock_guard lock(mutex_);
    return operation->is_done;
  }

  /// A rank will call nothing any more.
  void leave(int rank) {
    const std::lock_guard lock(mutex_);
    ranks_[static_cast<size_t>(rank)].has_left = true;
    find_deadlock();
    changed_.notify_all();
  }

 private:
  struct Rank {
    bool has_left = false;
    std::string waits_for;  // "": it does not
    std::function<bool()> can_go_on;
    std::function<std::string()> where;
  };

  struct Communicator {
    std::vector<int> members;
    std::vector<bool> has_come;
    std::vector<std::deque<Started>> streams;

    size_t place_of(int rank) const {
      return static_cast<size_t>(std::find(members.begin(), members.end(), rank) - members.begin());
    }
    bool is_made() const {
      return std::find(has_come.begin(), has_come.end(), false) == has_come.end();
    }
    /// What stands at the heads of its streams.
    std::string where() const {
      std::vector<std::string> heads;
      for (size_t i = 0; i < members.size(); ++i) {
        heads.push_back(cat("that of rank ", members[i], " is at ",
                            streams[i].empty() ? "nothing" : streams[i].front()->what));
      }
      return join(heads, ", ");
    }
  };

  static std::string names_of(const std::vector<int>& members) {
    return join(std::vector<int64_t>(members.begin(), members.end()), ", ");
  }

  Communicator& of(const Place& place) {
    Communicator& communicator = communicators_[place];
    if (communicator.members.empty()) {
      communicator.members = place.members();
      communicator.has_come.resize(communicator.members.size());
      communicator.streams.resize(communicator.members.size());
    }
    return communicator;
  }

  void throw_problem() const {
    if (!problem_.empty()) throw std::runtime_error(problem_);
  }

  void block(
      std::unique_lock<std::mutex>& lock, int rank, const std::string& what,
      const std::function<bool()>& can_go_on,
      const std::function<std::string()>& where = [] { return std::string(); }) {
    Rank& own = ranks_[static_cast<size_t>(rank)];
    own.waits_for = what;
    own.can_go_on = can_go_on;
    own.where = where;
    find_deadlock();
    changed_.wait(lock, [&] { return can_go_on() || !problem_.empty(); });
    own.waits_for.clear();
    own.can_go_on = nullptr;
    throw_problem();
  }

  /// Whether every rank that is there waits for something that none of them will do.
  void find_deadlock() {
    std::vector<std::string> waits;
    for (size_t rank = 0; rank < ranks_.size(); ++rank) {
      const Rank& it = ranks_[rank];
      if (it.has_left) continue;
      if (it.waits_for.empty() || it.can_go_on()) return;
      const std::string where = it.where();
      waits.push_back(cat("rank ", rank, " waits for ", it.waits_for,
                          where.empty() ? "" : cat(" (of its streams ", where, ")")));
    }
    if (waits.empty() || !problem_.empty()) return;
    problem_ = cat("deadlock: ", join(waits, "; "));
    changed_.notify_all();
  }

  /// Does what all members' streams have come to.
  void run(Communicator& communicator) {
    while (true) {
      std::vector<Started> heads;
      for (const auto& stream : communicator.streams) {
        if (stream.empty()) return;
        heads.push_back(stream.front());
      }
      if (heads[0]->is_message()) {
        if (heads[0]->kind == heads[1]->kind) return;  // both send or both receive: for ever
        deliver(heads[0]->kind == Kind::kSend ? *heads[0] : *heads[1],
                heads[0]->kind == Kind::kSend ? *heads[1] : *heads[0]);
      } else {
        collect(communicator, heads);
      }
      if (!problem_.empty()) return;
      for (size_t i = 0; i < heads.size(); ++i) {
        heads[i]->is_done = true;
        communicator.streams[i].pop_front();
      }
    }
  }

  void deliver(const Operation& sent, Operation& received) {
    const bool fits = sent.in.numel() == received.out.numel() &&
                      sent.in.scalar_type() == received.out.scalar_type() &&
                      sent.tag == received.tag;
    if (!fits) {
      problem_ = cat(received.what, " (tag ", received.tag, ") takes another message: ", sent.what,
                     " (tag ", sent.tag, ")");
      return;
    }
    received.out.view({-1}).copy_(sent.in.reshape({-1}));
  }

  void collect(const Communicator& communicator, const std::vector<Started>& heads) {
    const Operation& first = *heads[0];
    for (const Started& head : heads) {
      const bool fits = head->kind == first.kind && head->op == first.op &&
                        head->peer == first.peer && has_same_size(*head, first);
      if (fits) continue;
      problem_ = cat("different operations meet: ", communicator.where());
      return;
    }
    std::vector<at::Tensor> given;  // an output may cover an input
    for (const Started& head : heads) {
      given.push_back(head->in.defined() ? head->in.clone() : at::Tensor());
    }
    for (size_t i = 0; i < heads.size(); ++i) finish(*heads[i], i, given, heads);
  }

  static bool has_same_size(const Operation& a, const Operation& b) {
    if (a.kind == Kind::kBarrier) return true;
    if (a.in.scalar_type() != b.in.scalar_type()) return false;
    return a.kind == Kind::kAllToAll || a.in.numel() == b.in.numel();
  }

  void finish(Operation& own, size_t place, const std::vector<at::Tensor>& given,
              const std::vector<Started>& heads) {
    switch (own.kind) {
      case Kind::kAllReduce:
      case Kind::kReduceScatter: {
        const auto count = static_cast<size_t>(own.out.numel()) * own.out.element_size();
        const size_t begin = own.kind == Kind::kReduceScatter ? place * count : 0;
        std::vector<const std::byte*> sources;
        for (const at::Tensor& it : given) {
          sources.push_back(static_cast<const std::byte*>(it.const_data_ptr()) + begin);
        }
        reduce_sources(own.out.scalar_type(), own.op,
                       static_cast<std::byte*>(own.out.mutable_data_ptr()), sources,
                       own.out.numel());
        return;
      }
      case Kind::kBroadcast:
        own.out.copy_(given[static_cast<size_t>(own.peer)]);
        return;
      case Kind::kAllGather: {
        const at::Tensor parts = own.out.view({static_cast<int64_t>(given.size()), -1});
        for (size_t i = 0; i < given.size(); ++i) {
          parts.select(0, static_cast<int64_t>(i)).copy_(given[i].reshape({-1}));
        }
        return;
      }
      case Kind::kAllToAll:
        return exchange(own, place, given, heads);
      case Kind::kBarrier:
      case Kind::kSend:
      case Kind::kRecv:
        return;
    }
  }

  void exchange(Operation& own, size_t place, const std::vector<at::Tensor>& given,
                const std::vector<Started>& heads) {
    int64_t at = 0;
    for (size_t i = 0; i < given.size(); ++i) {
      const std::vector<int64_t>& sent = heads[i]->counts.in;
      const int64_t count = own.counts.out[i];
      if (sent[place] != count) {
        problem_ = cat(own.what, ": ", sent[place], " rows come where ", count, " are wanted");
        return;
      }
      int64_t begin = 0;
      for (size_t k = 0; k < place; ++k) begin += sent[k];
      own.out.narrow(0, at, count).copy_(given[i].narrow(0, begin, count));
      at += count;
    }
  }

  std::mutex mutex_;  // guards all that follows
  std::condition_variable changed_;
  std::vector<Rank> ranks_;
  std::map<Place, Communicator> communicators_;
  std::string problem_;
};

/// A rank's end of a group over them.
class RuledBackend final : public GroupBackend {
 public:
  /// `rank` of the world, `members` of the group.
  RuledBackend(std::shared_ptr<NcclRules> rules, std::string name, int rank,
               std::vector<int> members)
      : rules_(std::move(rules)),
        name_(std::move(name)),
        rank_(rank),
        members_(std::move(members)) {}

  int rank() const override {
    return static_cast<int>(std::find(members_.begin(), members_.end(), rank_) - members_.begin());
  }
  int size() const override { return static_cast<int>(members_.size()); }

  std::unique_ptr<BackendWork> start(const Collective& collective) override {
    NcclRules::Operation operation{collective, std::string(collective_name(collective.kind))};
    NcclRules::Place place{members_, {}};
    if (collective.is_message()) {
      const int peer = global(collective.peer);
      const auto [low, high] = std::minmax({rank_, peer});
      place.pair = {low, high};
      operation.what +=
          cat(collective.kind == CollectiveKind::kSend ? " to rank " : " from rank ", peer);
    }
    operation.what += cat(" of ", name_);
    auto started = rules_->start(rank_, place, std::move(operation));
    return std::make_unique<RuledWork>(rules_, rank_, place, std::move(started));
  }

 private:
  class RuledWork final : public BackendWork {
   public:
    RuledWork(std::shared_ptr<NcclRules> rules, int rank, NcclRules::Place place,
              NcclRules::Started operation)
        : rules_(std::move(rules)),
          rank_(rank),
          place_(std::move(place)),
          operation_(std::move(operation)) {}
    void wait() override { rules_->wait(rank_, place_, operation_); }
    bool is_done() override { return rules_->is_done(operation_); }

   private:
    std::shared_ptr<NcclRules> rules_;
    int rank_;
    NcclRules::Place place_;
    NcclRules::Started operation_;
  };

  int global(int rank) const { return members_[static_cast<size_t>(rank)]; }

  std::shared_ptr<NcclRules> rules_;
  std::string name_;
  int rank_;
  std::vector<int> members_;
};

}  // namespace automodel::comm
