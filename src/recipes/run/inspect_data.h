#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace automodel::recipes {

/// What `automodel inspect-data` is asked for.
struct InspectOptions {
  int64_t num_samples = 3;
  std::string html;  ///< file for a page in place of text; "": text
};

/// `automodel inspect-data`: shows the first samples of a recipe's dataset with what counts in the
/// loss (in colour on a terminal, between brackets elsewhere), and numbers over its first thousand
/// rows: lengths, the share of labels, rows without one, what truncation cut, columns that nothing
/// reads, doubled BOS, turns that do not end. Fetches tokenizer and data from the hub as a run
/// does, and no weights. Returns the exit status; throws UserError as a run would.
int inspect_data(const std::string& path, const std::vector<std::string>& overrides,
                 const InspectOptions& options);

}  // namespace automodel::recipes
