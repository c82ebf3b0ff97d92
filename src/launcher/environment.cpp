#include "launcher/environment.h"

#include <sys/random.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <limits>

#include "core/error.h"
#include "core/process.h"
#include "launcher/local_ranks.h"

namespace automodel::launcher {

namespace {

constexpr int64_t kMostThreads = 4096;
constexpr int kFirstJobPort = 20000;
constexpr uint32_t kNumJobPorts = 10000;           // below the ports that Linux hands out
constexpr int64_t kFirstSpecialStep = 0xfffffff0;  // sbatch's script, salloc's shell

/// The names of a launcher's variables.
struct Names {
  const char* source;
  const char* rank;
  const char* world_size;
  const char* local_rank;
  const char* local_world_size;  ///< nullptr: said otherwise
};

constexpr Names kTorchrun = {"torchrun", "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"};
// srun inherits SLURM_NTASKS_PER_NODE from sbatch even where its step has another layout.
constexpr Names kSlurm = {"SLURM", "SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID", nullptr};
constexpr Names kSlurmStep = {"SLURM", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID",
                              nullptr};
constexpr Names kOpenMpi = {"MPI", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE",
                            "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"};
constexpr Names kPmi = {"MPI", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"};

std::optional<int> read_optional(const Environment& environment, const char* name) {
  const auto text = environment(name);
  if (!text) return std::nullopt;
  const auto value = parse_int(*text);
  if (!value || *value < 0 || *value > std::numeric_limits<int>::max()) {
    throw UserError(cat(name, " must be a whole number from 0, found '", *text, "'"));
  }
  return static_cast<int>(*value);
}

int read_number(const Environment& environment, const char* name, const Names& names) {
  const std::optional<int> value = read_optional(environment, name);
  if (value) return *value;
  throw UserError(cat("the environment is ", names.source, "'s but ", name, " is not set"));
}

/// A variable's text; one without any counts as not set.
std::string read_text(const Environment& environment, const char* name) {
  return environment(name).value_or("");
}

int read_port(const Environment& environment, int fallback) {
  const auto text = environment("MASTER_PORT");
  if (!text) return fallback;
  const auto port = parse_int(*text);
  if (!port || *port < 1 || *port > 65535) {
    throw UserError(cat("MASTER_PORT must be a port from 1 to 65535, found '", *text, "'"));
  }
  return static_cast<int>(*port);
}

/// A port that all ranks of a job compute alike and other jobs of the host hardly share.
int port_of_job(const std::string& job) {
  uint32_t hash = 2166136261U;
  for (const char byte : job) hash = (hash ^ static_cast<unsigned char>(byte)) * 16777619U;
  return kFirstJobPort + static_cast<int>(hash % kNumJobPorts);
}

void check_below(const char* small_name, int small, const char* large_name, int large) {
  if (small < large) return;
  throw UserError(cat(small_name, " ", small, " is not below ", large_name, " ", large));
}

RankPlace read_place(const Environment& environment, const Names& names) {
  RankPlace place;
  place.source = names.source;
  place.rank = read_number(environment, names.rank, names);
  place.world_size = read_number(environment, names.world_size, names);
  check_below(names.rank, place.rank, names.world_size, place.world_size);
  place.host = read_text(environment, "MASTER_ADDR");
  place.network_interface = read_text(environment, "GLOO_SOCKET_IFNAME");
  const std::optional<int> local_rank = read_optional(environment, names.local_rank);
  const std::optional<int> local_size = names.local_world_size == nullptr
                                            ? std::nullopt
                                            : read_optional(environment, names.local_world_size);
  if (local_size && (*local_size < 1 || *local_size > place.world_size)) {
    throw UserError(cat(names.local_world_size, " ", *local_size, " does not fit ",
                        names.world_size, " ", place.world_size));
  }
  if (local_rank) {
    check_below(names.local_rank, *local_rank,
                local_size ? names.local_world_size : names.world_size,
                local_size.value_or(place.world_size));
  }
  place.local_world_size = local_size.value_or(is_loopback(place.host) ? place.world_size : 1);
  place.local_rank = local_rank.value_or(place.rank % place.local_world_size);
  return place;
}

/// RANK and its kin, as torchrun and many schedulers set them.
std::optional<RankPlace> torchrun_place(const Environment& environment) {
  const bool is_torchrun = environment("TORCHELASTIC_RUN_ID").has_value();
  if (!is_torchrun && !environment("RANK") && !environment("WORLD_SIZE")) return std::nullopt;
  RankPlace place = read_place(environment, kTorchrun);
  if (place.world_size == 1) return is_torchrun ? std::optional(place) : std::nullopt;
  for (const char* name : {"MASTER_ADDR", "MASTER_PORT"}) {
    if (read_text(environment, name).empty()) {
      throw UserError(cat("the environment is torchrun's but ", name, " is not set"));
    }
  }
  place.port = read_port(environment, 0);
  place.store_is_served = environment("TORCHELASTIC_USE_AGENT_STORE") == "True";
  place.run_id = cat(read_text(environment, "TORCHELASTIC_RUN_ID"), ".",
                     environment("TORCHELASTIC_RESTART_COUNT").value_or("0"));
  return place;
}

std::optional<RankPlace> mpi_place(const Environment& environment, const Names& names) {
  if (!environment(names.rank)) return std::nullopt;
  RankPlace place = read_place(environment, names);
  if (place.world_size == 1) return place;
  const bool is_one_host = place.local_world_size == place.world_size;
  if (place.host.empty() && !is_one_host) {
    throw UserError("started by mpirun on several hosts: set MASTER_ADDR to rank 0's host");
  }
  if (place.host.empty()) place.host = "127.0.0.1";
  place.run_id = read_text(environment, "PMIX_NAMESPACE");
  place.port = read_port(environment, port_of_job(cat("mpi", place.run_id)));
  return place;
}

/// Whether srun started this process. A shell inside an allocation has SLURM_JOB_ID too; only
/// srun's tasks have a step of their own.
bool is_srun_task(const Environment& environment) {
  const std::string step = read_text(environment, "SLURM_STEP_ID");
  if (!environment("SLURM_PROCID") || step.empty()) return false;
  const auto number = parse_int(step);
  if (!number || *number < 0) {
    throw UserError(cat("SLURM_STEP_ID must be a whole number from 0, found '", step, "'"));
  }
  return *number < kFirstSpecialStep;
}

std::optional<RankPlace> slurm_place(const Environment& environment) {
  if (!is_srun_task(environment)) return std::nullopt;
  // In a shell that srun or salloc opened, SLURM_NTASKS may be the allocation's.
  RankPlace place =
      read_place(environment, environment("SLURM_STEP_NUM_TASKS") ? kSlurmStep : kSlurm);
  if (place.world_size == 1) return std::nullopt;
  const int node = read_optional(environment, "SLURM_NODEID").value_or(0);
  const std::string counts = read_text(environment, "SLURM_STEP_TASKS_PER_NODE");
  const auto tasks = counts.empty()
                         ? tasks_on_node(read_text(environment, "SLURM_NTASKS_PER_NODE"), 0)
                         : tasks_on_node(counts, node);
  if (!counts.empty() && !tasks) {
    throw UserError(cat(
        "SLURM_STEP_TASKS_PER_NODE must be numbers of tasks such as 2(x3),1, with one for node ",
        node, ", found '", counts, "'"));
  }
  if (tasks) place.local_world_size = std::clamp(*tasks, 1, place.world_size);
  if (place.host.empty()) place.host = first_host(read_text(environment, "SLURM_STEP_NODELIST"));
  if (place.host.empty()) place.host = first_host(read_text(environment, "SLURM_JOB_NODELIST"));
  if (place.host.empty()) throw UserError("started by srun but SLURM_JOB_NODELIST is not set");
  place.run_id =
      cat(read_text(environment, "SLURM_JOB_ID"), ".", read_text(environment, "SLURM_STEP_ID"));
  place.port = read_port(environment, port_of_job(cat("slurm", place.run_id)));
  return place;
}

}  // namespace

std::string first_host(const std::string& node_list) {
  const size_t bracket = node_list.find('[');
  const size_t comma = node_list.find(',');
  if (bracket == std::string::npos || comma < bracket) return node_list.substr(0, comma);
  const size_t end = node_list.find_first_of(",-]", bracket + 1);
  const size_t close = node_list.find(']', bracket);
  std::string host =
      node_list.substr(0, bracket) + node_list.substr(bracket + 1, end - bracket - 1);
  if (close == std::string::npos) return host;
  // "rack[1-2]n[3-4]": what follows the bracket belongs to the name too.
  return host + first_host(node_list.substr(close + 1));
}

std::optional<int> tasks_on_node(const std::string& tasks_per_node, int node) {
  for (const std::string& piece : split(tasks_per_node, ',')) {
    const size_t paren = piece.find("(x");
    const auto count = parse_int(piece.substr(0, paren));
    if (!count || *count < 1) return std::nullopt;
    int repeats = 1;
    if (paren != std::string::npos) {
      if (!piece.ends_with(')')) return std::nullopt;
      const auto text = parse_int(piece.substr(paren + 2, piece.size() - paren - 3));
      if (!text || *text < 1) return std::nullopt;
      repeats = static_cast<int>(*text);
    }
    if (node < repeats) return static_cast<int>(*count);
    node -= repeats;
  }
  return std::nullopt;
}

namespace {

std::optional<RankPlace> find_started_place(const Environment& environment) {
  if (auto place = torchrun_place(environment)) return place;
  if (auto place = mpi_place(environment, kOpenMpi)) return place;
  // srun may speak PMI as well, and then knows the hosts; under mpirun the task that SLURM counts
  // is only MPI's daemon.
  const bool is_srun_pmi = environment("PMI_RANK") == environment("SLURM_PROCID");
  if (!is_srun_pmi) {
    if (auto place = mpi_place(environment, kPmi)) return place;
  }
  if (auto place = slurm_place(environment)) return place;
  return mpi_place(environment, kPmi);
}

}  // namespace

std::optional<RankPlace> find_place(const Environment& environment) {
  std::optional<RankPlace> place = find_started_place(environment);
  if (!place) return std::nullopt;
  place->secret = read_text(environment, "AUTOMODEL_RUN_SECRET");
  if (place->secret.empty()) {
    place->secret = cat(place->source, " ", place->run_id, " ", place->host, ":", place->port);
  }
  return place;
}

std::string make_run_secret() {
  constexpr size_t kNumBytes = 32;
  constexpr const char* kDigits = "0123456789abcdef";
  std::array<unsigned char, kNumBytes> bytes{};
  if (::getrandom(bytes.data(), bytes.size(), 0) != static_cast<ssize_t>(bytes.size())) {
    throw UserError("the system has no random numbers for the run's secret");
  }
  std::string text;
  for (const unsigned char byte : bytes) {
    text.push_back(kDigits[byte / 16]);
    text.push_back(kDigits[byte % 16]);
  }
  return text;
}

int threads_per_rank(const Environment& environment, int num_local_ranks) {
  const auto threads = parse_int(read_text(environment, "OMP_NUM_THREADS"));
  if (threads && *threads > 0) return static_cast<int>(std::min<int64_t>(*threads, kMostThreads));
  return std::max(1, num_usable_cores() / std::max(1, num_local_ranks));
}

Environment process_environment() {
  return [](const std::string& name) -> std::optional<std::string> {
    const char* value = std::getenv(name.c_str());
    return value == nullptr ? std::nullopt : std::optional<std::string>(value);
  };
}

}  // namespace automodel::launcher
