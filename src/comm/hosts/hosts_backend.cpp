#include "comm/hosts/hosts_backend.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>
#include <utility>

#include "comm/groups/group_backend.h"
#include "comm/shared_memory/reduce.h"
#include "core/error.h"

namespace automodel::comm {

HostsLayout layout_of(const std::vector<std::string>& hosts) {
  const auto first_end = std::find_if(hosts.begin(), hosts.end(),
                                      [&](const std::string& host) { return host != hosts[0]; });
  const auto on_host = static_cast<size_t>(first_end - hosts.begin());
  if (on_host == 0 || hosts.size() % on_host != 0) return {};
  std::vector<std::string> names;
  for (size_t i = 0; i < hosts.size(); ++i) {
    if (i % on_host == 0) {
      if (std::find(names.begin(), names.end(), hosts[i]) != names.end()) return {};
      names.push_back(hosts[i]);
    }
    if (hosts[i] != names.back()) return {};
  }
  if (names.size() < 2) return {};
  return {static_cast<int>(names.size()), static_cast<int>(on_host)};
}

namespace {

/// Below this many bytes a reduction's steps would wait for each other longer than they send.
constexpr int64_t kLargeBytes = 1 << 16;

struct Job {
  std::function<void()> run;
  bool is_done = false;
  std::exception_ptr failure;
};

/// Runs jobs one after the other on a thread.
class Jobs final {
 public:
  Jobs() : state_(std::make_shared<State>()), thread_([state = state_] { state->run_all(); }) {}
  /// A job that hangs on lost peers is left alone: the process is about to end.
  ~Jobs() {
    bool is_idle = false;
    {
      const std::lock_guard lock(state_->mutex);
      state_->is_stopped = true;
      is_idle = !state_->is_running;
    }
    state_->changed.notify_all();
    is_idle ? thread_.join() : thread_.detach();
  }
  Jobs(const Jobs&) = delete;
  Jobs& operator=(const Jobs&) = delete;

  std::shared_ptr<Job> start(std::function<void()> run) {
    auto job = std::make_shared<Job>();
    job->run = std::move(run);
    {
      const std::lock_guard lock(state_->mutex);
      state_->queue.push_back(job);
    }
    state_->changed.notify_all();
    return job;
  }

  bool is_done(const Job& job) const {
    const std::lock_guard lock(state_->mutex);
    return job.is_done;
  }

  void wait(const Job& job) const {
    std::unique_lock lock(state_->mutex);
    state_->changed.wait(lock, [&] { return job.is_done; });
    if (job.failure) std::rethrow_exception(job.failure);
  }

 private:
  struct State {
    std::mutex mutex;  // guards what follows and the jobs' ends
    std::condition_variable changed;
    std::deque<std::shared_ptr<Job>> queue;
    bool is_running = false;
    bool is_stopped = false;

    void run_all() {
      std::unique_lock lock(mutex);
      while (true) {
        changed.wait(lock, [this] { return is_stopped || !queue.empty(); });
        if (is_stopped) return;
        const std::shared_ptr<Job> job = queue.front();
        queue.pop_front();
        is_running = true;
        lock.unlock();
        try {
          job->run();
        } catch (const std::exception&) {
          job->failure = std::current_exception();
        }
        job->run = nullptr;  // what it keeps alive
        lock.lock();
        is_running = false;
        job->is_done = true;
        changed.notify_all();
      }
    }
  };

  std::shared_ptr<State> state_;
  std::thread thread_;
};

class JobWork final : public BackendWork {
 public:
  JobWork(std::shared_ptr<Jobs> jobs, std::shared_ptr<Job> job)
      : jobs_(std::move(jobs)), job_(std::move(job)) {}
  void wait() override { jobs_->wait(*job_); }
  bool is_done() override { return jobs_->is_done(*job_); }

 private:
  std::shared_ptr<Jobs> jobs_;
  std::shared_ptr<Job> job_;
};

std::byte* memory_of(const at::Tensor& tensor) {
  return static_cast<std::byte*>(tensor.data_ptr());
}

/// The operations on flat tensors, each with all of its steps.
class Steps final {
 public:
  explicit Steps(const HostsGroups& groups)
      : within_(groups.within),
        across_(groups.across),
        on_host_(within_ == nullptr ? 1 : within_->size()),
        num_hosts_(across_->size()),
        host_(across_->rank()) {}

  int64_t num_ranks() const { return int64_t{num_hosts_} * on_host_; }

  /// Every host gets each number once, by the rank whose place has it; its ranks then share.
  void all_gather(const at::Tensor& out, const at::Tensor& in) const {
    const int64_t part = in.numel();
    const auto of_host = [&](int host) {
      return out.narrow(0, host * on_host_ * part, on_host_ * part);
    };
    if (within_ == nullptr) return finish(across_->start(gather(out, in)));
    const at::Tensor of_place = at::empty({num_hosts_ * part}, in.options());
    const auto from_hosts = across_->start(gather(of_place, in));
    try {
      finish(within_->start(gather(of_host(host_), in)));
    } catch (const std::exception&) {
      give_up(from_hosts);
      throw;
    }
    finish(from_hosts);
    for (int host = 0; host < num_hosts_; ++host) {
      if (host == host_) continue;
      finish(within_->start(gather(of_host(host), of_place.narrow(0, host * part, part))));
    }
  }

