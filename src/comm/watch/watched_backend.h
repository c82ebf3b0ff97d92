#pragma once

#include <memory>

#include "comm/groups/process_group.h"
#include "comm/watch/device_watch.h"
#include "comm/watch/traffic.h"

namespace automodel::comm {

/// Wraps a backend: its operations are known to the watch from their start to the end of their
/// wait, and the watch explains their failures, which become PeerFailure. With a `device_watch`,
/// operations on a device are followed beyond their waits, and none starts after a failure. Each
/// is counted by `traffic`.
std::shared_ptr<GroupBackend> watch_backend(std::shared_ptr<GroupBackend> backend,
                                            std::shared_ptr<FailureWatch> watch, WatchedGroup group,
                                            std::shared_ptr<TrafficMeter> traffic,
                                            std::shared_ptr<DeviceWatch> device_watch = nullptr);

}  // namespace automodel::comm
