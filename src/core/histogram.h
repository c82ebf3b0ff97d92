#pragma once

#include <vector>

namespace automodel {

/// How many numbers lie where.
struct Histogram {
  /// The numbers between the limit of the bucket before and this one's.
  struct Bucket {
    double limit = 0;
    double count = 0;
  };

  double count = 0;             ///< of all numbers
  double min = 0;               ///< the smallest number; 0 without numbers
  double max = 0;               ///< the largest
  double sum = 0;               ///< of the numbers
  double sum_of_squares = 0;    ///< of the numbers
  std::vector<Bucket> buckets;  ///< from low to high; the first begins at `min`
};

}  // namespace automodel
