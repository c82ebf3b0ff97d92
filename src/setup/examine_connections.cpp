#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <thread>

#include "comm/network/gloo_backend.h"
#include "comm/network/local_address.h"
#include "core/error.h"
#include "core/file.h"
#include "http/http_client.h"
#include "setup/doctor.h"
#include "tensor/cuda_runtime.h"

namespace automodel::setup {

namespace {

/// Why Gloo cannot listen there; "" when it can.
std::string why_not_listening(const comm::GlooPlaces& places) {
  try {
    comm::open_gloo_devices(places);
    return "";
  } catch (const UserError& error) {
    return error.what();
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
  const std::vector<std::string> addresses = comm::interface_addresses();
  Diagnosis found{
      .part = "network",
      .fact = addresses.empty() ? "no interface but the loopback" : join(addresses, ", ")};
  if (const std::string reason = why_not_listening({.address = "127.0.0.1"}); !reason.empty()) {
    found.verdict = Verdict::kProblem;
    found.advice = cat("ranks of one machine cannot meet: ", reason, "; bring the loopback up");
    return found;
  }
  if (addresses.empty()) {
    found.verdict = Verdict::kNote;
    found.advice = "runs on this machine alone";
    return found;
  }
  if (const std::string reason = why_not_listening({.interfaces = interface});
      !interface.empty() && !reason.empty()) {
    found.verdict = Verdict::kProblem;
    found.advice = cat("ranks of several machines cannot meet: ", reason);
    return found;
  }
  found.fact += cat("; runs over machines listen ",
                    interface.empty() ? "at the address from which MASTER_ADDR is reached"
                                      : cat("on ", interface));
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
