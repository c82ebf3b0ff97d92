#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "core/json.h"
#include "hub/settings.h"
#include "launcher/control_group.h"

namespace automodel::setup {

enum class Verdict {
  kOk,
  kNote,     ///< runs, but slower or with less than it could
  kProblem,  ///< some runs will fail
};

/// What was found out about one part of this machine.
struct Diagnosis {
  std::string part;  ///< "memory"
  Verdict verdict = Verdict::kOk;
  std::string fact;               ///< what is there
  std::string advice;             ///< what a lack means and what to do; "" when all is well
  bool forbids_training = false;  ///< no run can succeed
};

using launcher::core_limit;
using launcher::memory_limit;
using launcher::SystemFolders;

Diagnosis examine_cpu(const std::string& wanted_kind);
Diagnosis examine_cores(const SystemFolders& folders);
Diagnosis examine_memory(const SystemFolders& folders);
Diagnosis examine_huge_pages(const SystemFolders& folders);
Diagnosis examine_shared_memory(const std::string& folder);
Diagnosis examine_open_files(uint64_t soft_limit, uint64_t hard_limit);
/// The disk of a folder, or of the nearest of its parents that exists.
Diagnosis examine_disk(const std::string& part, const std::string& folder);
/// The addresses of this machine, and whether Gloo can listen as a run over several machines does.
/// `interface`: GLOO_SOCKET_IFNAME.
Diagnosis examine_network(const std::string& interface);
/// The CUDA library, its devices and the driver. Starts CUDA, where there is any.
Diagnosis examine_devices(const SystemFolders& folders);
/// Whether the hub answers within `seconds`, and takes the token.
Diagnosis examine_hub(const hub::Settings& settings, double seconds);

struct DoctorOptions {
  bool is_offline = false;  ///< asks nobody on the network
  bool is_json = false;
};

/// All of them.
std::vector<Diagnosis> examine(const DoctorOptions& options);

/// A line each, with its advice below.
std::string diagnoses_text(const std::vector<Diagnosis>& diagnoses);
Json diagnoses_json(const std::vector<Diagnosis>& diagnoses);

/// `automodel doctor`: prints them; status 0, or 4 when something forbids training.
int run_doctor(const DoctorOptions& options);

}  // namespace automodel::setup
