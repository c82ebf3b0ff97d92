#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Stream.h>

#include <functional>
#include <optional>

namespace automodel::distributed {

/// Copies between a device and memory of the host that rests there (offloading), on a stream of
/// their own, so that the device computes meanwhile. Host memory that is page-locked makes the host
/// go on too. Of a CPU "device" every call has happened when it returns.
class CopyStream final {
 public:
  /// A device's stream is made by the first copy.
  explicit CopyStream(at::Device device) : device_(device) {}

  /// `host` as `options` say. It may not be used by the present stream, but by what start_behind()
  /// starts; it is to be given to release() in the end.
  at::Tensor to_device(const at::Tensor& host, const at::TensorOptions& options);

  /// Calls `start`, whose operations are behind all copies so far and behind all that the present
  /// stream was asked for.
  void start_behind(const std::function<void()>& start);

  /// The present stream is behind the last use of a tensor of to_device().
  void release(at::Tensor& tensor);

  /// Copies what the present stream computes. `host` is there after synchronize().
  void to_host(at::Tensor host, const at::Tensor& on_device);

  /// The host waits for all copies.
  void synchronize();

 private:
  /// The copies' stream behind the present one.
  void follow_present();
  c10::Stream stream();

  at::Device device_;
  std::optional<c10::Stream> stream_;
  bool has_copies_ = false;
};

/// Zeroed flat memory of the CPU that the process's device reads and writes itself: page-locked.
at::Tensor pinned_zeros(int64_t numel, at::ScalarType dtype);

}  // namespace automodel::distributed
