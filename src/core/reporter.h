#pragma once

#include <string_view>

namespace automodel {

/// Receives messages for the person at the terminal; passed down by recipes. Rank 0's writes to the
/// console, those of other ranks print errors only.
class Reporter {
 public:
  virtual ~Reporter() = default;
  virtual void info(std::string_view text) = 0;
  virtual void warning(std::string_view text) = 0;
  virtual void error(std::string_view text) = 0;
  /// The progress of the run, shown until the next call; "" removes it. Only terminals show it.
  virtual void progress(std::string_view) {}
  /// Whether progress() is seen, so that nothing is counted for nobody.
  virtual bool shows_progress() const { return false; }
};

/// Ignores everything.
class SilentReporter final : public Reporter {
 public:
  void info(std::string_view) override {}
  void warning(std::string_view) override {}
  void error(std::string_view) override {}
};

/// One span of work on one lane of the trace (a unit's gather, a collective, a step).
struct TraceEvent {
  std::string_view name;      ///< e.g. "all_gather model.layers.3"
  std::string_view category;  ///< "comm", "unit", "step", "data"
  double begin_seconds = 0;   ///< monotonic_seconds()
  double end_seconds = 0;
  int rank = 0;
};

/// Receives the events of a run; cheap enough to be always active.
class TraceSink {
 public:
  virtual ~TraceSink() = default;
  virtual void record(const TraceEvent& event) = 0;
};

}  // namespace automodel
