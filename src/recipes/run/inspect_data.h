#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace automodel::recipes {

/// `automodel inspect-data`: prints the first samples of a recipe's dataset with what counts in the
/// loss (in colour on a terminal, between brackets elsewhere), and numbers over its first thousand
/// rows: lengths, the share of labels, rows without one, doubled BOS, turns that do not end. Loads
/// no model. Returns the exit status; throws UserError as a run would.
int inspect_data(const std::string& path, const std::vector<std::string>& overrides,
                 int64_t num_samples);

}  // namespace automodel::recipes
