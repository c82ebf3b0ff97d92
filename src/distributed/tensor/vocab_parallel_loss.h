#pragma once

#include <memory>

#include "comm/groups/process_group.h"
#include "distributed/tensor/vocab_range.h"
#include "nn/loss_head.h"

namespace automodel::distributed {

/// Head and cross-entropy over a vocabulary whose rows are split over a group. Every rank computes
/// the logits of its own rows; per chunk of tokens only three numbers per token are exchanged (the
/// largest logit, the sum of exponentials, the label's logit). The weight passed in holds this
/// rank's rows, possibly followed by padding; labels are ids of the whole vocabulary. The loss is
/// the same on every rank.
///
/// `sums_hidden_gradient`: whether it sums the gradient of the hidden states over the group; false
/// when the operation that gathered them does so.
std::shared_ptr<nn::LossHead> make_vocab_parallel_loss_head(comm::ProcessGroup group,
                                                            int64_t vocab_size,
                                                            bool sums_hidden_gradient);

}  // namespace automodel::distributed
