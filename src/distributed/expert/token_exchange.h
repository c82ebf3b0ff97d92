#pragma once

#include <cstdint>
#include <memory>

#include "comm/process_group.h"
#include "nn/token_dispatcher.h"

namespace automodel::distributed {

/// Ranks between which tokens travel to experts.
struct ExpertGroups {
  comm::ProcessGroup ep;           ///< holds all experts once
  comm::ProcessGroup same_tokens;  ///< ranks with the same tokens: each sends its part of them
};

/// Sends each token once to every rank that holds one of its experts, with the weights of those,
/// and the sums of their results back. Counts go first; a rank may get no token. Ranks with the
/// same tokens have the same results at the end. Collective over the groups in dispatch, combine
/// and their backward passes.
std::shared_ptr<nn::TokenDispatcher> make_all_to_all_dispatcher(const ExpertGroups& groups,
                                                                int64_t num_experts);

}  // namespace automodel::distributed
