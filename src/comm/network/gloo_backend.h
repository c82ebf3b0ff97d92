#pragma once

#include <functional>
#include <memory>
#include <string>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "comm/groups/process_group.h"

namespace gloo::transport {
class Device;
}

namespace automodel::comm {

/// Gloo's network device: of an interface, of the loopback ("lo"), or of the host's name ("").
std::shared_ptr<gloo::transport::Device> open_gloo_device(const std::string& interface);

struct GlooPlace {
  int rank = 0;
  int size = 1;
  double timeout_seconds = 60;
  /// Called twice a second while a collective runs; returns whether a peer is known to have failed.
  /// Gloo does not always notice a lost peer, and would wait for the whole timeout.
  std::function<bool()> has_lost_peer;
};

/// A group over Gloo; its ranks meet in `store`. Its operations throw c10d's errors.
std::shared_ptr<GroupBackend> connect_gloo(const c10::intrusive_ptr<c10d::Store>& store,
                                           const std::shared_ptr<gloo::transport::Device>& device,
                                           const GlooPlace& place);

}  // namespace automodel::comm
