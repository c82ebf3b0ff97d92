#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "tensor/shard_spec.h"

namespace automodel::recipes {

/// Parameters of a frozen model that lie in host memory while nobody computes with them: their
/// device memory is emptied and refilled under all tensors that view it.
class HostedParameters final {
 public:
  /// Copies the loaded parameters on `device` to host memory; those on the device stay until
  /// to_host(). Parameters elsewhere are left alone.
  HostedParameters(const std::vector<tensor::FlatShard>& parameters, at::Device device);

  /// Gives the device memory back. Until to_device() the parameters must not be read.
  void to_host();
  void to_device();

 private:
  struct Piece {
    at::Tensor on_device;
    at::Tensor on_host;
  };
  std::vector<Piece> pieces_;
  bool are_on_host_ = false;
};

}  // namespace automodel::recipes
