#include "comm/tcp_store.h"

#include <arpa/inet.h>
#include <c10/util/Logging.h>
#include <netinet/in.h>
#include <resolv.h>
#include <signal.h>

#include <array>
#include <chrono>
#include <cstdlib>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>
#include <utility>

namespace automodel::comm {

namespace {

std::chrono::milliseconds to_milliseconds(double seconds) {
  return std::chrono::milliseconds(static_cast<int64_t>(seconds * 1000.0));
}

bool is_port_taken(const std::string& text) {
  return text.find("EADDRINUSE") != std::string::npos ||
         to_lower(text).find("address already in use") != std::string::npos;
}

/// What a process with peers needs. A peer that dies closes its connections, and a write into one
/// must be an error that we explain, not our own end. c10d logs the same errors with stack traces;
/// TORCH_CPP_LOG_LEVEL shows them.
void prepare_process() {
  struct sigaction action {};
  ::sigaction(SIGPIPE, nullptr, &action);
  if (action.sa_handler == SIG_DFL) ::signal(SIGPIPE, SIG_IGN);
  if (std::getenv("TORCH_CPP_LOG_LEVEL") != nullptr) {
    c10::initLogging();
  } else {
    FLAGS_caffe2_log_level = c10::GLOG_FATAL;
  }
}

bool is_address(const std::string& host) {
  std::array<unsigned char, sizeof(in6_addr)> bytes{};
  return ::inet_pton(AF_INET, host.c_str(), bytes.data()) == 1 ||
         ::inet_pton(AF_INET6, host.c_str(), bytes.data()) == 1;
}

/// While it lives, this thread asks no name server. For its logs c10d looks up the name of every
/// address that it connects to, which takes seconds where the name server is slow or cannot be
/// reached.
class NoNameServer final {
 public:
  NoNameServer() {
    if ((_res.options & RES_INIT) == 0) ::res_init();
    num_servers_ = std::exchange(_res.nscount, 0);
  }
  ~NoNameServer() { _res.nscount = num_servers_; }
  NoNameServer(const NoNameServer&) = delete;
  NoNameServer& operator=(const NoNameServer&) = delete;

 private:
  int num_servers_ = 0;
};

c10::intrusive_ptr<c10d::Store> connect(const WorldOptions& options) {
  prepare_process();
  c10d::TCPStoreOptions store;
  store.port = static_cast<uint16_t>(options.port);
  store.isServer = options.hosts_store;
  store.numWorkers = options.size;
  store.waitWorkers = false;
  store.timeout = to_milliseconds(options.timeout_seconds);
  std::optional<NoNameServer> no_name_server;
  if (is_address(options.host)) no_name_server.emplace();
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

TcpStore::TcpStore(const WorldOptions& options)
    : store_(connect(options)), is_address_(is_address(options.host)) {
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
  return translated([&] {
    std::optional<NoNameServer> no_name_server;
    if (is_address_) no_name_server.emplace();
    return std::unique_ptr<Store>(new TcpStore(store_->clone(), is_address_));
  });
}

c10::intrusive_ptr<c10d::Store> TcpStore::below(const std::string& prefix) const {
  return c10::make_intrusive<c10d::PrefixStore>(prefix, store_);
}

struct StoreServer::State {
  c10::intrusive_ptr<c10d::TCPStore> store;
};

StoreServer::StoreServer(int listening_fd, int port, int num_ranks)
    : state_(std::make_unique<State>()) {
  prepare_process();
  c10d::TCPStoreOptions options;
  options.port = static_cast<uint16_t>(port);
  options.isServer = true;
  options.numWorkers = num_ranks;
  options.waitWorkers = false;
  options.masterListenFd = listening_fd;
  const NoNameServer no_name_server;
  state_->store = c10::make_intrusive<c10d::TCPStore>("127.0.0.1", options);
}

StoreServer::~StoreServer() = default;

}  // namespace automodel::comm
