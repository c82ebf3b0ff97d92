target_link_libraries(test_optim PRIVATE am_checkpoint)  # goldens
