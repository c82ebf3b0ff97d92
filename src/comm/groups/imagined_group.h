#pragma once

#include <string>

#include "comm/groups/process_group.h"

namespace automodel::comm {

/// A group that has a rank and a size but cannot communicate, for plans; any operation on it is an
/// InternalError.
ProcessGroup imagined_group(std::string name, int rank, int size);

}  // namespace automodel::comm
