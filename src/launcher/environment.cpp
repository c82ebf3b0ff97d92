#include "launcher/environment.h"

#include <algorithm>
#include <cstdlib>

#include "core/error.h"
#include "launcher/local_ranks.h"

namespace automodel::launcher {

namespace {

constexpr int kFirstJobPort = 20000;
constexpr uint32_t kNumJobPorts = 10000;  // below the ports that Linux hands out

/// The names of a launcher's variables.
struct Names {
  const char* source;
  const char* rank;
  const char* world_size;
  const char* local_rank;
  const char* local_world_size;
};

constexpr Names kTorchrun = {"torchrun", "RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"};
constexpr Names kSlurm = {"SLURM", "SLURM_PROCID", "SLURM_NTASKS", "SLURM_LOCALID",
                          "SLURM_NTASKS_PER_NODE"};
constexpr Names kOpenMpi = {"MPI", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE",
                            "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"};
constexpr Names kPmi = {"MPI", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"};

int read_number(const Environment& environment, const char* name, const Names& names) {
  const auto text = environment(name);
  if (!text) {
    throw UserError(cat("the environment is ", names.source, "'s but ", name, " is not set"));
  }
  const auto value = parse_int(*text);
  if (!value || *value < 0) {
    throw UserError(cat(name, " must be a whole number from 0, found '", *text, "'"));
  }
  return static_cast<int>(*value);
}

int read_optional(const Environment& environment, const char* name, int fallback) {
  const auto text = environment(name);
  const auto value = text ? parse_int(*text) : std::nullopt;
  return value ? static_cast<int>(*value) : fallback;
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

RankPlace read_place(const Environment& environment, const Names& names) {
  RankPlace place;
  place.source = names.source;
  place.rank = read_number(environment, names.rank, names);
  place.world_size = read_number(environment, names.world_size, names);
  if (place.rank >= place.world_size) {
    throw UserError(cat(names.rank, " ", place.rank, " is not below ", names.world_size, " ",
                        place.world_size));
  }
  place.local_rank = read_optional(environment, names.local_rank, place.rank);
  place.local_world_size = read_optional(environment, names.local_world_size, 1);
  if (place.local_rank >= place.world_size || place.local_world_size > place.world_size) {
    throw UserError(cat(names.local_rank, " ", place.local_rank, " and ", names.local_world_size,
                        " ", place.local_world_size, " do not fit ", names.world_size, " ",
                        place.world_size));
  }
  place.host = environment("MASTER_ADDR").value_or("");
  place.network_interface = environment("GLOO_SOCKET_IFNAME").value_or("");
  return place;
}

/// RANK and its kin, as torchrun and many schedulers set them.
std::optional<RankPlace> torchrun_place(const Environment& environment) {
  const bool is_torchrun = environment("TORCHELASTIC_RUN_ID").has_value();
  if (!is_torchrun && !environment("RANK") && !environment("WORLD_SIZE")) return std::nullopt;
  RankPlace place = read_place(environment, kTorchrun);
  if (place.world_size == 1) return is_torchrun ? std::optional(place) : std::nullopt;
  for (const char* name : {"MASTER_ADDR", "MASTER_PORT"}) {
    if (!environment(name)) {
      throw UserError(cat("the environment is torchrun's but ", name, " is not set"));
    }
  }
  place.port = read_port(environment, 0);
  place.store_is_served = environment("TORCHELASTIC_USE_AGENT_STORE") == "True";
  place.run_id = cat(environment("TORCHELASTIC_RUN_ID").value_or(""), ".",
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
  place.run_id = environment("PMIX_NAMESPACE").value_or(environment("PMI_ID").value_or(""));
  place.port = read_port(environment, port_of_job(cat("mpi", place.run_id)));
  return place;
}

std::optional<RankPlace> slurm_place(const Environment& environment) {
  // A shell inside an allocation has SLURM_JOB_ID too; only srun's tasks have a step.
  if (!environment("SLURM_PROCID") || !environment("SLURM_STEP_ID")) return std::nullopt;
  RankPlace place = read_place(environment, kSlurm);
  if (place.world_size == 1) return std::nullopt;
  const auto counts = environment("SLURM_STEP_TASKS_PER_NODE");
  const int node = read_optional(environment, "SLURM_NODEID", 0);
  if (const auto tasks = counts ? tasks_on_node(*counts, node) : std::nullopt) {
    place.local_world_size = *tasks;
  }
  if (place.host.empty()) {
    place.host = first_host(environment("SLURM_STEP_NODELIST")
                                .value_or(environment("SLURM_JOB_NODELIST").value_or("")));
  }
  if (place.host.empty()) throw UserError("started by srun but SLURM_JOB_NODELIST is not set");
  place.run_id =
      cat(environment("SLURM_JOB_ID").value_or(""), ".", environment("SLURM_STEP_ID").value_or(""));
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
    if (!count) return std::nullopt;
    int repeats = 1;
    if (paren != std::string::npos) {
      const auto text = parse_int(piece.substr(paren + 2, piece.size() - paren - 3));
      if (!text) return std::nullopt;
      repeats = static_cast<int>(*text);
    }
    if (node < repeats) return static_cast<int>(*count);
    node -= repeats;
  }
  return std::nullopt;
}

std::optional<RankPlace> find_place(const Environment& environment) {
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

int threads_per_rank(const Environment& environment, int num_local_ranks) {
  const int threads = read_optional(environment, "OMP_NUM_THREADS", 0);
  if (threads > 0) return threads;
  return std::max(1, num_usable_cores() / std::max(1, num_local_ranks));
}

Environment process_environment() {
  return [](const std::string& name) -> std::optional<std::string> {
    const char* value = std::getenv(name.c_str());
    return value == nullptr ? std::nullopt : std::optional<std::string>(value);
  };
}

}  // namespace automodel::launcher
