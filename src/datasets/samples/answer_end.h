#pragma once

#include <cstdint>
#include <vector>

#include "datasets/samples/text_encoder.h"

namespace automodel::datasets {

/// Whether a sample's labels end with a special token, by which a model learns to end what it
/// writes; a line break may follow it, as templates write one. `labels`: those of the sample, with
/// kIgnoreIndex where there is none.
bool ends_with_special(const std::vector<int64_t>& labels, const TextEncoder& encoder);

}  // namespace automodel::datasets
