#include "comm/world/world.h"

#include <algorithm>
#include <map>

#include "comm/device/device_groups.h"
#include "comm/groups/group_backend.h"
#include "comm/hosts/hosts_backend.h"
#include "comm/network/gloo_backend.h"
#include "comm/network/local_address.h"
#include "comm/shared_memory/shared_memory_backend.h"
#include "comm/store/tcp_store.h"
#include "comm/watch/failure_watch.h"
#include "comm/watch/watched_backend.h"
#include "core/clock.h"
#include "core/process.h"

namespace automodel::comm {

namespace {

constexpr double kCloseSeconds = 10.0;
constexpr double kFailedStartSeconds = 2.0;
constexpr double kStorePollSeconds = 0.002;
constexpr double kFailedStartPollSeconds = 0.5;
constexpr double kTellSeconds = 5.0;
constexpr const char* kFailedStartKey = "start_failed";
/// So much later than ours comes c10d's own timeout of an operation, which explains nothing.
constexpr double kLaterSeconds = 24 * 3600.0;

std::string process_key(int rank) {
  return cat("process/", rank);
}

/// Says who we are: `world size` and process, read by every other rank.
void announce(Store& store, const WorldOptions& options) {
  if (store.add(cat("taken/", options.rank), 1) > 1) {
    const std::string own = cat("rank ", options.first_rank + options.rank);
    int num_present = 0;
    for (int rank = 0; rank < options.size; ++rank) num_present += store.has(process_key(rank));
    if (num_present < options.size) throw UserError(cat("two processes were started as ", own));
    throw PeerFailure(cat(own,
                          " is there already: it was started twice, or again before the other "
                          "ranks have noticed that it ended, which is right once they have ended"));
  }
  store.set(process_key(options.rank), cat(options.size, " ", RankProcess::current().text()));
}

/// What a rank has announced, "" when it has not until the deadline. Throws PeerFailure when some
/// rank has said that it failed before it could come.
std::string process_of(Store& store, int rank, double deadline) {
  for (;;) {
    const double left = std::max(0.001, deadline - monotonic_seconds());
    const auto text = store.get(process_key(rank), std::min(left, kFailedStartPollSeconds));
    if (text) return *text;
    if (store.has(kFailedStartKey)) {
      throw PeerFailure(store.get(kFailedStartKey, kFailedStartSeconds).value_or(""));
    }
    if (monotonic_seconds() >= deadline) return "";
  }
}

/// The processes of all ranks, once they have come.
std::vector<RankProcess> meet(Store& store, const WorldOptions& options) {
  std::vector<RankProcess> processes;
  std::vector<int64_t> missing;
  const double deadline = monotonic_seconds() + options.timeout_seconds;
  for (int rank = 0; rank < options.size; ++rank) {
    const std::string text = process_of(store, rank, deadline);
    const size_t space = text.find(' ');
    if (space == std::string::npos) {
      missing.push_back(options.first_rank + rank);
      continue;
    }
    const int64_t size = parse_int(text.substr(0, space)).value_or(0);
    if (size != options.size) {
      throw UserError(cat("rank ", options.first_rank + rank, " was started as one of ", size,
                          " ranks, rank ", options.first_rank + options.rank, " as one of ",
                          options.size));
    }
    processes.push_back(RankProcess::parse(text.substr(space + 1)));
  }
  if (!missing.empty()) {
    throw PeerFailure(cat(missing.size() == 1 ? "rank " : "ranks ", join(missing),
                          " did not start within ", format_duration(options.timeout_seconds)));
  }
  return processes;
}

/// Waits until so many ranks have left, or for so long.
void await_leavers(Store& store, int64_t num_ranks, double seconds) {
  const double deadline = monotonic_seconds() + seconds;
  while (store.add("left", 0) < num_ranks && monotonic_seconds() < deadline) {
    store.get("never", kStorePollSeconds);
  }
}

/// After a start that failed: who serves the store stays until the others that came have seen for
/// themselves why.
void leave_failed_start(Store& store, const WorldOptions& options) {
  try {
    store.add("left", 1);
  } catch (const StoreGone&) {
    return;  // who serves it was waiting for us only
  }
  if (!options.hosts_store) return;
  int64_t num_present = 0;
  for (int rank = 0; rank < options.size; ++rank) num_present += store.has(process_key(rank));
  await_leavers(store, num_present, kFailedStartSeconds);
}

/// Says that this rank is there and waits for the others.
std::vector<RankProcess> gather(Store& store, const WorldOptions& options) {
  announce(store, options);
  try {
    return meet(store, options);
  } catch (const UserError&) {
    leave_failed_start(store, options);
    throw;
  }
}

std::string address_key(int rank) {
  return cat("address/", rank);
}

/// The address at which ranks of other hosts reach this one: that of the way to the store or, on
/// the store's own host, which may call itself by the loopback (Debian's 127.0.1.1), of the way to
/// a rank elsewhere. The loopback's where every rank reaches the store over it: their hosts are
/// namespaces of one machine. "" when it is not found out.
std::string address_for_others(Store& store, const WorldOptions& options,
                               const std::vector<RankProcess>& processes) {
  const std::string own = address_towards(options.host);
  store.set(address_key(options.rank), own);
  if (!own.empty() && !is_loopback(own)) return own;
  const std::string& here = processes[static_cast<size_t>(options.rank)].host;
  for (int rank = 0; rank < options.size; ++rank) {
    if (processes[static_cast<size_t>(rank)].host == here) continue;
    const auto there = store.get(address_key(rank), options.timeout_seconds);
    if (there && !there->empty() && !is_loopback(*there)) return address_towards(*there);
  }
  return own;
}

/// Where this rank's connections over the network are opened.
GlooPlaces gloo_places(Store& store, const WorldOptions& options,
                       const std::vector<RankProcess>& processes, bool is_one_host) {
  if (is_one_host) return {.address = "127.0.0.1"};
  if (!options.network_interface.empty()) {
    store.set(address_key(options.rank), "");  // another rank may have no interface named
    return {.interfaces = options.network_interface};
  }
  return {.address = address_for_others(store, options, processes)};
}

std::vector<int> all_ranks(int size) {
  std::vector<int> ranks;
  for (int rank = 0; rank < size; ++rank) ranks.push_back(rank);
  return ranks;
}

/// What groups share that are one: the same ranks, and a timeout of their own or none.
std::string key_of(const std::vector<int>& ranks, const std::optional<double>& own_timeout) {
  const std::string key = join(std::vector<int64_t>(ranks.begin(), ranks.end()), "-");
  return own_timeout ? cat(key, "/", *own_timeout) : key;
}

}  // namespace

void tell_failed_start(WorldOptions options, const std::string& text) noexcept {
  if (options.size == 1) return;
  options.timeout_seconds = kTellSeconds;
  options.reporter = nullptr;
  try {
    TcpStore store(options);
    store.set_if_absent(kFailedStartKey,
                        cat("rank ", options.first_rank + options.rank, " failed: ", text));
    store.add("left", 1);
    if (options.hosts_store) await_leavers(store, options.size, kTellSeconds);
  } catch (const std::exception&) {
    // No rank is there to be told, or the one that serves the store has ended.
  }
}

struct World::State {
  WorldOptions options;
  std::unique_ptr<TcpStore> store;
  std::vector<RankProcess> processes;
  std::shared_ptr<FailureWatch> watch;
  std::shared_ptr<TrafficMeter> traffic = std::make_shared<TrafficMeter>();
  GlooDevices devices;
  std::map<std::string, std::shared_ptr<GroupBackend>> backends;  // by key_of()
  std::optional<int> cuda_device;
  std::shared_ptr<DeviceWatch> device_watch;  // with a device only

