#pragma once

#include <cstdint>
#include <ostream>

#include "datasets/samples/dataset.h"

namespace automodel::recipes {

/// Writes a line of JSON for each of the first samples of a dataset, packs if it makes some:
/// `origin`, `input_ids`, `labels` (one place earlier than their tokens, but for diffusion and
/// classes), `num_attended` (the ids behind are padding), and where there are any `num_cut`,
/// `document_lengths`, `token_types` and `source_ids`. Of a stream of tokens, which has no rows,
/// `input_ids` and `labels` of the first sequences. Throws InputError for a row that is wrong.
void write_sample_lines(datasets::BatchStream& stream, int64_t num_samples, std::ostream& out);

}  // namespace automodel::recipes
