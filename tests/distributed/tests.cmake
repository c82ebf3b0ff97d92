target_link_libraries(test_distributed PRIVATE am_launcher am_models am_training)
add_dependencies(test_distributed am_optim am_checkpoint)  # of the package that a test installs
set(AUTOMODEL_TEST_SHARDS 4)
