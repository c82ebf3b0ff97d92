#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace automodel::launcher {

/// This process's place in a run that somebody else started.
struct RankPlace {
  int rank = 0;
  int world_size = 1;
  int local_rank = 0;
  int local_world_size = 1;
  std::string host;  ///< where rank 0 can be reached
  int port = 0;
  std::string source;            ///< "torchrun", "SLURM", "MPI"
  bool store_is_served = false;  ///< torchrun's agent serves a store already
};

using Environment = std::function<std::optional<std::string>(const std::string&)>;

/// The place that torchrun, srun or mpirun gave this process; nullopt when none did. Throws
/// UserError naming the variables that are missing or contradict each other.
std::optional<RankPlace> find_place(const Environment& environment);

/// The first host of a SLURM node list: "node[003-006,9],login1" gives "node003".
std::string first_host(const std::string& node_list);

/// The process's environment.
Environment process_environment();

}  // namespace automodel::launcher
