#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>

namespace automodel::nn {

/// What happens before and after a layer that holds a part of its weight: whoever splits the weight
/// implements it, `nn` only calls it. Both are differentiable.
class LayerHook {
 public:
  virtual ~LayerHook() = default;

  virtual at::Tensor enter(const at::Tensor& input) = 0;
  virtual at::Tensor leave(const at::Tensor& output) = 0;

  /// True when leave() adds up what the ranks have computed: a bias then comes after it, once.
  virtual bool sums_outputs() const = 0;
};

/// A layer that calls a hook, when it has one.
class SplittableLayer {
 public:
  virtual ~SplittableLayer() = default;
  virtual void set_layer_hook(std::shared_ptr<LayerHook> hook) = 0;
};

/// A module with attention heads of which it can compute a part.
class SplitsHeads {
 public:
  virtual ~SplitsHeads() = default;

  /// From now on the module computes the `part`-th of `num_parts` equal runs of its heads (the
  /// numbers of heads and of key-value heads are divisible). Dropout stays what it is for those
  /// heads in the whole.
  virtual void keep_heads(int part, int num_parts) = 0;
};

/// A model whose blocks can compute a part of every sequence.
class SplitsSequence {
 public:
  virtual ~SplitsSequence() = default;

  /// From now on blocks and dropout see the `part`-th of `num_parts` equal runs of positions, the
  /// last one padded at its end when the length is not divisible. Hooks do the cutting;
  /// `on_length` is called with the whole length before each forward.
  virtual void keep_sequence_part(int part, int num_parts,
                                  std::function<void(int64_t)> on_length) = 0;
};

}  // namespace automodel::nn
