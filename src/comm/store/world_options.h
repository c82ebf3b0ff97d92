#pragma once

#include <string>

#include "core/reporter.h"

namespace automodel::comm {

/// How a rank connects to the others.
struct WorldOptions {
  int rank = 0;
  int size = 1;
  int first_rank = 0;              ///< what texts call rank 0, of a world that is part of a run
  std::string host = "127.0.0.1";  ///< where the store listens
  int port = 0;
  bool hosts_store = false;  ///< this rank, and no other process, serves the store
  /// fail() returns when the others have read its text, as it does with hosts_store: this process
  /// serves the store by another world.
  bool outstays_others = false;
  bool is_agents_store = false;   ///< torchrun's agent serves it, using c10d
  bool is_one_machine = true;     ///< of all ranks: the store may listen on the loopback
  std::string secret;             ///< of the run; the store refuses clients without it
  double timeout_seconds = 60;    ///< of every wait: for the others' start, in a collective
  std::string run_id;             ///< separates attempts that share a store (torchrun restarts)
  std::string network_interface;  ///< "eth0": for ranks on several hosts; "": the host name's
  /// Who serves the store, in texts: rank 0 as a rule, or what started all ranks.
  std::string store_place = "rank 0";
  bool may_share_memory = true;  ///< false: groups within one host use its loopback too
  /// A rank without a sign of life for so long has vanished; used while devices work.
  double lost_seconds = 10;
  /// The limit for aborting devices' work after the run has failed; then the process ends.
  double abort_seconds = 10;
  Reporter* reporter = nullptr;  ///< gets the reason why ranks of one host do not share memory
};

}  // namespace automodel::comm
