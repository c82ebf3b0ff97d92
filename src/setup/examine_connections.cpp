#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <thread>

#include "comm/network/gloo_backend.h"
#include "core/error.h"
#include "core/file.h"
#include "http/http_client.h"
#include "setup/doctor.h"
#include "tensor/cuda_runtime.h"

namespace automodel::setup {

namespace {

/// "eth0 10.0.0.3" for every interface that is up, without the loopback.
std::vector<std::string> interface_addresses() {
  ifaddrs* first = nullptr;
  if (::getifaddrs(&first) != 0) return {};
  const std::unique_ptr<ifaddrs, void (*)(ifaddrs*)> list(first, ::freeifaddrs);
  std::vector<std::string> found;
  for (const ifaddrs* one = first; one != nullptr; one = one->ifa_next) {
    const bool is_up = (one->ifa_flags & IFF_UP) != 0 && (one->ifa_flags & IFF_LOOPBACK) == 0;
    if (!is_up || one->ifa_addr == nullptr || one->ifa_addr->sa_family != AF_INET) continue;
    char text[INET_ADDRSTRLEN] = {};
    const auto* address = reinterpret_cast<const sockaddr_in*>(one->ifa_addr);
    ::inet_ntop(AF_INET, &address->sin_addr, text, sizeof text);
    found.push_back(cat(one->ifa_name, " ", static_cast<const char*>(text)));
  }
  return found;
}

/// Why Gloo cannot listen there; "" when it can.
std::string why_not_listening(const std::string& interface) {
  try {
    comm::open_gloo_device(interface);
    return "";
  } catch (const std::exception& error) {
    const std::string text = error.what();
    return text.substr(0, text.find('\n'));
  }
}

/// Becomes true after some seconds, unless it is destroyed before.
class Deadline final {
 public:
  explicit Deadline(double seconds)
      : thread_([this, seconds](const std::stop_token& stop) {
          std::unique_lock lock(mutex_);
          const auto limit = std::chrono::duration<double>(seconds);
          const bool is_stopped =
              changed_.wait_for(lock, stop, limit, [&] { return stop.stop_requested(); });
          if (!is_stopped) is_over_ = true;
        }) {}

  const std::atomic<bool>& is_over() const { return is_over_; }

 private:
  std::atomic<bool> is_over_{false};
  std::mutex mutex_;
  std::condition_variable_any changed_;
  std::jthread thread_;  // last: it uses the others
};

/// The driver's version: "NVRM version: NVIDIA UNIX x86_64 Kernel Module  570.1 ..." in /proc.
std::string driver_version(const SystemFolders& folders) {
  const std::string path = folders.proc + "/driver/nvidia/version";
  if (!path_exists(path)) return "";
  const std::string text = read_file(path);
  for (const std::string& word : split(text.substr(0, text.find('\n')), ' ')) {
    if (!word.empty() && word[0] >= '0' && word[0] <= '9' && word.find('.') != std::string::npos) {
      return word;
    }
  }
  return "of an unknown version";
}

}  // namespace

Diagnosis examine_network(const std::string& interface) {
  const std::vector<std::string> addresses = interface_addresses();
  Diagnosis found{
      .part = "network",
      .fact = addresses.empty() ? "no interface but the loopback" : join(addresses, ", ")};
  if (const std::string reason = why_not_listening("lo"); !reason.empty()) {
    found.verdict = Verdict::kProblem;
    found.advice = cat("Gloo cannot listen on 127.0.0.1 (", reason,
                       "): ranks of one machine cannot meet; bring the loopback up");
    return found;
  }
  const std::string reason = why_not_listening(interface);
  if (!reason.empty()) {
    found.verdict = Verdict::kProblem;
    found.advice = cat("Gloo cannot listen ",
                       interface.empty() ? std::string("at the host's name")
                                         : cat("on GLOO_SOCKET_IFNAME=", interface),
                       " (", reason,
                       "): ranks of several machines cannot meet; set "
                       "GLOO_SOCKET_IFNAME to an interface that the others can reach");
  } else if (addresses.empty()) {
    found.verdict = Verdict::kNote;
    found.advice = "runs on this machine alone";
  } else {
    found.fact +=
        cat("; runs over machines listen ",
            interface.empty() ? std::string("at the host's name") : cat("on ", interface));
  }
  return found;
}

Diagnosis examine_devices(const SystemFolders& folders) {
  const std::string driver = driver_version(folders);
  Diagnosis found{.part = "CUDA"};
  std::unique_ptr<tensor::CudaRuntime> cuda;
  try {
    cuda = tensor::open_cuda();
  } catch (const UnsupportedError& error) {
    found.fact = error.what();
    found.verdict = driver.empty() ? Verdict::kOk : Verdict::kNote;
    found.advice = driver.empty() ? ""
                                  : cat("this machine has NVIDIA's driver ", driver,
                                        ", which this program cannot use: runs take the CPU");
    if (driver.empty()) found.fact = "no driver and no CUDA library: runs take the CPU";
    return found;
  }
  const int count = cuda->device_count();
  const std::string with = driver.empty() ? "no driver" : cat("driver ", driver);
  if (count == 0) {
    found.verdict = Verdict::kNote;
    found.fact = cat("the CUDA library, ", with, ", and no device");
    found.advice = "runs take the CPU; see nvidia-smi and CUDA_VISIBLE_DEVICES";
    return found;
  }
  found.fact =
      cat(count, count == 1 ? " device" : " devices", " (", cuda->device_name(0), "), ", with);
  return found;
}

Diagnosis examine_hub(const hub::Settings& settings, double seconds) {
  Diagnosis found{.part = "hub"};
  if (settings.is_offline) {
    found.fact = cat(settings.endpoint, ", not asked: HF_HUB_OFFLINE is set");
    return found;
  }
  hub::Settings hasty = settings;
  hasty.connect_seconds = seconds;
  hasty.stall_seconds = seconds;
  const Deadline deadline(seconds);
  http::HttpClient client(hub::http_options(hasty), &deadline.is_over());
  const bool has_token = !settings.token.empty();
  const std::string question = has_token ? "/api/whoami-v2" : "/api/models?limit=1";
  const http::HttpAnswer answer = client.get(settings.endpoint + question);
  const int status = answer.head.status;
  if (status == 0 || status >= 500) {
    const std::string reason = deadline.is_over() ? cat("no answer in ", seconds, " s")
                               : status != 0      ? cat("it answered ", status)
                                                  : answer.problem;
    found.verdict = Verdict::kNote;
    found.fact = cat(settings.endpoint, " is out of reach: ", reason);
    found.advice =
        "models and data must be on this machine (HF_HUB_OFFLINE=1 skips the waiting); "
        "see HF_ENDPOINT and https_proxy";
  } else if (has_token && (status == 401 || status == 403)) {
    found.verdict = Verdict::kProblem;
    found.fact = cat(settings.endpoint, " answers, and refuses the token");
    found.advice = "every download fails, public ones too; renew HF_TOKEN or unset it";
  } else if (status != 200) {
    found.verdict = Verdict::kNote;
    found.fact = cat(settings.endpoint, " answers ", question, " with status ", status);
    found.advice = "that is no answer of the hub's; see HF_ENDPOINT and https_proxy";
  } else if (!has_token) {
    found.fact = cat(settings.endpoint, " answers; no token: gated models need HF_TOKEN");
  } else {
    found.fact = cat(settings.endpoint, " answers, and takes the token");
  }
  return found;
}

}  // namespace automodel::setup
