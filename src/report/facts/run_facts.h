#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "report/records/run_files.h"

namespace automodel::report {

/// A fact of a run in words, to show.
using Fact = std::pair<std::string, std::string>;

/// "done", "failed: rank 1 ...", "stopped by SIGTERM, saved", or that it is not known.
std::string state_text(const RecordedRun& run);

/// What a run is and has come to: state, steps, losses, rate, memory, model, ranks, machine. Every
/// run has the same facts in the same order; one that is not known is "".
std::vector<Fact> facts_of(const RecordedRun& run);

/// A part of the time that a run has taken.
struct TimeShare {
  std::string name;  ///< "steps", "validation", "saving", "loading", "resuming"
  double seconds = 0;
};

/// Where a run's time went, in that order; time between a stop and the next start does not count.
/// Empty where there are no events.
std::vector<TimeShare> time_shares(const RecordedRun& run);

/// What an event says besides its name, time and step: "rank 1, status 137, ...". Long lists are
/// told by what they come to.
std::string detail_of(const RunEvent& event);

/// A number, or a text that is one, at "a.b"; NaN when there is none.
double number_at(const Json& json, std::string_view dotted);

/// A name, a value and where it is from, of a start that continues with another recipe:
/// "optimizer.lr 0.001 -> 0.01".
std::vector<std::string> changes_of(const RunEvent& start);

/// What to say of a run.json that this version does not know whole; "" where it does.
std::string format_note(const Json& description);

/// What somebody who watches a run should look at.
struct Alert {
  std::string event;  ///< "advice", "failure", "skipped_update", "rollback", "non_finite",
                      ///< "early_stop"
  std::string text;
  double seconds = 0;  ///< since 1970, UTC
};

/// The latest of them since the last start.
std::optional<Alert> latest_alert(const EventLog& events);

/// The lowest loss of a validation set.
struct BestValidation {
  std::string set;
  double loss = 0;
  double step = 0;
};

/// The best loss of each set that has one, in the order of their names.
std::vector<BestValidation> best_validations(const RecordedRun& run);

/// A key of a recipe whose values differ between runs, and the value of each; "" where it has none.
struct Difference {
  std::string key;
  std::vector<std::string> values;
};

/// What differs between the recipes of runs, in the order of the first recipe that has the key.
std::vector<Difference> differences(const RunViews& runs);

/// A value of a recipe as run.json has it: a text without quotes, others as JSON.
std::string value_text(const Json& value);
/// "1.5 GiB" of a number of a run's files; "" for one that no memory has.
std::string bytes_text(double bytes);

/// The median of the values that are finite; NaN when there is none.
double median_of(std::vector<double> values);

/// The highest value that is finite; NaN when there is none.
double highest_of(const std::vector<double>& values);

}  // namespace automodel::report
