#include "comm/world.h"

#include <ATen/ATen.h>
#include <unistd.h>

#include <chrono>
#include <thread>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

namespace automodel::comm {

namespace {

using Milliseconds = std::chrono::milliseconds;

Milliseconds to_milliseconds(double seconds) {
  return Milliseconds(static_cast<int64_t>(seconds * 1000.0));
}

c10d::ReduceOp to_c10d(ReduceOp op) {
  switch (op) {
    case ReduceOp::kSum:
      return c10d::ReduceOp::SUM;
    case ReduceOp::kAvg:
      return c10d::ReduceOp::AVG;
    case ReduceOp::kMax:
      return c10d::ReduceOp::MAX;
    case ReduceOp::kMin:
      return c10d::ReduceOp::MIN;
  }
  AM_CHECK(false);
}

/// The first line of a c10d or Gloo error, without the source position in front.
std::string reason_of(const std::string& text) {
  std::string line = text.substr(0, text.find('\n'));
  if (line.starts_with("[/")) line = line.substr(std::min(line.size(), line.find("] ") + 2));
  return line;
}

std::string failure_key(int rank) {
  return cat("failure/", rank);
}
std::string alive_key(int rank) {
  return cat("alive/", rank);
}

}  // namespace

struct StoreServer::State {
  c10::intrusive_ptr<c10d::TCPStore> store;
};

StoreServer::StoreServer(int listening_fd, int port, int num_ranks)
    : state_(std::make_unique<State>()) {
  c10d::TCPStoreOptions options;
  options.port = static_cast<uint16_t>(port);
  options.isServer = true;
  options.numWorkers = num_ranks;
  options.waitWorkers = false;
  options.masterListenFd = listening_fd;
  state_->store = c10::make_intrusive<c10d::TCPStore>("127.0.0.1", options);
}

StoreServer::~StoreServer() = default;

struct World::State {
  WorldOptions options;
  c10::intrusive_ptr<c10d::TCPStore> store;
  c10::intrusive_ptr<c10d::ProcessGroupGloo> gloo;

  /// Turns a failed collective into what a person needs: the text a peer left, or who is gone.
  [[noreturn]] void explain(const char* operation, const std::string& reason) {
    const std::string where = cat(operation, " of ", options.size, " ranks");
    std::vector<int64_t> silent;
    try {
      store->set(alive_key(options.rank), std::vector<uint8_t>{1});
      // Peers that live reach this point too, or leave their text; a moment is enough for both.
      std::this_thread::sleep_for(Milliseconds(1000));
      for (int rank = 0; rank < options.size; ++rank) {
        if (rank == options.rank) continue;
        if (store->check({failure_key(rank)})) {
          const auto bytes = store->get(failure_key(rank));
          throw PeerFailure(
              cat("rank ", rank, " failed: ", std::string(bytes.begin(), bytes.end())));
        }
        if (!store->check({alive_key(rank)})) silent.push_back(rank);
      }
    } catch (const PeerFailure&) {
      throw;
    } catch (const std::exception&) {
      throw PeerFailure(
          cat("the run's store is gone (its host ended) during ", where));
    }
    throw PeerFailure(cat(where, " failed; ",
                          silent.empty() ? std::string("no rank is missing")
                                         : cat("not answering: rank ", join(silent)),
                          " (", reason_of(reason), ")"));
  }
};

namespace {

/// Gloo over a store.
class GlooBackend final : public GroupBackend {
 public:
  using Explain = std::function<void(const char*, const std::string&)>;

  GlooBackend(c10::intrusive_ptr<c10d::ProcessGroupGloo> gloo, Explain explain)
      : gloo_(std::move(gloo)), explain_(std::move(explain)) {}

  int rank() const override { return gloo_->getRank(); }
  int size() const override { return gloo_->getSize(); }

  void all_reduce(at::Tensor& tensor, ReduceOp op) override {
    guard("all_reduce", [&] {
      std::vector<at::Tensor> tensors{tensor};
      c10d::AllreduceOptions options;
      options.reduceOp = to_c10d(op);
      gloo_->allreduce(tensors, options)->wait();
    });
  }

