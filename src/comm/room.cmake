target_include_directories(am_comm SYSTEM PRIVATE "${CMAKE_SOURCE_DIR}/src/comm/network/gloo_fwd")
# Sums of many sources are loops over memory: they want vectors.
set_source_files_properties("${CMAKE_SOURCE_DIR}/src/comm/shared_memory/reduce.cpp" PROPERTIES
                            COMPILE_OPTIONS -O3 SKIP_UNITY_BUILD_INCLUSION ON SKIP_PRECOMPILE_HEADERS ON)
