#pragma once

#include <string>

#include "comm/groups/process_group.h"

namespace automodel::comm {

/// Makes one group of the ranks of two mesh axes, using the axes' groups instead of connections of
/// its own; rank is outer.rank() * inner.size() + inner.rank(). Each operation runs once over
/// `inner` and once over `outer`, and is complete when it returns. all_to_all, send and recv are
/// not supported (InternalError), since two ranks may share neither axis.
ProcessGroup joined_group(std::string name, const ProcessGroup& outer, const ProcessGroup& inner);

}  // namespace automodel::comm
