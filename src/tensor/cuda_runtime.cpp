#include "tensor/cuda_runtime.h"

#include <dlfcn.h>

#include "core/error.h"

namespace automodel::tensor {

std::unique_ptr<CudaRuntime> open_cuda() {
  constexpr const char* kLibrary = "libautomodel_cuda.so";
  void* library = ::dlopen(kLibrary, RTLD_NOW | RTLD_GLOBAL);
  if (library == nullptr) {
    throw UnsupportedError(cat("no CUDA here: ", ::dlerror(),
                               " (scripts/setup.sh --cuda, then cmake --preset cuda, builds it)"));
  }
  using Make = CudaRuntime*();
  auto* make = reinterpret_cast<Make*>(::dlsym(library, "automodel_make_cuda_runtime"));
  if (make == nullptr) {
    throw UnsupportedError(cat(kLibrary, " is of another version of automodel"));
  }
  return std::unique_ptr<CudaRuntime>(make());
}

}  // namespace automodel::tensor