  void broadcast(at::Tensor& tensor, int root) override {
    guard("broadcast", [&] {
      std::vector<at::Tensor> tensors{tensor};
      c10d::BroadcastOptions options;
      options.rootRank = root;
      gloo_->broadcast(tensors, options)->wait();
    });
  }

  void all_gather(at::Tensor& out, const at::Tensor& in) override {
    guard("all_gather", [&] {
      at::Tensor input = in.reshape({-1});
      at::Tensor output = out.view({-1});
      gloo_->_allgather_base(output, input)->wait();
    });
  }

  void reduce_scatter(at::Tensor& out, const at::Tensor& in, ReduceOp op) override {
    guard("reduce_scatter", [&] {
      at::Tensor input = in.reshape({-1});
      at::Tensor output = out.view({-1});
      c10d::ReduceScatterOptions options;
      options.reduceOp = to_c10d(op);
      gloo_->_reduce_scatter_base(output, input, options)->wait();
    });
  }

  void barrier() override {
    guard("barrier", [&] { gloo_->barrier()->wait(); });
  }

 private:
  template <typename Body>
  void guard(const char* operation, Body body) {
    try {
      body();
    } catch (const std::exception& error) {
      explain_(operation, error.what());
    }
  }

  c10::intrusive_ptr<c10d::ProcessGroupGloo> gloo_;
  Explain explain_;
};

c10::intrusive_ptr<c10d::TCPStore> connect(const WorldOptions& options) {
  c10d::TCPStoreOptions store_options;
  store_options.port = static_cast<uint16_t>(options.port);
  store_options.isServer = options.hosts_store;
  store_options.numWorkers = options.size;
  store_options.waitWorkers = false;
  store_options.timeout = to_milliseconds(options.timeout_seconds);
  try {
    return c10::make_intrusive<c10d::TCPStore>(options.host, store_options);
  } catch (const std::exception& error) {
    throw UserError(cat(options.hosts_store ? "cannot serve the run's store on "
                                            : "no answer from the run's store at ",
                        options.host, ":", options.port, ": ", reason_of(error.what())),
                    ExitCode::kRankFailed);
  }
}

}  // namespace

World::World(const WorldOptions& options) : group_(ProcessGroup::solo()) {
  if (options.size == 1) return;
  state_ = std::make_shared<State>();
  state_->options = options;
  state_->store = connect(options);
  auto gloo_options =
      c10d::ProcessGroupGloo::Options::create(to_milliseconds(options.timeout_seconds));
  const bool is_local = options.host == "127.0.0.1" || options.host == "localhost";
  gloo_options->devices.push_back(is_local
                                      ? c10d::ProcessGroupGloo::createDeviceForHostname("127.0.0.1")
                                      : c10d::ProcessGroupGloo::createDefaultDevice());
  gloo_options->threads = 2;
  try {
    state_->gloo = c10::make_intrusive<c10d::ProcessGroupGloo>(
        c10::make_intrusive<c10d::PrefixStore>("world", state_->store), options.rank, options.size,
        gloo_options);
  } catch (const std::exception& error) {
    state_->explain("start", error.what());
  }
  // The backend keeps the state, not the other way round.
  std::shared_ptr<State> state = state_;
  group_ = ProcessGroup(
      "world", std::make_shared<GlooBackend>(
                   state_->gloo, [state](const char* operation, const std::string& reason) {
                     state->explain(operation, reason);
                   }));
}

World::~World() = default;

void World::fail(const std::string& text) noexcept {
  if (state_ == nullptr) return;
  try {
    state_->store->set(failure_key(state_->options.rank),
                       std::vector<uint8_t>(text.begin(), text.end()));
  } catch (const std::exception&) {
    // The store's host is gone, and with it everybody who could have read the text.
  }
}

void World::close() {
  if (state_ != nullptr) group_.barrier();
}

}  // namespace automodel::comm
