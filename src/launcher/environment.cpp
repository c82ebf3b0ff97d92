#include "launcher/environment.h"

#include <cstdlib>

#include "core/error.h"

namespace automodel::launcher {

namespace {

constexpr int kDefaultPort = 29500;

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
  place.host = environment("MASTER_ADDR").value_or("");
  place.port = read_optional(environment, "MASTER_PORT", kDefaultPort);
  return place;
}

}  // namespace

std::string first_host(const std::string& node_list) {
  const size_t bracket = node_list.find('[');
  const size_t comma = node_list.find(',');
  if (bracket == std::string::npos || comma < bracket) return node_list.substr(0, comma);
  const size_t end = node_list.find_first_of(",-]", bracket + 1);
  return node_list.substr(0, bracket) + node_list.substr(bracket + 1, end - bracket - 1);
}

std::optional<RankPlace> find_place(const Environment& environment) {
  if (environment("TORCHELASTIC_RUN_ID") ||
      (environment("RANK") && environment("WORLD_SIZE") && environment("MASTER_ADDR"))) {
    RankPlace place = read_place(environment, kTorchrun);
    if (place.host.empty()) {
      throw UserError("the environment is torchrun's but MASTER_ADDR is not set");
    }
    place.store_is_served = environment("TORCHELASTIC_USE_AGENT_STORE") == "True";
    return place;
  }
  if (environment("OMPI_COMM_WORLD_RANK") || environment("PMI_RANK")) {
    const bool is_open_mpi = environment("OMPI_COMM_WORLD_RANK").has_value();
    RankPlace place = read_place(environment, is_open_mpi ? kOpenMpi : kPmi);
    const bool is_one_host = place.local_world_size == place.world_size;
    if (place.host.empty() && !is_one_host) {
      throw UserError("started by mpirun on several hosts: set MASTER_ADDR to rank 0's host");
    }
    if (place.host.empty()) place.host = "127.0.0.1";
    return place;
  }
  // A shell inside an allocation has SLURM_JOB_ID too; only srun's tasks have a step.
  if (environment("SLURM_PROCID") && environment("SLURM_STEP_ID") &&
      read_optional(environment, "SLURM_NTASKS", 1) > 1) {
    RankPlace place = read_place(environment, kSlurm);
    if (place.host.empty()) {
      place.host = first_host(environment("SLURM_STEP_NODELIST")
                                  .value_or(environment("SLURM_JOB_NODELIST").value_or("")));
    }
    if (place.host.empty()) throw UserError("started by srun but SLURM_JOB_NODELIST is not set");
    return place;
  }
  return std::nullopt;
}

Environment process_environment() {
  return [](const std::string& name) -> std::optional<std::string> {
    const char* value = std::getenv(name.c_str());
    return value == nullptr ? std::nullopt : std::optional<std::string>(value);
  };
}

}  // namespace automodel::launcher