  std::shared_ptr<GroupBackend> backend(const std::string& key, const WatchedGroup& group) {
    std::shared_ptr<GroupBackend>& backend = backends[key];
    if (backend != nullptr) return backend;
    const WatchedCall call = watch->enter(group, "start");
    watch->begin_wait(call);
    try {
      backend = connect_hosts(key, group);
      if (cuda_device) backend = route_by_device(backend, connect_device(key, group));
    } catch (const std::exception& error) {
      throw watch->explain(call, reason_of(error.what()));
    }
    watch->leave(call);
    return backend;
  }

  int rank_in(const std::vector<int>& ranks) const {
    return static_cast<int>(std::find(ranks.begin(), ranks.end(), options.rank) - ranks.begin());
  }

  std::vector<std::string> hosts_of(const std::vector<int>& ranks) const {
    std::vector<std::string> hosts;
    for (const int rank : ranks) hosts.push_back(processes[static_cast<size_t>(rank)].host);
    return hosts;
  }
  static bool is_one(const std::vector<std::string>& hosts) {
    return std::all_of(hosts.begin(), hosts.end(),
                       [&](const std::string& host) { return host == hosts[0]; });
  }

  /// The group over shared memory inside hosts, where its ranks can, and the network between them.
  std::shared_ptr<GroupBackend> connect_hosts(const std::string& key, const WatchedGroup& group) {
    const std::shared_ptr<GroupBackend> whole = connect(key, group.ranks, group);
    if (!options.may_share_memory) return whole;
    const std::vector<std::string> hosts = hosts_of(group.ranks);
    if (is_one(hosts)) return share_memory_of(key, group.ranks, group, whole);
    const HostsLayout layout = layout_of(hosts);
    if (layout.num_hosts == 1) return whole;
    const int own = rank_in(group.ranks);
    const int place = own % layout.on_host;
    std::vector<int> within, across;
    for (int i = 0; i < layout.on_host; ++i) {
      within.push_back(group.ranks[static_cast<size_t>(own - place + i)]);
    }
    for (int host = 0; host < layout.num_hosts; ++host) {
      across.push_back(group.ranks[static_cast<size_t>(host * layout.on_host + place)]);
    }
    // Connections of its own: the order of operations on these is not that of the others.
    HostsGroups groups{whole, nullptr, connect(cat(key, "/place/", place), across, group)};
    if (layout.on_host > 1) {
      const std::string within_key = cat(key, "/host/", own / layout.on_host);
      groups.within =
          share_memory_of(within_key, within, group, connect(within_key, within, group));
    }
    return join_hosts(groups);
  }

