target_link_libraries(test_trackers PRIVATE am_tensorboard_messages)  # to read event files
