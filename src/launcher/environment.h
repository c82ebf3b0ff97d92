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
  std::string source;  ///< "torchrun", "SLURM", "MPI"
  std::string run_id;  ///< the same on all ranks; another after torchrun restarts them
  /// AUTOMODEL_RUN_SECRET, or a text that the run's ranks have in common and other runs have not.
  std::string secret;
  bool store_is_served = false;   ///< torchrun's agent serves a store already
  std::string network_interface;  ///< GLOO_SOCKET_IFNAME; "": by the host's name
};

using Environment = std::function<std::optional<std::string>(const std::string&)>;

/// The place that torchrun, srun or mpirun gave this process; nullopt when none did. Where nobody
/// says MASTER_PORT, srun's and mpirun's ranks take a port that follows from the job's id. Throws
/// UserError naming the variables that are missing or contradict each other.
std::optional<RankPlace> find_place(const Environment& environment);

/// The first host of a SLURM node list: "node[003-006,9],login1" gives "node003".
std::string first_host(const std::string& node_list);

/// The tasks on one node of SLURM's list of counts: node 1 of "4(x2),3" has 4. nullopt when the
/// text is none or does not reach the node.
std::optional<int> tasks_on_node(const std::string& tasks_per_node, int node);

/// Threads of one of `num_local_ranks` ranks of this machine: OMP_NUM_THREADS, or the usable cores
/// divided among them, at least 1.
int threads_per_rank(const Environment& environment, int num_local_ranks);

/// A secret that nobody can guess, for a run whose ranks are started here.
std::string make_run_secret();

/// The process's environment.
Environment process_environment();

}  // namespace automodel::launcher
