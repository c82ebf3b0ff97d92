#pragma once

#include <cstdint>
#include <memory>

#include "comm/groups/process_group.h"
#include "nn/token_dispatcher.h"

namespace automodel::distributed {

/// The ranks between which tokens are sent to experts.
struct ExpertGroups {
  comm::ProcessGroup ep;           ///< holds every expert once
  comm::ProcessGroup same_tokens;  ///< ranks with the same tokens; each sends a part of them
};

/// Sends each token once to every rank that holds one of its experts, with the weights of these
/// experts, and sends the sums of their results back. Counts are exchanged first; a rank may
/// receive no token. Ranks with the same tokens end with the same results. Collective over the
/// groups in dispatch, combine and their backward passes.
std::shared_ptr<nn::TokenDispatcher> make_all_to_all_dispatcher(const ExpertGroups& groups,
                                                                int64_t num_experts);

}  // namespace automodel::distributed
