#include "comm/watch/device_errors.h"

#include <c10/util/Exception.h>

#include <new>

#include "comm/store/tcp_store.h"
#include "core/text.h"

namespace automodel::comm {

namespace {

constexpr int32_t kCudaErrorMemoryAllocation = 2;
constexpr const char* kAdvice =
    "; a smaller step_scheduler.local_batch_size, shorter sequences, activation checkpointing or "
    "more ranks need less, and `automodel plan` says how much a rank needs";

bool holds(const std::string& text, const char* part) {
  return text.find(part) != std::string::npos;
}

}  // namespace

std::optional<std::string> device_failure(const std::exception& error) {
  if (dynamic_cast<const std::bad_alloc*>(&error) != nullptr) {
    return cat("this machine is out of memory", kAdvice);
  }
  const auto* of_torch = dynamic_cast<const c10::Error*>(&error);
  if (of_torch == nullptr) return std::nullopt;
  const std::string reason = reason_of(of_torch->what_without_backtrace());
  const auto* of_device = dynamic_cast<const c10::AcceleratorError*>(&error);
  const bool is_out_of_memory =
      dynamic_cast<const c10::OutOfMemoryError*>(&error) != nullptr ||
      (of_device != nullptr && of_device->get_error_code() == kCudaErrorMemoryAllocation);
  if (is_out_of_memory) return cat("the device is out of memory: ", reason, kAdvice);
  if (of_device != nullptr || reason.starts_with("CUDA error:")) {
    return cat("the device failed: ", reason);
  }
  if (holds(reason, "DefaultCPUAllocator") && holds(reason, "memory")) {
    return cat("this machine is out of memory: ", reason, kAdvice);
  }
  return std::nullopt;
}

}  // namespace automodel::comm
