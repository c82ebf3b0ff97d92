#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace automodel::report {

/// What is drawn of a step's record, by its key in training.jsonl.
enum class Metric { kLoss, kGradNorm, kLr, kTokensPerSecond, kMemory };

inline constexpr size_t kNumMetrics = 5;
inline constexpr std::array<Metric, kNumMetrics> kMetrics = {
    Metric::kLoss, Metric::kGradNorm, Metric::kLr, Metric::kTokensPerSecond, Metric::kMemory};

/// "loss", "grad_norm", "lr", "tps", "mem".
std::string_view metric_key(Metric metric);
/// "loss", "gradient norm", "learning rate", "tokens/s", "memory, GiB".
std::string_view metric_title(Metric metric);

/// Where a step's seconds went, of rank 0: waiting for a batch, forward and backward passes, the
/// update, waiting for other ranks; and all of it.
enum class StepPart { kData, kForwardBackward, kUpdate, kWait, kWhole };

inline constexpr size_t kNumStepParts = 5;

/// A number that some records have besides: its key, and a value for every step, NaN where a record
/// lacks it.
struct ExtraColumn {
  std::string key;
  std::vector<double> values;
};

/// Further numbers of the records that are kept, those that come first in the file.
inline constexpr size_t kMostExtras = 12;

/// The records of training.jsonl, a column each of the same length. What a record lacks is NaN.
struct StepTable {
  std::vector<double> step;
  std::vector<double> seconds;  ///< since 1970, UTC
  std::vector<double> tokens;   ///< of this step and all before it
  std::array<std::vector<double>, kNumMetrics> metrics;
  std::array<std::vector<double>, kNumStepParts> parts;  ///< in seconds
  std::vector<ExtraColumn> extras;
  std::vector<std::string>
      other_keys;          ///< of numbers beyond kMostExtras, a hundred of them at most
  size_t num_thinned = 0;  ///< rows at the beginning that stand for several records:
  size_t span = 1;         ///< for so many each

  size_t size() const { return step.size(); }
  const std::vector<double>& of(Metric metric) const {
    return metrics[static_cast<size_t>(metric)];
  }
  const std::vector<double>& of(StepPart part) const { return parts[static_cast<size_t>(part)]; }
  /// The column of a further number; null when no record has it.
  const std::vector<double>* extra(std::string_view key) const;
};

/// Whether a number is a step: one that an int64_t holds too.
bool is_step(double value);

/// Adds the records of whole lines of training.jsonl; returns how many were no records. Lines in
/// parts of a file are read by several threads.
int64_t add_steps(std::string_view lines, StepTable& steps);

/// How many rows a table may have, and how many of the latest stay as the file has them.
struct RowLimits {
  size_t num_rows = 0;
  size_t num_exact = 0;
};

/// Brings a table that grows below its limit: of its older rows, some records next to each other
/// become two rows, of as many records over the whole run. Of a metric they hold the lowest and the
/// highest value in their order, or one that is not finite in place of one of them; of a step's
/// seconds the mean. `num_rows` is at least four times `num_exact`.
void thin(StepTable& steps, const RowLimits& limits);

}  // namespace automodel::report
