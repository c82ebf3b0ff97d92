target_link_libraries(test_trackers PRIVATE am_tracker_messages)  # to read their files
