#pragma once

#include <memory>
#include <string>
#include <vector>

#include "comm/groups/process_group.h"

namespace automodel::comm {

/// How a group's ranks lie on hosts: on each as many, one behind the other.
struct HostsLayout {
  int num_hosts = 1;
  int on_host = 1;

  bool operator==(const HostsLayout&) const = default;
};

/// The layout of ranks, given each one's host by any names; one host if they are not laid out so.
HostsLayout layout_of(const std::vector<std::string>& hosts);

/// The parts of a group that lies on several hosts.
struct HostsGroups {
  std::shared_ptr<GroupBackend> whole;   ///< everybody, over the network
  std::shared_ptr<GroupBackend> within;  ///< the ranks of this host; null if it has one
  std::shared_ptr<GroupBackend> across;  ///< of every host the rank that has this one's place there
};

/// A group over several hosts whose gathers, reduce-scatters and large reductions send each number
/// from host to host once, whatever the number of ranks on them: within a host they go over
/// `within`. What else there is, `whole` does. Sums are made within hosts in the order of ranks,
/// then over hosts in their order: equal to the bit on all ranks and in every run. Starts a thread,
/// which runs the operations in their order.
std::shared_ptr<GroupBackend> join_hosts(HostsGroups groups);

}  // namespace automodel::comm
