#include "comm/tcp_store.h"

#include <chrono>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

namespace automodel::comm {

namespace {

std::chrono::milliseconds to_milliseconds(double seconds) {
  return std::chrono::milliseconds(static_cast<int64_t>(seconds * 1000.0));
}

bool is_port_taken(const std::string& text) {
  return text.find("EADDRINUSE") != std::string::npos ||
         to_lower(text).find("address already in use") != std::string::npos;
}

c10::intrusive_ptr<c10d::Store> connect(const WorldOptions& options) {
  c10d::TCPStoreOptions store;
  store.port = static_cast<uint16_t>(options.port);
  store.isServer = options.hosts_store;
  store.numWorkers = options.size;
  store.waitWorkers = false;
  store.timeout = to_milliseconds(options.timeout_seconds);
  try {
    return c10::make_intrusive<c10d::TCPStore>(options.host, store);
  } catch (const std::exception& error) {
    const std::string place = cat(options.host, ":", options.port);
    if (options.hosts_store && is_port_taken(error.what())) {
      throw UserError(cat("port ", options.port,
                          " is taken by another process of this host; set MASTER_PORT to a free "
                          "one"));
    }
    if (options.hosts_store) {
      throw UserError(cat("cannot serve the run's store on ", place, ": ", reason_of(error.what())),
                      ExitCode::kRankFailed);
    }
    throw UserError(
        cat("rank ", options.rank, ": no answer from the run's store at ", place, " within ",
            format_duration(options.timeout_seconds), ": ", reason_of(error.what())),
        ExitCode::kRankFailed);
  }
}

/// c10d's errors of a lost server as ours.
template <typename Body>
auto translated(Body body) {
  try {
    return body();
  } catch (const std::exception& error) {
    throw StoreGone(reason_of(error.what()));
  }
}

}  // namespace

std::string reason_of(const std::string& text) {
  std::string line = text.substr(0, text.find('\n'));
  if (line.starts_with("[/")) {
    const size_t end = line.find("] ");
    if (end != std::string::npos) line = line.substr(end + 2);
  }
  return line;
}

TcpStore::TcpStore(const WorldOptions& options) : store_(connect(options)) {
  if (!options.run_id.empty()) {
    store_ = c10::make_intrusive<c10d::PrefixStore>(cat("automodel/", options.run_id), store_);
  }
}

void TcpStore::set(const std::string& key, const std::string& value) {
  translated([&] { store_->set(key, std::vector<uint8_t>(value.begin(), value.end())); });
}

std::optional<std::string> TcpStore::get(const std::string& key, double seconds) {
  return translated([&]() -> std::optional<std::string> {
    if (!store_->check({key})) {
      try {
        store_->wait({key}, to_milliseconds(seconds));
      } catch (const c10::DistNetworkError&) {
        throw;
      } catch (const c10::DistStoreError&) {
        return std::nullopt;  // it did not come in time
      }
    }
    const std::vector<uint8_t> bytes = store_->get(key);
    return std::string(bytes.begin(), bytes.end());
  });
}

bool TcpStore::has(const std::string& key) {
  return translated([&] { return store_->check({key}); });
}

int64_t TcpStore::add(const std::string& key, int64_t amount) {
  return translated([&] { return store_->add(key, amount); });
}

std::unique_ptr<Store> TcpStore::connect_again() {
  return translated([&] { return std::unique_ptr<Store>(new TcpStore(store_->clone())); });
}

c10::intrusive_ptr<c10d::Store> TcpStore::below(const std::string& prefix) const {
  return c10::make_intrusive<c10d::PrefixStore>(prefix, store_);
}

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

}  // namespace automodel::comm
