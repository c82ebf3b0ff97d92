#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <thread>

#include "core/error.h"
#include "core/file.h"
#include "kernels/cpu/kind.h"
#include "launcher/local_ranks.h"
#include "setup/doctor.h"

namespace automodel::setup {

namespace {

namespace fs = std::filesystem;

constexpr uint64_t kMiB = uint64_t{1} << 20;
constexpr uint64_t kGiB = uint64_t{1} << 30;

/// A small file's text; "" when there is none.
std::string text_of(const std::string& path) {
  return path_exists(path) ? read_file(path) : "";
}

uint64_t kibibytes_of(const std::string& meminfo, const std::string& name) {
  for (const std::string& line : split(meminfo, '\n')) {
    if (!line.starts_with(name + ":")) continue;
    const std::string_view rest = trim(std::string_view(line).substr(name.size() + 1));
    return static_cast<uint64_t>(parse_int(rest.substr(0, rest.find(' '))).value_or(0));
  }
  return 0;
}

std::string counted(int64_t count, const char* one, const char* many) {
  return cat(count, " ", count == 1 ? one : many);
}

}  // namespace

Diagnosis examine_cpu(const std::string& wanted_kind) {
  using namespace kernels::cpu;
  Diagnosis found{.part = "CPU"};
  const CpuKind best = best_kind();
  CpuKind kind = best;
  try {
    kind = chosen_kind(wanted_kind, best);
  } catch (const InputError& error) {
    found.verdict = Verdict::kProblem;
    found.fact = error.what();
    found.advice = "every run ends with this error; unset AUTOMODEL_CPU, or take one of these";
    found.forbids_training = true;
    return found;
  }
  const bool is_fast = kind == CpuKind::kAmx || has_fast_dot_products(kind, is_intel());
  found.fact = cat("kernels for ", name_of(kind), "; bfloat16 products ",
                   is_fast ? "by the CPU's own instructions" : "in float32");
  if (kind < best) {
    found.verdict = Verdict::kNote;
    found.advice = cat("AUTOMODEL_CPU asks for less than this CPU has (", name_of(best),
                       "): runs are slower; unset it unless that is wanted");
  } else if (kind == CpuKind::kBaseline) {
    found.verdict = Verdict::kNote;
    found.advice = "a CPU without AVX2 and FMA (2013 on) trains much slower";
  }
  return found;
}

Diagnosis examine_cores(const SystemFolders& folders) {
  const int usable = launcher::num_usable_cores();
  const auto all = static_cast<int>(std::thread::hardware_concurrency());
  const auto limit = core_limit(folders);
  Diagnosis found{.part = "cores", .fact = counted(usable, "usable core", "usable cores")};
  if (limit && *limit < usable) {
    found.verdict = Verdict::kNote;
    found.fact += cat(", limited to the time of ", format_fixed(*limit, 1));
    found.advice = cat("more threads than the limit wait for each other; set OMP_NUM_THREADS=",
                       std::max(1, static_cast<int>(*limit)));
  } else if (all > usable) {
    found.fact += cat(" of ", all);
  }
  return found;
}

Diagnosis examine_memory(const SystemFolders& folders) {
  const std::string meminfo = text_of(folders.proc + "/meminfo");
  const uint64_t available = kibibytes_of(meminfo, "MemAvailable") * 1024;
  const auto limit = memory_limit(folders);
  Diagnosis found{.part = "memory",
                  .fact = cat(format_bytes(available), " available of ",
                              format_bytes(kibibytes_of(meminfo, "MemTotal") * 1024))};
  if (limit) found.fact += cat(", limited to ", format_bytes(*limit), " by the control group");
  const uint64_t usable = std::min(available, limit.value_or(available));
  if (usable < 256 * kMiB) {
    found.verdict = Verdict::kProblem;
    found.forbids_training = true;
    found.advice = "the program alone takes 200 MiB; free memory, or raise the limit";
  } else if (usable < 2 * kGiB) {
    found.verdict = Verdict::kNote;
    found.advice = "enough for small models; `automodel plan RECIPE --device-memory " +
                   cat(usable / kMiB, "MiB` says whether a run fits");
  }
  return found;
}

Diagnosis examine_huge_pages(const SystemFolders& folders) {
  const std::string modes = text_of(folders.sys + "/kernel/mm/transparent_hugepage/enabled");
  const size_t begin = modes.find('['), end = modes.find(']');
  const bool is_known = begin != std::string::npos && end != std::string::npos && begin < end;
  const std::string mode = is_known ? modes.substr(begin + 1, end - begin - 1) : "unknown";
  Diagnosis found{.part = "huge pages", .fact = cat("transparent_hugepage is ", mode)};
  if (mode == "always" || mode == "madvise") return found;
  found.verdict = Verdict::kNote;
  found.advice =
      "large tensors lie on pages of 4 KiB, which takes time; "
      "echo madvise > /sys/kernel/mm/transparent_hugepage/enabled (as root)";
  return found;
}

Diagnosis examine_shared_memory(const std::string& folder) {
  struct statvfs disk {};
  Diagnosis found{.part = folder};
  if (::statvfs(folder.c_str(), &disk) != 0) {
    found.verdict = Verdict::kNote;
    found.fact = "not there";
  } else {
    const uint64_t free_bytes = uint64_t{disk.f_bavail} * disk.f_frsize;
    found.fact = cat(format_bytes(free_bytes), " free of ",
                     format_bytes(uint64_t{disk.f_blocks} * disk.f_frsize));
    if (free_bytes >= 512 * kMiB) return found;
    found.verdict = Verdict::kNote;
  }
  found.advice =
      "no matter on CPUs (ranks share memory without it); NCCL needs it for ranks of one machine: "
      "docker run --shm-size=1g";
  return found;
}

Diagnosis examine_open_files(uint64_t soft_limit, uint64_t hard_limit) {
  Diagnosis found{.part = "open files", .fact = cat("at most ", soft_limit, " in a process")};
  if (soft_limit >= 1024) return found;
  found.verdict = soft_limit < 64 ? Verdict::kProblem : Verdict::kNote;
  found.forbids_training = soft_limit < 64;
  found.advice = cat("many ranks, data files or shards of weights need more; ulimit -n ",
                     std::min<uint64_t>(hard_limit, 4096),
                     hard_limit < 4096 ? ", more by the administrator" : "");
  return found;
}

Diagnosis examine_disk(const std::string& part, const std::string& folder) {
  fs::path place = fs::absolute(folder);
  std::error_code ignored;
  while (!fs::is_directory(place, ignored) && place.has_relative_path()) {
    place = place.parent_path();
  }
  struct statvfs disk {};
  Diagnosis found{.part = part};
  if (::statvfs(place.c_str(), &disk) != 0) {
    found.verdict = Verdict::kProblem;
    found.fact = cat(folder, " cannot be looked at");
    found.advice = "nothing can be kept there; name another folder";
    return found;
  }
  const uint64_t free_bytes = uint64_t{disk.f_bavail} * disk.f_frsize;
  found.fact = cat(format_bytes(free_bytes), " free for ", folder);
  if (::access(place.c_str(), W_OK) != 0) {
    found.verdict = Verdict::kProblem;
    found.fact += cat(", and ", place.string(), " cannot be written to");
    found.advice = "checkpoints and downloads fail there; name another folder, or have it opened";
  } else if (free_bytes < kGiB) {
    found.verdict = Verdict::kProblem;
    found.advice =
        "a checkpoint takes 12 bytes a parameter (7B: 84 GB), and would not fit; free some";
  } else if (free_bytes < 20 * kGiB) {
    found.verdict = Verdict::kNote;
    found.advice = "a checkpoint takes 12 bytes a parameter (7B: 84 GB); enough for small models";
  }
  return found;
}

}  // namespace automodel::setup
