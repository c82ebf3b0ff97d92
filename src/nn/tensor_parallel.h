#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <memory>

namespace automodel::nn {

/// Called before and after a layer that holds a part of its weight. Whoever splits the weight
/// implements it; `nn` only calls it. Both functions are differentiable.
class LayerHook {
 public:
  virtual ~LayerHook() = default;

  virtual at::Tensor enter(const at::Tensor& input) = 0;
  virtual at::Tensor leave(const at::Tensor& output) = 0;

  /// True when leave() sums over ranks; a bias is then added after it, once.
  virtual bool sums_outputs() const = 0;
};

/// A layer that calls a hook if one is set.
class SplittableLayer {
 public:
  virtual ~SplittableLayer() = default;
  virtual void set_layer_hook(std::shared_ptr<LayerHook> hook) = 0;
};

/// A module that can compute a part of its attention heads.
class SplitsHeads {
 public:
  virtual ~SplitsHeads() = default;

  /// Makes the module compute the `part`-th of `num_parts` equal runs of its heads; the numbers of
  /// heads and of key-value heads must be divisible. Dropout masks are those of these heads in the
  /// whole module.
  virtual void keep_heads(int part, int num_parts) = 0;
};

/// A model whose blocks can compute a part of every sequence.
class SplitsSequence {
 public:
  virtual ~SplitsSequence() = default;

  /// Makes blocks and dropout work on the `part`-th of `num_parts` equal runs of positions; the
  /// last run is padded at its end when the length is not divisible. Hooks do the cutting; each
  /// forward first calls `on_length` with the whole length.
  virtual void keep_sequence_part(int part, int num_parts,
                                  std::function<void(int64_t)> on_length) = 0;
};

}  // namespace automodel::nn
