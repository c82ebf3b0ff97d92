target_link_libraries(test_moe PRIVATE am_checkpoint)  # goldens are safetensors files
