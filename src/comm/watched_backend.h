#pragma once

#include <memory>

#include "comm/failure_watch.h"
#include "comm/process_group.h"

namespace automodel::comm {

/// A backend whose operations are known to the watch from their start to the end of their wait, and
/// whose failures it explains: they become PeerFailure.
std::shared_ptr<GroupBackend> watch_backend(std::shared_ptr<GroupBackend> backend,
                                            std::shared_ptr<FailureWatch> watch,
                                            WatchedGroup group);

}  // namespace automodel::comm
