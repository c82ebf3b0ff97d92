#include "distributed/fsdp/copy_stream.h"

#include <ATen/ops/zeros.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <utility>

namespace automodel::distributed {

namespace {

c10::Stream present_stream(at::Device device) {
  return c10::impl::VirtualGuardImpl(device.type()).getStream(device);
}

}  // namespace

c10::Stream CopyStream::stream() {
  if (!stream_) {
    stream_ = c10::impl::VirtualGuardImpl(device_.type()).getStreamFromGlobalPool(device_);
  }
  return *stream_;
}

void CopyStream::follow_present() {
  c10::Event event(device_.type());
  event.record(present_stream(device_));
  event.block(stream());
}

at::Tensor CopyStream::to_device(const at::Tensor& host, const at::TensorOptions& options) {
  if (device_.is_cpu()) return host.to(options);
  const c10::StreamGuard on_copies(stream());
  has_copies_ = true;
  // The device casts, not the host.
  return host.to(host.options().device(device_), /*non_blocking=*/host.is_pinned(), /*copy=*/true)
      .to(options);
}

CopyStream::Mark CopyStream::start_behind(const std::function<void()>& start) {
  if (device_.is_cpu()) {
    start();
    return std::nullopt;
  }
  follow_present();
  const c10::StreamGuard on_copies(stream());
  start();
  Mark mark(std::in_place, device_.type());
  mark->record(stream());
  return mark;
}

void CopyStream::wait(Mark& mark) {
  if (mark) mark->block(present_stream(device_));
  mark.reset();
}

void CopyStream::release(at::Tensor& tensor) {
  // The allocator knows this memory on the copies' stream only; record its use on the current one.
  if (tensor.defined() && !device_.is_cpu()) tensor.record_stream(present_stream(device_));
  tensor.reset();
}

void CopyStream::to_host(at::Tensor host, const at::Tensor& on_device) {
  if (device_.is_cpu()) {
    host.copy_(on_device);
    return;
  }
  follow_present();
  const c10::StreamGuard on_copies(stream());
  host.copy_(on_device.to(host.scalar_type()), /*non_blocking=*/host.is_pinned());
  on_device.record_stream(stream());
  has_copies_ = true;
}

void CopyStream::synchronize() {
  if (!std::exchange(has_copies_, false)) return;
  stream().synchronize();
}

at::Tensor pinned_zeros(int64_t numel, at::ScalarType dtype) {
  return at::zeros({numel}, at::TensorOptions().dtype(dtype).pinned_memory(true));
}

}  // namespace automodel::distributed
