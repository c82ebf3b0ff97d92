#pragma once

#include <functional>
#include <memory>
#include <string>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <vector>

#include "comm/groups/process_group.h"

namespace gloo::transport {
class Device;
}

namespace automodel::comm {

/// Where Gloo listens: at `interfaces` ("eth0", "eth0,eth1"), else at `address`, a numeric one of
/// this machine, else at the host's name.
struct GlooPlaces {
  std::string interfaces;
  std::string address;
};

using GlooDevices = std::vector<std::shared_ptr<gloo::transport::Device>>;

/// Gloo's network devices. Throws UserError when there is no such interface or address.
GlooDevices open_gloo_devices(const GlooPlaces& places);

struct GlooPlace {
  int rank = 0;
  int size = 1;
  double timeout_seconds = 60;
  /// Called twice a second while a collective runs; returns whether a peer is known to have failed.
  /// Gloo does not always notice a lost peer, and would wait for the whole timeout.
  std::function<bool()> has_lost_peer;
};

/// A group over Gloo; its ranks meet in `store`. Its operations throw c10d's errors. Throws while
/// the ranks meet when a peer is known to have failed: Gloo alone would wait for several timeouts.
std::shared_ptr<GroupBackend> connect_gloo(const c10::intrusive_ptr<c10d::Store>& store,
                                           const GlooDevices& devices, const GlooPlace& place);

}  // namespace automodel::comm
