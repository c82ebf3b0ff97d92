#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace automodel::tensor {

/// The part of a named (global) tensor that a rank holds: a box of it (its tensor-parallel piece;
/// the whole tensor without tensor parallelism), and within that box, read row by row, the elements
/// [flat_begin, flat_end) (its data-parallel piece; all of them when replicated).
struct ShardSpec {
  std::vector<int64_t> global_shape;
  std::vector<int64_t> box_offset;  ///< one per dim
  std::vector<int64_t> box_shape;   ///< one per dim
  int64_t flat_begin = 0;
  int64_t flat_end = 0;

  /// The spec of a rank that holds the whole tensor.
  static ShardSpec whole(std::vector<int64_t> shape);

  int64_t numel() const { return flat_end - flat_begin; }
  int64_t box_numel() const;
  int64_t global_numel() const;
  bool is_whole() const;  ///< holds every element of the global tensor

  bool operator==(const ShardSpec&) const = default;
};

/// A contiguous run: `numel` elements at `local` (relative to the shard's first element) equal the
/// elements at `global` of the global tensor, read row by row.
struct ShardRun {
  int64_t global = 0;
  int64_t local = 0;
  int64_t numel = 0;
};

/// The contiguous runs of a shard, in order; bytes are moved between files and shards run by run.
std::vector<ShardRun> shard_runs(const ShardSpec& spec);

/// One named tensor's piece inside a flat buffer: elements [offset, offset + spec.numel()).
struct FlatSegment {
  std::string fqn;  ///< the Hugging Face name of the tensor
  ShardSpec spec;
  int64_t offset = 0;
};

/// A rank's piece of a unit: one flat buffer and the tensors in it. Optimizers, clipping, loading
/// and checkpointing use only this, never an engine's internals. Elements outside all segments are
/// padding and stay zero.
struct FlatShard {
  std::string unit;   ///< fqn of the unit's module ("" for the root)
  at::Tensor buffer;  ///< one-dimensional
  std::vector<FlatSegment> segments;

  /// The segment's elements, one-dimensional, sharing memory with the buffer.
  at::Tensor view(const FlatSegment& segment) const;
};

/// The error's text where gradients are read that have no memory.
inline constexpr const char* kAbsentGradients =
    "gradients have memory only from backward until they are set to zero";

/// Throws UserError for gradients that have no memory now.
void check_gradients(std::span<const FlatShard> gradients);

/// A tensor of given sizes and dtype without memory. Modules are built from these; the owner of
/// their memory (an engine) later replaces their data. Reading one crashes.
at::Tensor placeholder(at::IntArrayRef sizes, at::ScalarType dtype);

/// Changes a placeholder's sizes in place, for everyone who holds the tensor.
void resize_placeholder(const at::Tensor& placeholder, at::IntArrayRef sizes);

/// True when the tensor was made by placeholder() and its memory has not been allocated.
bool is_placeholder(const at::Tensor& tensor);

}  // namespace automodel::tensor