  /// Every host sends its ranks' sum of what another one's ranks keep.
  void reduce_scatter(const at::Tensor& out, const at::Tensor& in, ReduceOp op) const {
    const int64_t part = out.numel();
    at::Tensor sums = in;
    if (within_ != nullptr) {
      sums = at::empty({num_hosts_ * part}, in.options());
      for (int host = 0; host < num_hosts_; ++host) {
        finish(within_->start({.kind = CollectiveKind::kReduceScatter,
                               .out = sums.narrow(0, host * part, part),
                               .in = in.narrow(0, host * on_host_ * part, on_host_ * part),
                               .op = op}));
      }
    }
    const at::Tensor received = at::empty({num_hosts_, part}, in.options());
    const std::vector<int64_t> ones(static_cast<size_t>(num_hosts_), 1);
    finish(across_->start({.kind = CollectiveKind::kAllToAll,
                           .out = as_bytes(received),
                           .in = as_bytes(sums.view({num_hosts_, part})),
                           .counts = {ones, ones}}));
    std::vector<const std::byte*> sources;
    for (int host = 0; host < num_hosts_; ++host) sources.push_back(memory_of(received[host]));
    reduce_sources(in.scalar_type(), op, memory_of(out), sources, part);
  }

  /// In parts of equal length; the numbers behind them among others that count for nothing.
  void all_reduce(const at::Tensor& numbers, ReduceOp op) const {
    const int64_t whole = numbers.numel() / num_ranks() * num_ranks();
    reduce_parts(numbers.narrow(0, 0, whole), op);
    const at::Tensor rest = numbers.narrow(0, whole, numbers.numel() - whole);
    if (rest.numel() == 0) return;
    const at::Tensor padded = at::empty({num_ranks()}, numbers.options());
    std::memset(padded.data_ptr(), 0, padded.nbytes());
    std::memcpy(padded.data_ptr(), rest.data_ptr(), rest.nbytes());
    reduce_parts(padded, op);
    std::memcpy(rest.data_ptr(), padded.data_ptr(), rest.nbytes());
  }

 private:
  static void finish(const std::unique_ptr<BackendWork>& work) {
    if (work != nullptr) work->wait();
  }

  /// Waits until an operation that a failure has made useless ends or sees the failure too: Gloo's
  /// groups would otherwise wait for it when they are destroyed.
  static void give_up(const std::unique_ptr<BackendWork>& work) {
    try {
      finish(work);
    } catch (const std::exception&) {  // the first failure is told
    }
  }

  /// Bytes: Gloo need not know the dtype.
  static at::Tensor as_bytes(const at::Tensor& x) { return x.view(at::kByte); }
  static Collective gather(const at::Tensor& out, const at::Tensor& in) {
    return {.kind = CollectiveKind::kAllGather, .out = as_bytes(out), .in = as_bytes(in)};
  }

  void reduce_parts(const at::Tensor& numbers, ReduceOp op) const {
    const at::Tensor own = at::empty({numbers.numel() / num_ranks()}, numbers.options());
    reduce_scatter(own, numbers, op);
    all_gather(numbers, own);
  }

  std::shared_ptr<GroupBackend> within_, across_;
  int on_host_, num_hosts_, host_;
};

class HostsBackend final : public GroupBackend {
 public:
  explicit HostsBackend(HostsGroups groups)
      : whole_(groups.whole), steps_(std::make_shared<Steps>(groups)) {}

  int rank() const override { return whole_->rank(); }
  int size() const override { return whole_->size(); }

  std::unique_ptr<BackendWork> start(const Collective& it) override {
    std::function<void()> run;
    const bool is_here = it.device().is_cpu() && it.out.defined() && it.out.is_contiguous();
    if (is_here && is_taken(it)) {
      run = [steps = steps_, it] {
        const at::NoGradGuard no_grad;
        const at::Tensor out = it.out.view({-1});
        if (it.kind == CollectiveKind::kAllGather) {
          steps->all_gather(out, it.in.view({-1}));
        } else if (it.kind == CollectiveKind::kReduceScatter) {
          steps->reduce_scatter(out, it.in.view({-1}), it.op);
        } else {
          steps->all_reduce(out, it.op);
        }
      };
    }
    if (!run) return whole_->start(it);
    return std::make_unique<JobWork>(jobs_, jobs_->start(std::move(run)));
  }

 private:
  /// Averages of integers would be cut at every step.
  static bool is_taken(const Collective& it) {
    if (it.op == ReduceOp::kAvg && c10::isIntegralType(it.out.scalar_type(), true)) return false;
    switch (it.kind) {
      case CollectiveKind::kAllGather:
      case CollectiveKind::kReduceScatter:
        return it.in.is_contiguous();
      case CollectiveKind::kAllReduce:
        return static_cast<int64_t>(it.out.nbytes()) >= kLargeBytes;
      default:
        return false;
    }
  }

  std::shared_ptr<GroupBackend> whole_;
  std::shared_ptr<Steps> steps_;
  std::shared_ptr<Jobs> jobs_ = std::make_shared<Jobs>();
};

}  // namespace

std::shared_ptr<GroupBackend> join_hosts(HostsGroups groups) {
  AM_CHECK(groups.whole != nullptr && groups.across != nullptr);
  return std::make_shared<HostsBackend>(std::move(groups));
}

}  // namespace automodel::comm
