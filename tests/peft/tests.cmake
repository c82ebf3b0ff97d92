target_link_libraries(test_peft PRIVATE am_distributed am_optim)  # memory for models, AdamW
