#pragma once

#include <memory>

#include "comm/process_group.h"
#include "distributed/tensor/vocab_range.h"
#include "nn/loss_head.h"

namespace automodel::distributed {

/// Head and cross-entropy over a vocabulary whose rows are split over a group. Every rank computes
/// the logits of its own rows; of a chunk of tokens only three numbers a token travel (the largest
/// logit, the sum of exponentials, the label's logit). The weight it is given holds this rank's
/// rows, perhaps with padding behind them; labels are those of the whole vocabulary. The loss is
/// the same on every rank.
///
/// `sums_hidden_gradient`: the gradient of the hidden states is added up over the group; false when
/// whoever gathered them does that.
std::shared_ptr<nn::LossHead> make_vocab_parallel_loss_head(comm::ProcessGroup group,
                                                            int64_t vocab_size,
                                                            bool sums_hidden_gradient);

}  // namespace automodel::distributed
