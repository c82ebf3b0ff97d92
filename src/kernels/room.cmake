# The inner loops are compiled once per instruction set and chosen at run time.
set(_loops "${CMAKE_SOURCE_DIR}/src/kernels/cpu/loops")
# Jump threading makes cases of a clamp, with constants folded in; a vector then computes all cases,
# and a subnormal product among them takes a hundred cycles.
set(_loop_flags -O3 -fopenmp-simd -fno-math-errno -fno-trapping-math -ffp-contract=fast
    -fno-thread-jumps)
set_source_files_properties(${_loops}_baseline.cpp PROPERTIES COMPILE_OPTIONS "${_loop_flags}"
                            SKIP_UNITY_BUILD_INCLUSION ON SKIP_PRECOMPILE_HEADERS ON)
set_source_files_properties(${_loops}_avx2.cpp PROPERTIES
                            COMPILE_OPTIONS "${_loop_flags};-mavx2;-mfma"
                            SKIP_UNITY_BUILD_INCLUSION ON SKIP_PRECOMPILE_HEADERS ON)
set(_avx512_flags -mavx512f -mavx512vl -mavx512bw -mavx512dq -mavx2 -mfma -mprefer-vector-width=512)
set_source_files_properties(${_loops}_avx512.cpp PROPERTIES COMPILE_OPTIONS
  "${_loop_flags};${_avx512_flags}" SKIP_UNITY_BUILD_INCLUSION ON SKIP_PRECOMPILE_HEADERS ON)
set_source_files_properties("${CMAKE_SOURCE_DIR}/src/kernels/cpu/products_avx512_bf16.cpp" PROPERTIES
  COMPILE_OPTIONS "${_loop_flags};${_avx512_flags};-mavx512bf16" SKIP_UNITY_BUILD_INCLUSION ON
  SKIP_PRECOMPILE_HEADERS ON)
# GCC 12 takes what its own headers leave undefined on purpose for a mistake.
set_source_files_properties("${CMAKE_SOURCE_DIR}/src/kernels/cpu/products_amx.cpp" PROPERTIES
  COMPILE_OPTIONS
  "${_loop_flags};${_avx512_flags};-mavx512bf16;-mamx-tile;-mamx-bf16;-Wno-uninitialized;-Wno-maybe-uninitialized"
  SKIP_UNITY_BUILD_INCLUSION ON SKIP_PRECOMPILE_HEADERS ON)
