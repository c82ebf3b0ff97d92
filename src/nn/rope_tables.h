#pragma once

#include <cstdint>

#include "kernels/layers/rope.h"
#include "nn/rope_frequencies.h"

namespace automodel::nn {

/// Cosines and sines of one kind of rotary embedding, computed when first needed and again for a
/// longer sequence, another device or another class of lengths. Not thread-safe.
class RopeTables final {
 public:
  explicit RopeTables(RopeOptions options) : options_(std::move(options)) {}

  /// A float32 table of at least `length` positions on `device`.
  const kernels::RopeTable& table(int64_t length, at::Device device);

  const RopeOptions& options() const { return options_; }

 private:
  RopeOptions options_;
  kernels::RopeTable table_;
  int64_t length_class_ = -1;
};

}  // namespace automodel::nn
