#include "recipes/run/hosted_parameters.h"

#include <ATen/ATen.h>

#include <set>

#include "distributed/fsdp/copy_stream.h"

namespace automodel::recipes {

namespace {

/// All memory of a tensor's storage, one-dimensional.
at::Tensor whole_storage(const at::Tensor& tensor) {
  const auto bytes = static_cast<int64_t>(tensor.storage().nbytes());
  const auto count = bytes / static_cast<int64_t>(tensor.element_size());
  return at::empty({0}, tensor.options()).set_(tensor.storage(), 0, {count}, {1});
}

at::Tensor host_copy(const at::Tensor& tensor) {
  at::Tensor copy = tensor.is_cpu()
                        ? at::empty_like(tensor)
                        : distributed::pinned_zeros(tensor.numel(), tensor.scalar_type());
  return copy.copy_(tensor);
}

}  // namespace

HostedParameters::HostedParameters(const std::vector<tensor::FlatShard>& parameters,
                                   at::Device device) {
  std::set<const void*> seen;
  for (const tensor::FlatShard& shard : parameters) {
    const at::Tensor& buffer = shard.buffer;
    const bool is_there = buffer.defined() && buffer.numel() > 0 && buffer.device() == device;
    if (!is_there || !seen.insert(buffer.storage().unsafeGetStorageImpl()).second) continue;
    const at::Tensor whole = whole_storage(buffer);
    pieces_.push_back({whole, host_copy(whole)});
  }
}

void HostedParameters::to_host() {
  for (const Piece& piece : pieces_) {
    c10::StorageImpl* storage = piece.on_device.storage().unsafeGetStorageImpl();
    storage->set_data_ptr_noswap(at::DataPtr(nullptr, piece.on_device.device()));
    storage->set_nbytes(0);
  }
  are_on_host_ = true;
}

void HostedParameters::to_device() {
  if (!are_on_host_) return;
  are_on_host_ = false;
  for (const Piece& piece : pieces_) {
    const size_t bytes = piece.on_host.nbytes();
    const at::Tensor fresh = at::empty_like(piece.on_host, piece.on_device.options());
    c10::StorageImpl* storage = piece.on_device.storage().unsafeGetStorageImpl();
    storage->set_data_ptr_noswap(
        fresh.storage().unsafeGetStorageImpl()->set_data_ptr(at::DataPtr()));
    storage->set_nbytes(bytes);
    piece.on_device.copy_(piece.on_host, /*non_blocking=*/true);
  }
}

}  // namespace automodel::recipes
