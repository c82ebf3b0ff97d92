#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "trackers/tracker.h"

namespace automodel::recipes {

/// Which records of a run's log are wanted: those of steps after `last_step` and before
/// `first_step`; of training those of every `every_steps` steps.
struct LoggedSteps {
  std::vector<std::string> validation_sets = {};
  int64_t last_step = -1;
  int64_t first_step = 0;
  int64_t every_steps = 1;
};

/// The records of a run's training log and of those of validation sets, by their steps, a step's
/// validations behind its training. Lines that are no records are left out. Throws InputError.
std::vector<std::shared_ptr<const trackers::Record>> logged_records(const std::string& folder,
                                                                    const LoggedSteps& steps);

}  // namespace automodel::recipes
