#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace automodel::loggers {

/// How one step went.
struct StepFacts {
  int64_t step = 0;
  double loss = 0;
  double grad_norm = 0;  ///< 0: not measured
  double lr = 0;
  double seconds = 0;         ///< since the end of the step before
  double waited_seconds = 0;  ///< of these, for the data
};

/// How many tokens each expert of a layer got, in one step or some.
struct ExpertFacts {
  std::string layer;
  std::vector<double> tokens;
  int64_t num_steps = 1;
};

/// How long each rank worked on a step by itself: without its waits for the others.
struct RankTimes {
  int64_t step = 0;
  std::vector<double> seconds;  ///< by rank
  /// Equally many consecutive ranks each, whose work differs from the others': a pipeline's stages.
  int64_t num_stages = 1;
};

/// What checkpoints will take of a disk.
struct DiskFacts {
  std::string folder;
  int64_t free_bytes = 0;
  int64_t checkpoint_bytes = 0;  ///< of the last one
  int64_t num_to_come = 0;       ///< that will lie there beside those of now
};

/// A finding about a run, with the numbers that led to it.
struct Advice {
  std::string kind;  ///< "plateau", "spike", "divergence", "slow_data", "routing", "straggler",
                     ///< "disk"
  std::string text;
  bool is_warning = true;  ///< false: worth knowing, perhaps all is well
};

/// The last values of a curve, at most so many.
class LastValues final {
 public:
  explicit LastValues(size_t most) : most_(most) {}
  void add(double value);
  void clear() { values_.clear(); }
  size_t size() const { return values_.size(); }
  double median() const;
  /// The median distance from the median, scaled to a normal distribution's standard deviation.
  double spread() const;

 private:
  size_t most_;
  std::deque<double> values_;
};

/// Sums of a curve over equal numbers of steps, at most 256 of them however long the curve is.
class CurveParts final {
 public:
  void add(double value);
  size_t num_steps() const { return num_steps_; }

  /// Mean and its standard error over the steps [begin, end), to the bounds of the parts.
  struct Mean {
    double value = 0;
    double error = 0;
  };
  Mean mean(size_t begin, size_t end) const;

 private:
  struct Part {
    double sum = 0, squares = 0;
    size_t count = 0;
  };
  std::vector<Part> parts_;
  size_t steps_of_part_ = 1;
  size_t num_steps_ = 0;
};

/// Looks at a run's numbers as they come and says what a person who watches it would want to be
/// told: each thing once, and again only after it was gone. Pure: knows no clock, file or rank.
/// Values that are not finite are passed over. Microseconds a step.
class Adviser final {
 public:
  /// A spike: far above the steps before it. Divergence: the loss rises and stays up, or several
  /// steps in a row are far above the first one that was seen. Plateau: no better in the latest
  /// quarter of all steps than in the quarter before. Slow data: steps wait for it.
  std::vector<Advice> after_step(const StepFacts& facts);

  /// Routing collapse: half of a layer's experts or more get next to nothing over many steps.
  std::vector<Advice> after_routing(int64_t step, const std::vector<ExpertFacts>& layers);

  /// Stragglers: ranks whose own work takes steadily longer than that of ranks with the same work.
  std::optional<Advice> after_times(const RankTimes& times);

  /// A disk that will be full before the end.
  std::optional<Advice> after_save(const DiskFacts& facts);

 private:
  std::optional<Advice> find_spike(const StepFacts& facts);
  std::optional<Advice> find_divergence(const StepFacts& facts);
  std::optional<Advice> find_explosion(const StepFacts& facts);
  std::optional<Advice> find_plateau(const StepFacts& facts);
  std::optional<Advice> find_slow_data(const StepFacts& facts);

  // spikes
  LastValues losses_{64}, norms_{64};
  int64_t num_high_ = 0;  // steps in a row that were above the limit
  std::optional<int64_t> last_spike_;
  // divergence
  LastValues block_{16};        // of steps
  std::vector<double> recent_;  // medians of the last blocks
  LastValues changes_{64};      // from each block's median to the next one's
  std::optional<double> lowest_;
  bool has_diverged_ = false;
  std::optional<StepFacts> first_;  // step that was seen
  int64_t num_exploded_ = 0;        // steps in a row far above the first
  // plateau
  CurveParts curve_;
  double highest_lr_ = 0;
  bool is_flat_ = false;
  // slow data
  std::deque<std::pair<double, double>> times_;  // seconds, of these waited
  bool waits_ = false;
  // routing: each layer's tokens, older steps counting less
  struct Shares {
    std::vector<double> tokens;
    int64_t num_steps = 0;
    bool is_collapsed = false;
  };
  std::map<std::string, Shares> layers_;
  // stragglers
  struct RankPace {
    double of_block = 0;                         // seconds
    int num_slow = 0;                            // blocks in a row
    int num_usual = 0;                           // the same
    double slow_seconds = 0, usual_seconds = 0;  // a step's, summed over the slow blocks
    bool is_told = false;
  };
  static void end_block(std::span<RankPace> stage, double num_steps);
  std::vector<RankPace> paces_;
  int64_t steps_of_block_ = 0;
  double seconds_of_block_ = 0;
  bool is_disk_short_ = false;
};

}  // namespace automodel::loggers
