target_link_libraries(test_comm PRIVATE am_launcher)
set_target_properties(test_comm PROPERTIES ENABLE_EXPORTS ON)  # tests stand in for the CUDA library
