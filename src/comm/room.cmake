target_include_directories(am_comm SYSTEM PRIVATE "${CMAKE_SOURCE_DIR}/src/comm/gloo_fwd")
