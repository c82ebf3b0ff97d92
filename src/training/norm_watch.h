#pragma once

#include <deque>

#include "core/json.h"

namespace automodel::training {

/// Tells whether a step's gradient norm is a spike, from the norms of the steps before. It decides
/// nothing else: TrainStep leaves updates out. Pure: ranks that are given the same norms agree.
class NormWatch final {
 public:
  /// A norm is a spike when it is above `multiple` times the median of the last steps' norms.
  explicit NormWatch(double multiple) : multiple_(multiple) {}

  /// Whether a step's norm is a spike. False until 20 norms are known, and for NaN.
  bool is_spike(double norm) const;

  /// Adds a step's norm, spike or not: so norms that stay high become the usual ones. At most 64
  /// are kept; those that are not finite are passed over, and 0, which steps have that nothing
  /// counts in.
  void add(double norm);

  /// The median of the norms that are kept; 0 before the first.
  double usual() const;

  /// The norms, for a checkpoint: a run that continues says what the undisturbed one says.
  Json state() const;
  void load_state(const Json& state);

 private:
  double multiple_;
  std::deque<double> norms_;
};

}  // namespace automodel::training
