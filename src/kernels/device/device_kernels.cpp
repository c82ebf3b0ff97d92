#include "kernels/device/device_kernels.h"

#include <ATen/ops/empty.h>
#include <dlfcn.h>

#include <algorithm>
#include <cstdlib>
#include <string_view>

#include "core/error.h"
#include "kernels/base/fused.h"

namespace automodel::kernels::device {

namespace {

thread_local const DeviceKernels* on_host = nullptr;

/// The kernels of libautomodel_cuda.so, which is open where tensors lie on such a device
/// (tensor::open_cuda); null where it is another version's, or the variable says so.
const DeviceKernels* find_cuda_kernels() {
  const char* const asked = std::getenv("AUTOMODEL_DEVICE_KERNELS");
  if (asked != nullptr && std::string_view(asked) == "plain") return nullptr;
  if (asked != nullptr && std::string_view(asked) != "own" && *asked != '\0') {
    throw UserError(cat("AUTOMODEL_DEVICE_KERNELS is '", asked, "'; it may be own or plain"));
  }
  using Get = const DeviceKernels*();
  auto* const get = reinterpret_cast<Get*>(::dlsym(RTLD_DEFAULT, "automodel_cuda_kernels"));
  return get == nullptr ? nullptr : get();
}

}  // namespace

const DeviceKernels* kernels_for(std::initializer_list<at::Tensor> tensors) {
  const at::Tensor* first = nullptr;
  for (const at::Tensor& tensor : tensors) {
    if (!tensor.defined()) continue;
    if (first == nullptr) first = &tensor;
    if (tensor.device() != first->device() || tensor.scalar_type() != first->scalar_type()) {
      return nullptr;
    }
  }
  if (first == nullptr || is_plain_path_asked()) return nullptr;
  const at::ScalarType type = first->scalar_type();
  if (type != at::kFloat && type != at::kBFloat16) return nullptr;
  if (first->is_cpu()) return on_host;
  if (!first->is_cuda()) return nullptr;
  static const DeviceKernels* const on_cuda = find_cuda_kernels();
  return on_cuda;
}

at::Tensor partials_for(int64_t most_partials, const at::Tensor& tensor, int64_t rows,
                        int64_t width) {
  return at::empty({std::min(rows, most_partials), width}, tensor.options().dtype(at::kFloat));
}

HostKernelsScope::HostKernelsScope(const DeviceKernels& kernels) {
  AM_CHECK(on_host == nullptr);
  on_host = &kernels;
}

HostKernelsScope::~HostKernelsScope() {
  on_host = nullptr;
}

}  // namespace automodel::kernels::device
