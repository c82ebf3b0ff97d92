#pragma once

#include <memory>
#include <string>
#include <vector>

#include "comm/groups/process_group.h"
#include "core/phase_times.h"
#include "core/reporter.h"
#include "datasets/samples/dataset.h"
#include "datasets/samples/text_encoder.h"
#include "recipes/read/recipe.h"

namespace automodel::recipes {

struct ValidationSet {
  std::string name;
  std::unique_ptr<datasets::BatchStream> stream;
};

/// The data that a rank trains and validates on.
struct SessionData {
  std::vector<std::unique_ptr<datasets::TextEncoder>> encoders;  ///< used by the streams
  std::unique_ptr<datasets::BatchStream> training;
  std::vector<ValidationSet> validation;
};

/// Opens the recipe's datasets. `readers`: the ranks that read different data. Datasets of random
/// tokens draw below `vocab_size`. `times` gets the phases "tokenizer" and "data". Throws
/// InputError.
SessionData build_data(const Recipe& recipe, const comm::ProcessGroup& readers, int64_t vocab_size,
                       Reporter& reporter, PhaseTimes& times);

/// What a dataset needs to know about the length of the run.
datasets::TrainingSchedule schedule_of(const Recipe& recipe);

}  // namespace automodel::recipes
