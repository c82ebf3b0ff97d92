#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <vector>

namespace automodel::tensor {

/// Which part of a named (global) tensor a rank holds: a box of it (its tensor-parallel piece; the
/// whole tensor without tensor parallelism), and of that box, read row by row, the elements
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

/// One contiguous run of elements: `numel` elements at `local` (relative to the shard's first
/// element) are the elements at `global` of the global tensor read row by row.
struct ShardRun {
  int64_t global = 0;
  int64_t local = 0;
  int64_t numel = 0;
};

/// The contiguous runs of a shard, in order. This is how bytes move between files and shards.
std::vector<ShardRun> shard_runs(const ShardSpec& spec);

/// One named tensor's piece inside a flat buffer: elements [offset, offset + spec.numel()).
struct FlatSegment {
  std::string fqn;  ///< the Hugging Face name of the tensor
  ShardSpec spec;
  int64_t offset = 0;
};

/// A rank's piece of a unit: one flat buffer and what lies where in it. Optimizers, clipping,
/// loading and checkpointing work on this and never on the engine's insides. Elements that belong
/// to no segment are padding and stay zero.
struct FlatShard {
  std::string unit;   ///< fqn of the module that is the unit ("" for the root)
  at::Tensor buffer;  ///< one-dimensional
  std::vector<FlatSegment> segments;

  /// The segment's elements, one-dimensional, sharing memory with the buffer.
  at::Tensor view(const FlatSegment& segment) const;
};

/// A tensor of given sizes and dtype without memory behind it: modules are built from these, and
/// whoever gives them memory (a sharding engine) replaces their data. Reading one crashes.
at::Tensor placeholder(at::IntArrayRef sizes, at::ScalarType dtype);

/// Gives a placeholder other sizes, in place: whoever holds the tensor sees them.
void resize_placeholder(const at::Tensor& placeholder, at::IntArrayRef sizes);

/// True when the tensor was made by placeholder() and has not been given memory.
bool is_placeholder(const at::Tensor& tensor);

}  // namespace automodel::tensor
