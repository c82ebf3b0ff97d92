#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "tensor/shard_spec.h"

namespace automodel::checkpoint {

/// A named tensor without its values.
struct TensorInfo {
  std::string name;
  at::ScalarType dtype = at::kFloat;
  std::vector<int64_t> shape;

  int64_t numel() const;
  uint64_t num_bytes() const;
};

/// The source of whole tensors for an export, read a piece at a time: memory or a sharded
/// checkpoint.
class TensorSource {
 public:
  virtual ~TensorSource() = default;

  virtual std::vector<TensorInfo> tensors() const = 0;

  /// Reads elements [first, first + out.numel()) of a tensor, row by row, converted to out's dtype.
  /// `out` is one-dimensional, contiguous, on the CPU.
  virtual void read(std::string_view name, int64_t first, at::Tensor out) const = 0;
};

/// A source over shards that hold every tensor whole (one rank, or replicas). They outlive the
/// source.
class ShardSource final : public TensorSource {
 public:
  /// AM_CHECK: every segment is whole and no name occurs twice.
  explicit ShardSource(std::span<const tensor::FlatShard> shards);

  std::vector<TensorInfo> tensors() const override;
  void read(std::string_view name, int64_t first, at::Tensor out) const override;

 private:
  struct Place {
    const tensor::FlatShard* shard;
    const tensor::FlatSegment* segment;
  };
  std::vector<Place> places_;
  std::unordered_map<std::string, size_t> by_name_;
};

}  // namespace automodel::checkpoint
