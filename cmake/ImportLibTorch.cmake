# The imported targets over AUTOMODEL_LIBTORCH; also installed, for projects that use the package.
if(TARGET libtorch::c10)
  return()  # another find_package() of the same project made them
endif()
if(NOT EXISTS "${AUTOMODEL_LIBTORCH}/torch/lib/libtorch_cpu.so")
  message(FATAL_ERROR "LibTorch not found in ${AUTOMODEL_LIBTORCH}; run scripts/setup.sh first")
endif()

find_package(Threads REQUIRED)
set(_torch "${AUTOMODEL_LIBTORCH}/torch")

function(automodel_import_torch name)
  add_library(libtorch::${name} SHARED IMPORTED GLOBAL)
  set_target_properties(libtorch::${name} PROPERTIES
    IMPORTED_LOCATION "${_torch}/lib/lib${name}.so"
    INTERFACE_INCLUDE_DIRECTORIES "${_torch}/include;${_torch}/include/torch/csrc/api/include")
endfunction()

automodel_import_torch(c10)
automodel_import_torch(torch_cpu)
set_property(TARGET libtorch::torch_cpu PROPERTY INTERFACE_COMPILE_DEFINITIONS
             USE_DISTRIBUTED USE_C10D_GLOO)
# ATen/Parallel.h splits work with OpenMP only when the including file is compiled with it; the
# wheel brings its own libgomp beside libtorch_cpu.so. (clang, used for fuzzing and linting, would
# want its own OpenMP library: there the loops of our own files run serially.)
set_property(TARGET libtorch::torch_cpu PROPERTY INTERFACE_COMPILE_OPTIONS
             $<$<COMPILE_LANG_AND_ID:CXX,GNU>:-fopenmp>)
set_property(TARGET libtorch::torch_cpu PROPERTY INTERFACE_LINK_LIBRARIES
             libtorch::c10 Threads::Threads "${_torch}/lib/libgomp.so.1")
# The run-time search path is in libtorch_cpu.so itself; the link editor must be told.
set_property(TARGET libtorch::torch_cpu PROPERTY INTERFACE_LINK_OPTIONS
             "LINKER:-rpath-link,${AUTOMODEL_LIBTORCH}/nvidia/cu13/lib:${_torch}/lib")
