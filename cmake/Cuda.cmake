# libautomodel_cuda.so: every src/<room>/**/cuda/*.{cpp,cu}, linked to LibTorch's CUDA libraries. The
# binary opens it when a CUDA device is asked for and never links it (src/README.md, CUDA).
file(GLOB _cuda_sources CONFIGURE_DEPENDS "${CMAKE_SOURCE_DIR}/src/*/cuda/*.cpp"
     "${CMAKE_SOURCE_DIR}/src/*/*/cuda/*.cpp")
file(GLOB _cuda_kernels CONFIGURE_DEPENDS "${CMAKE_SOURCE_DIR}/src/*/cuda/*.cu"
     "${CMAKE_SOURCE_DIR}/src/*/*/cuda/*.cu")
if(NOT EXISTS "${AUTOMODEL_LIBTORCH}/torch/lib/libtorch_cuda.so")
  message(FATAL_ERROR
          "${AUTOMODEL_LIBTORCH} is without the CUDA libraries; run scripts/setup.sh --cuda first")
endif()

# The toolkit on PATH or, without one, the compiler of the wheels.
set(_wheel_cuda "${AUTOMODEL_LIBTORCH}/nvidia/cu13")
find_program(CMAKE_CUDA_COMPILER nvcc HINTS ENV CUDACXX /usr/local/cuda/bin "${_wheel_cuda}/bin")
set(CMAKE_CUDA_ARCHITECTURES 80 90 100 CACHE STRING "GPU generations to compile for: A100, H100, B200")
set(CMAKE_CUDA_RUNTIME_LIBRARY None)  # LibTorch's libcudart is the one
enable_language(CUDA)
if(NOT CMAKE_CUDA20_STANDARD_COMPILE_OPTION)  # CMake 3.25 does not know that nvcc 13 takes C++20
  set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION "-std=c++20")
  set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION "-std=c++20")
endif()
set(CMAKE_CUDA_FLAGS_RELEASE "-O3")
if(CMAKE_CUDA_COMPILER_VERSION VERSION_LESS 13.0 OR
   CMAKE_CUDA_COMPILER_VERSION VERSION_GREATER_EQUAL 14)
  message(FATAL_ERROR "nvcc ${CMAKE_CUDA_COMPILER_VERSION} found; LibTorch 2.11 is built with 13.0")
endif()

set(_cuda_libraries)
foreach(part IN ITEMS cu13 cudnn nccl nvshmem cusparselt)
  list(APPEND _cuda_libraries "${AUTOMODEL_LIBTORCH}/nvidia/${part}/lib")
endforeach()
list(JOIN _cuda_libraries ":" _cuda_library_path)

automodel_import_torch(c10_cuda)
automodel_import_torch(torch_cuda)
set_property(TARGET libtorch::c10_cuda APPEND PROPERTY INTERFACE_INCLUDE_DIRECTORIES
             "${_wheel_cuda}/include" "${AUTOMODEL_LIBTORCH}/nvidia/nccl/include"
             "${AUTOMODEL_LIBTORCH}/nvidia/cudnn/include")
set_property(TARGET libtorch::c10_cuda PROPERTY INTERFACE_LINK_LIBRARIES libtorch::c10)
set_property(TARGET libtorch::torch_cuda PROPERTY INTERFACE_LINK_LIBRARIES
             libtorch::c10_cuda libtorch::torch_cpu "${_wheel_cuda}/lib/libcudart.so.13")
set_property(TARGET libtorch::torch_cuda PROPERTY INTERFACE_COMPILE_DEFINITIONS
             USE_CUDA USE_C10D_NCCL)
# Kernels register themselves when libtorch_cuda is loaded: keep it though no symbol asks for it.
set_property(TARGET libtorch::torch_cuda PROPERTY INTERFACE_LINK_OPTIONS
             LINKER:--no-as-needed LINKER:-rpath-link,${_cuda_library_path})

if(_cuda_sources)
  add_library(automodel_cuda SHARED ${_cuda_sources})
  if(_cuda_kernels)
    # Kernels see neither ATen (40 s a file under nvcc) nor the rooms' link interfaces.
    add_library(automodel_cuda_kernels OBJECT ${_cuda_kernels})
    target_include_directories(automodel_cuda_kernels PRIVATE
                               "${CMAKE_SOURCE_DIR}/src" "${_wheel_cuda}/include")
    target_link_libraries(automodel_cuda PRIVATE automodel_cuda_kernels)
  endif()
  target_include_directories(automodel_cuda PRIVATE "${CMAKE_SOURCE_DIR}/src")
  target_compile_options(automodel_cuda PRIVATE ${AUTOMODEL_WARNINGS} ${AUTOMODEL_WHOLE_FUNCTIONS})
  target_link_libraries(automodel_cuda PRIVATE libtorch::torch_cuda)
  # The rooms whose interfaces it implements; what the binary exports wins when both are loaded.
  foreach(source IN LISTS _cuda_sources)
    string(REGEX REPLACE ".*/src/([a-z_]+)/.*cuda/.*" "\\1" room "${source}")
    target_link_libraries(automodel_cuda PRIVATE am_${room})
  endforeach()
  # The binary finds it by name: beside itself here, among its libraries once installed.
  set_target_properties(automodel_main PROPERTIES ENABLE_EXPORTS ON BUILD_RPATH "$ORIGIN")
  automodel_install_linked(automodel_cuda ${_own_lib} "$ORIGIN:$ORIGIN/torch/lib")
  install(DIRECTORY "${AUTOMODEL_LIBTORCH}/torch/lib/" DESTINATION ${_own_lib}/torch/lib
          COMPONENT torch FILES_MATCHING PATTERN "*.so*")
  install(DIRECTORY "${AUTOMODEL_LIBTORCH}/nvidia/" DESTINATION ${_own_lib}/nvidia
          COMPONENT torch FILES_MATCHING REGEX "/lib/.*\\.so(\\.[0-9.]+)?$" PATTERN "include" EXCLUDE)
endif()
