#pragma once

#include <string>

#include "comm/process_group.h"

namespace automodel::comm {

/// The ranks of two axes of a mesh as one group, made of the axes' own groups without a connection
/// of its own: rank outer.rank() * inner.size() + inner.rank(). Each operation is one over `inner`
/// and one over `outer`, and has ended when it returns. Exchanges between two ranks go over neither
/// axis: all_to_all, send and recv are for groups that a world has made (InternalError here).
ProcessGroup joined_group(std::string name, const ProcessGroup& outer, const ProcessGroup& inner);

}  // namespace automodel::comm
