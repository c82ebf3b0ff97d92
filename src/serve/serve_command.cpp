#include "serve/serve_command.h"

#include <malloc.h>
#include <pthread.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <ostream>

#include "core/error.h"
#include "serve/access.h"
#include "serve/http_server.h"

namespace automodel::serve {

namespace {

constexpr size_t kLeastTokenSize = 8;

/// While it lives, signals that end the program wait, in this thread and in those it starts.
class HeldSignals final {
 public:
  HeldSignals() {
    sigemptyset(&signals_);
    for (const int signal : {SIGINT, SIGTERM}) sigaddset(&signals_, signal);
    pthread_sigmask(SIG_BLOCK, &signals_, &before_);
  }
  ~HeldSignals() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  HeldSignals(const HeldSignals&) = delete;
  HeldSignals& operator=(const HeldSignals&) = delete;

  void wait() const {
    int signal = 0;
    sigwait(&signals_, &signal);
  }

 private:
  sigset_t signals_{}, before_{};
};

std::string token_of(const ServeOptions& options) {
  const char* in_environment = std::getenv(kTokenVariable);
  const std::string other = in_environment == nullptr ? "" : in_environment;
  const std::string& token = options.token.empty() ? other : options.token;
  const bool is_sendable =
      std::ranges::all_of(token, [](char byte) { return byte > ' ' && byte < 0x7f; });
  if (!is_sendable || (!token.empty() && token.size() < kLeastTokenSize)) {
    throw UserError(cat("a token is ", kLeastTokenSize,
                        " characters of ASCII or more, without spaces [--token or ", kTokenVariable,
                        "]"));
  }
  return token;
}

}  // namespace

int serve_runs(const ServeOptions& options, std::ostream& out) {
  const std::string host = options.host == "localhost" ? "127.0.0.1" : options.host;
  SiteOptions site_options;
  site_options.token = token_of(options);
  site_options.is_on_loopback = is_loopback_address(host);
  RunIndex index(options.folder, {});
  const ListenSocket socket = listen_on(host, options.port);
  if (!site_options.is_on_loopback && site_options.token.empty()) {
    throw UserError(cat(host,
                        " can be reached from other machines: give a token, best in the "
                        "environment as ",
                        kTokenVariable, "; or keep to loopback and come by ssh -L ", socket.port,
                        ":localhost:", socket.port));
  }
  // Cookies are a host's, whatever the port: those of two servers have two names.
  site_options.cookie_name = cat("automodel_serve_", socket.port);
  // Columns of long runs go back to the system when a page is done, instead of piling up in the
  // threads' heaps: half a gigabyte for a run of a million steps.
  constexpr int kLeastOfOwnPages = 1 << 20;
  ::mallopt(M_MMAP_THRESHOLD, kLeastOfOwnPages);
  const HeldSignals signals;
  Site site(index, site_options);
  ServerLimits limits;
  if (site_options.is_on_loopback) limits.num_connections_of_address = limits.num_connections;
  const HttpServer server(socket, site, site_options.cookie_name, limits);
  const std::string shown = host.find(':') == std::string::npos ? host : cat("[", host, "]");
  constexpr const char* kNoRuns =
      "; a run is the checkpoint_dir of a recipe that was run: none lies there yet, and one that "
      "begins is shown as it comes";
  const size_t num_runs = index.list()->runs.size();
  out << "serving " << num_runs << (num_runs == 1 ? " run" : " runs") << " of " << options.folder
      << " at http://" << shown << ":" << socket.port << "/ until Ctrl+C"
      << (num_runs == 0 ? kNoRuns : "") << std::endl;
  if (!out) throw InputError("cannot write the address: is the disk full, or its reader gone?");
  signals.wait();
  return 0;
}

}  // namespace automodel::serve
