#include "comm/store/tcp_store.h"

#include <arpa/inet.h>
#include <c10/util/Logging.h>
#include <netinet/in.h>
#include <resolv.h>
#include <signal.h>

#include <array>
#include <chrono>
#include <cstdlib>
#include <mutex>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>
#include <utility>

#include "comm/store/store_client.h"
#include "comm/store/store_listener.h"
#include "core/error.h"
#include "core/system_limits.h"
#include "core/text.h"

namespace automodel::comm {

namespace {

std::chrono::milliseconds to_milliseconds(double seconds) {
  return std::chrono::milliseconds(static_cast<int64_t>(seconds * 1000.0));
}

/// What a process with peers needs, once. A peer that dies closes its connections, and a write into
/// one must be an error that we explain, not our own end. c10d logs the same errors with stack
/// traces; TORCH_CPP_LOG_LEVEL shows them.
void prepare_process() {
  static std::once_flag is_prepared;
  std::call_once(is_prepared, [] {
    struct sigaction action {};
    ::sigaction(SIGPIPE, nullptr, &action);
    if (action.sa_handler == SIG_DFL) ::signal(SIGPIPE, SIG_IGN);
    if (std::getenv("TORCH_CPP_LOG_LEVEL") != nullptr) {
      c10::initLogging();
    } else {
      FLAGS_caffe2_log_level = c10::GLOG_FATAL;
    }
  });
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

/// torchrun's agent serves a store of c10d's, which anybody may ask: our keys there lie below a
/// name that cannot be guessed.
c10::intrusive_ptr<c10d::Store> connect_to_agent(const WorldOptions& options) {
  c10d::TCPStoreOptions store;
  store.port = static_cast<uint16_t>(options.port);
  store.numWorkers = options.size;
  store.waitWorkers = false;
  store.timeout = to_milliseconds(options.timeout_seconds);
  std::optional<NoNameServer> no_name_server;
  if (is_address(options.host)) no_name_server.emplace();
  return c10::make_intrusive<c10d::PrefixStore>(
      prove(options.secret, "store", "", ""),
      c10::make_intrusive<c10d::TCPStore>(options.host, store));
}

c10::intrusive_ptr<c10d::Store> connect(const WorldOptions& options) {
  try {
    if (options.is_agents_store) return connect_to_agent(options);
    return c10::make_intrusive<StoreClient>(
        StorePlace{options.host, options.port, options.secret, options.timeout_seconds});
  } catch (const std::exception& error) {
    throw UserError(
        cat("no answer from the run's store at ", options.host, ":", options.port, " within ",
            format_duration(options.timeout_seconds), ": ", reason_of(error.what())),
        ExitCode::kRankFailed);
  }
}

std::unique_ptr<StoreServer> serve(const WorldOptions& options) {
  prepare_process();
  if (!options.hosts_store) return nullptr;
  check_open_files(files_of_store(options.size), cat("the store of ", options.size, " ranks"));
  const StoreListener listener =
      listen_for_store(options.host, options.port, options.is_one_machine);
  if (listener.is_everywhere && options.reporter != nullptr) {
    options.reporter->info(cat("the run's store listens on all addresses of this machine: ",
                               options.host, " is none that other machines could reach here"));
  }
  return std::make_unique<StoreServer>(listener.fd, options.secret);
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
    : server_(serve(options)), store_(connect(options)), is_address_(is_address(options.host)) {
  if (!options.run_id.empty()) {
    store_ = c10::make_intrusive<c10d::PrefixStore>(cat("automodel/", options.run_id), store_);
  }
}

void TcpStore::set(const std::string& key, const std::string& value) {
  translated([&] { store_->set(key, value); });
}

std::string TcpStore::set_if_absent(const std::string& key, const std::string& value) {
  return translated([&] { return store_->compareSet(key, "", value); });
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
    return store_->get_to_str(key);
  });
}

bool TcpStore::has(const std::string& key) {
  return translated([&] { return store_->check({key}); });
}

int64_t TcpStore::add(const std::string& key, int64_t amount) {
  return translated([&] { return store_->add(key, amount); });
}

void TcpStore::erase(const std::string& key) {
  translated([&] { store_->deleteKey(key); });
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

}  // namespace automodel::comm
