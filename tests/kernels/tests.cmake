target_link_libraries(test_kernels PRIVATE am_checkpoint)  # goldens
