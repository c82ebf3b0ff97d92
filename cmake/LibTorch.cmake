# Imported targets for the LibTorch inside the unpacked PyPI wheel (see scripts/setup.sh).
#   libtorch::torch_cpu   c10, ATen, autograd, c10d with Gloo; needs no CUDA toolkit
#   libtorch::torch_cuda  only with AUTOMODEL_CUDA=ON
# torch's own find_package(Torch) insists on a CUDA toolkit and a GPU, hence this file.
set(_deps "${CMAKE_SOURCE_DIR}/.deps")
if(DEFINED ENV{AUTOMODEL_DEPS})
  set(_deps "$ENV{AUTOMODEL_DEPS}")
endif()
set(AUTOMODEL_LIBTORCH "${_deps}/libtorch-2.11.0" CACHE PATH
    "directory that holds torch/ and nvidia/ of the unpacked wheels")
include("${CMAKE_CURRENT_LIST_DIR}/ImportLibTorch.cmake")
