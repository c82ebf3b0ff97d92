#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace automodel::recipes {

/// Consecutive tokens of a sample of which all count in the loss, or none does.
struct TextRun {
  std::string text;
  bool counts = false;
};

/// A sample as text.
struct InspectedSample {
  std::string origin;
  int64_t num_tokens = 0;
  int64_t num_cut = 0;  ///< tokens that truncation left out
  std::vector<TextRun> runs;
};

/// What `automodel inspect-data` found.
struct InspectReport {
  std::string recipe;  ///< its path
  std::vector<std::string> warnings;
  std::vector<InspectedSample> samples;
  std::vector<std::string> totals;  ///< a line each
};

/// The report for a terminal; tokens that count are between the marks `begin` and `end`.
std::string to_text(const InspectReport& report, const std::string& begin, const std::string& end);

/// The report as one HTML page that needs no other file; tokens that count have a coloured
/// background. Texts of data are escaped, so that none is read as HTML.
std::string to_html(const InspectReport& report);

}  // namespace automodel::recipes