  /// Some ranks of a group, whose loss is that of the group.
  std::shared_ptr<GroupBackend> connect(const std::string& key, const std::vector<int>& ranks,
                                        const WatchedGroup& group) {
    GlooPlace place;
    place.rank = rank_in(ranks);
    place.size = static_cast<int>(ranks.size());
    place.timeout_seconds = group.timeout_seconds;
    place.has_lost_peer = [watch = watch, group] { return watch->has_lost_peer(group); };
    return connect_gloo(store->below(cat("gloo/", key)), devices, place);
  }

  std::shared_ptr<GroupBackend> connect_device(const std::string& key, const WatchedGroup& group) {
    auto backend = connect_nccl(store->below(cat("nccl/", key)),
                                {.rank = rank_in(group.ranks),
                                 .size = static_cast<int>(group.ranks.size()),
                                 .device = *cuda_device,
                                 .timeout_seconds = group.timeout_seconds + kLaterSeconds,
                                 .name = group.name});
    device_watch->guard(backend);
    return backend;
  }

  /// A group's ranks of one host over shared memory where they can, otherwise `gloo`.
  std::shared_ptr<GroupBackend> share_memory_of(const std::string& key,
                                                const std::vector<int>& ranks,
                                                const WatchedGroup& group,
                                                std::shared_ptr<GroupBackend> gloo) {
    if (gloo->size() > kMaxSharingRanks) return gloo;
    const SegmentPlace meeting{cat("memory/", key), gloo->rank(), gloo->size(),
                               options.timeout_seconds,
                               processes[static_cast<size_t>(ranks[0])].pid};
    SegmentOutcome outcome = share_segment(*store, meeting, shared_memory_bytes(gloo->size()));
    if (outcome.segment == nullptr) {
      if (options.reporter != nullptr) {
        options.reporter->info(cat("the ranks of group ", group.name,
                                   " talk over the network, as they cannot share memory (",
                                   outcome.why_not, ")"));
      }
      return gloo;
    }
    SharedMemoryPlace place;
    place.rank = gloo->rank();
    place.size = gloo->size();
    place.timeout_seconds = group.timeout_seconds;
    place.has_lost_peer = [watch = watch, group] { return watch->has_lost_peer(group); };
    return share_memory(std::move(outcome.segment), place, std::move(gloo));
  }

