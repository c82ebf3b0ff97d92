#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace automodel::recipes {

/// The arguments of `automodel inspect-data`.
struct InspectOptions {
  int64_t num_samples = 3;
  std::string html;      ///< file for an HTML page; "": text on stdout instead
  bool as_json = false;  ///< lines of JSON instead
};

/// `automodel inspect-data`: shows the first samples of a recipe's dataset and marks the tokens
/// that count in the loss (in colour on a terminal, in brackets elsewhere). Prints statistics of
/// the first thousand rows: lengths, share of labels, rows without a label, truncated tokens,
/// unread columns, doubled BOS, turns without an end. As JSON, the samples' token ids and labels
/// alone (write_sample_lines), of files of tokens and of drawn data too. Fetches tokenizer and data
/// from the hub as a run does, but no weights. Returns the exit status; throws UserError as a run
/// would.
int inspect_data(const std::string& path, const std::vector<std::string>& overrides,
                 const InspectOptions& options);

}  // namespace automodel::recipes
