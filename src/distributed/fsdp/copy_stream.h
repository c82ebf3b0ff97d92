#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Event.h>
#include <c10/core/Stream.h>

#include <functional>
#include <optional>

namespace automodel::distributed {

/// Copies between a device and host memory (for offloading) on a stream of their own, so that the
/// device can compute meanwhile. With page-locked host memory the host does not wait either. When
/// the "device" is a CPU, every call is complete when it returns.
class CopyStream final {
 public:
  /// The stream is made by the first copy.
  explicit CopyStream(at::Device device) : device_(device) {}

  /// Returns a copy of `host` with `options`. Only operations that start_behind() starts may use
  /// it, not the current stream; pass it to release() afterwards.
  at::Tensor to_device(const at::Tensor& host, const at::TensorOptions& options);

  /// A place in the copies' stream; none on a CPU.
  using Mark = std::optional<c10::Event>;

  /// Calls `start`. The operations that it starts run after all copies so far and after all work
  /// that the current stream has been given. Returns the place behind them.
  Mark start_behind(const std::function<void()>& start);

  /// Makes the current stream wait for a place. What other streams were given, as a group's
  /// collectives are, is not waited for.
  void wait(Mark& mark);

  /// Releases a tensor of to_device(); the current stream is behind its last use.
  void release(at::Tensor& tensor);

  /// Copies a result of the current stream. `host` holds it after synchronize().
  void to_host(at::Tensor host, const at::Tensor& on_device);

  /// Makes the host wait for all copies.
  void synchronize();

 private:
  /// Makes the copies' stream wait for the current one.
  void follow_present();
  c10::Stream stream();

  at::Device device_;
  std::optional<c10::Stream> stream_;
  bool has_copies_ = false;
};

/// Zeroed flat CPU memory that the process's device can access itself (page-locked).
at::Tensor pinned_zeros(int64_t numel, at::ScalarType dtype);

}  // namespace automodel::distributed
