#pragma once

#include <torch/nn/module.h>

#include <cstdint>
#include <memory>
#include <utility>

#include "kernels/products/fake_quantize.h"

namespace automodel::nn {

/// Quantization-aware training of one model: from a step on, its linear layers round their operands
/// as they will be rounded once the trained model is quantized. All its layers share one.
class FakeQuantizer final {
 public:
  struct Options {
    kernels::FakeQuantization format;
    bool takes_biases = true;  ///< false: layers with a bias stay as they are
    int64_t first_step = 0;    ///< of rounding; steps are counted from 0
  };

  explicit FakeQuantizer(const Options& options)
      : options_(options), is_on_(options.first_step == 0) {}

  /// Call it on every rank before a step's first forward; validation after it goes by it too.
  void begin_step(int64_t step) { is_on_ = step >= options_.first_step; }
  bool is_on() const { return is_on_; }
  const kernels::FakeQuantization& format() const { return options_.format; }

  /// Whether a layer's weight can be cut into groups; others are left as they are.
  bool fits(int64_t in_features, bool has_bias) const {
    return in_features % options_.format.weights.size == 0 && (options_.takes_biases || !has_bias);
  }

 private:
  Options options_;
  bool is_on_;
};

/// Gives the quantizer to `module` and the linear layers below it that it fits.
void set_fake_quantizer(torch::nn::Module& module,
                        const std::shared_ptr<const FakeQuantizer>& quantizer);

}  // namespace automodel::nn
