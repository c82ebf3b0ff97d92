#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/histogram.h"
#include "core/json.h"

namespace automodel::trackers {

/// One record of a run as trackers get it: the numbers of a line of training.jsonl or of a
/// validation file; or histograms of a step.
struct Record {
  int64_t step = 0;
  double unix_seconds = 0;  ///< when it was made
  std::string set;          ///< the validation set; "" of a training record
  std::vector<std::pair<std::string, double>> values;
  std::vector<std::pair<std::string, Histogram>> histograms;  ///< by their tags

  /// How many values and histograms there are together.
  size_t num_numbers() const;
};

/// The numbers of a JSONL record, made now: integers and reals, not finite ones too; `step` apart.
Record record_of(const Json& record, std::string set = "");

/// The name of a record's value beside those of other records: as in the JSONL files; of validation
/// with `val_` in front, and `val_NAME/` of a set that has a name.
std::string metric_name(const Record& record, const std::string& name);

/// How a run ended.
enum class RunEnd {
  kFinished,
  kFailed,
  kStopped,  ///< by a preemption signal, after saving
};

/// What came of handing something over.
struct Delivery {
  enum class Outcome {
    kDone,
    kLater,    ///< it may be taken later
    kRefused,  ///< it will never be taken
  };
  Outcome outcome = Outcome::kDone;
  size_t num_records = 0;  ///< how many of the first records this is about
  std::string problem;     ///< why it was not taken
};

/// Where a run's numbers go besides its own files. All calls but cancel() come from one thread,
/// which is not the one that trains: they may take their time, and they throw nothing.
class Tracker {
 public:
  using Records = std::span<const std::shared_ptr<const Record>>;

  virtual ~Tracker() = default;

  /// What people call it.
  virtual const char* name() const = 0;
  /// Before the first record; again after kLater. kRefused: nothing will ever be taken.
  virtual Delivery start() = 0;
  /// Hands over records, oldest first and at least one: some of the first, or all.
  virtual Delivery deliver(Records records) = 0;
  /// After the last record, if start() came to be done; again after kLater.
  virtual Delivery finish(RunEnd end) = 0;
  /// Seconds without a call after which it wants to be called: idle(). 0: never.
  virtual double idle_seconds() const { return 0; }
  /// While no record comes, after start() came to be done. What goes wrong shows at the next
  /// record.
  virtual void idle() {}
  /// Records that deliver() took, and that only another call of it or finish() hands over.
  virtual size_t num_held() const { return 0; }
  /// From any thread: makes the call under way, and all that follow, return soon.
  virtual void cancel() {}
};

}  // namespace automodel::trackers