  ProcessGroup group(const std::string& name, const std::vector<int>& ranks,
                     const std::optional<double>& own_timeout) {
    if (ranks.size() == 1) return ProcessGroup::solo(name);
    const WatchedGroup watched{name, ranks, own_timeout.value_or(options.timeout_seconds)};
    return ProcessGroup(name, watch_backend(backend(key_of(ranks, own_timeout), watched), watch,
                                            watched, traffic, device_watch));
  }
};

World::World(const WorldOptions& options) : group_(ProcessGroup::solo("world")) {
  if (options.size == 1) return;
  auto state = std::make_shared<State>();
  state->options = options;
  state->store = std::make_unique<TcpStore>(options);
  const std::vector<int> everybody = all_ranks(options.size);
  try {
    state->processes = gather(*state->store, options);
    WatchOptions watch;
    watch.rank = options.rank;
    watch.first_rank = options.first_rank;
    watch.serves_store = options.hosts_store || options.outstays_others;
    watch.store_place = options.store_place;
    state->watch =
        std::make_shared<FailureWatch>(state->store->connect_again(), state->processes, watch);
    state->devices = open_gloo_devices(gloo_places(*state->store, options, state->processes,
                                                   state->is_one(state->hosts_of(everybody))));
  } catch (const StoreGone&) {
    throw PeerFailure(
        cat(options.store_place, " vanished during the start (it serves the run's ", "store)"));
  }
  try {
    group_ = state->group("world", everybody, std::nullopt);
  } catch (const PeerFailure& failure) {
    state->watch->post(failure.what());  // who serves the store stays until the others have read it
    throw;
  }
  state_ = std::move(state);
}

World::~World() = default;

bool World::spans_hosts() const {
  return state_ != nullptr && !State::is_one(state_->hosts_of(all_ranks(state_->options.size)));
}

void World::use_cuda_device(int device) {
  if (state_ == nullptr) return;
  AM_CHECK(state_->backends.size() == 1, "groups were split before the device was known");
  state_->cuda_device = device;
  // The CPU's group of all ranks is there; what it lacks is put beside it.
  const std::vector<int> everybody = all_ranks(state_->options.size);
  const WatchedGroup world{"world", everybody, state_->options.timeout_seconds};
  state_->device_watch = std::make_shared<DeviceWatch>(
      state_->watch, world,
      DeviceWatchOptions{.lost_seconds = state_->options.lost_seconds,
                         .abort_seconds = state_->options.abort_seconds});
  auto& [key, backend] = *state_->backends.begin();
  backend = route_by_device(backend, state_->connect_device(key, world));
  group_ = state_->group("world", everybody, std::nullopt);
}

ProcessGroup World::split(const std::string& name, const std::vector<std::vector<int>>& groups,
                          std::optional<double> timeout_seconds) {
  const int own_rank = group_.rank();
  std::vector<bool> is_covered(static_cast<size_t>(group_.size()), false);
  const std::vector<int>* own = nullptr;
  for (const std::vector<int>& ranks : groups) {
    for (const int rank : ranks) {
      if (rank < 0 || rank >= group_.size() || is_covered[static_cast<size_t>(rank)]) {
        throw UserError(cat("group ", name, " has rank ", rank, " twice or outside of the world's ",
                            group_.size(), " ranks"));
      }
      is_covered[static_cast<size_t>(rank)] = true;
      if (rank == own_rank) own = &ranks;
    }
  }
  const auto lacking = std::find(is_covered.begin(), is_covered.end(), false);
  if (own == nullptr || lacking != is_covered.end()) {
    throw UserError(cat("group ", name, " lacks rank ", lacking - is_covered.begin(),
                        ": each of the world's ", group_.size(), " ranks is in one of its groups"));
  }
  if (state_ == nullptr) return ProcessGroup::solo(name);
  return state_->group(name, *own, timeout_seconds);
}

SlowWork& World::slow_work(const SlowWorkOptions& options) {
  if (slow_work_ == nullptr) slow_work_ = make_slow_work("world", options);
  return *slow_work_;
}

SlowWork& World::background_work(SlowWorkOptions options) {
  options.name = "background";
  options.is_beside_training = true;
  if (background_work_ == nullptr) background_work_ = make_slow_work("background", options);
  return *background_work_;
}

std::unique_ptr<SlowWork> World::make_slow_work(const std::string& group,
                                                const SlowWorkOptions& options) {
  if (state_ == nullptr) return std::make_unique<SlowWork>(options);
  const WatchedGroup world{group, all_ranks(state_->options.size), state_->options.timeout_seconds};
  return std::make_unique<SlowWork>(*state_->store, state_->watch, world, options);
}

double World::waited_seconds() const {
  return state_ == nullptr ? 0 : state_->watch->waited_seconds();
}

Traffic World::traffic() const {
  return state_ == nullptr ? Traffic() : state_->traffic->total();
}

void World::fail(const std::string& text) noexcept {
  if (state_ == nullptr) return;
  try {
    state_->watch->post(text);
  } catch (const std::exception&) {
    // The store's server is gone, and with it everybody who could have read the text.
  }
}

void World::close() {
  if (state_ == nullptr) return;
  if (state_->device_watch != nullptr) state_->device_watch->stop();
  group_.barrier();
  slow_work_.reset();  // they talk to the store
  background_work_.reset();
  state_->watch->stop();
  // Who serves the store leaves last: a rank that still talks to it would see a failure.
  const int64_t num_others = state_->options.size - 1;
  try {
    if (!state_->options.hosts_store) {
      state_->store->add("closed", 1);
      return;
    }
    const double deadline = monotonic_seconds() + kCloseSeconds;
    while (state_->store->add("closed", 0) < num_others && monotonic_seconds() < deadline) {
      state_->store->get("never", kStorePollSeconds);
    }
  } catch (const StoreGone&) {
    // Who serves it waited long enough for this rank. All ranks had ended their work before.
  }
}

}  // namespace automodel::comm
