add_dependencies(test_recipes automodel)  # the tests start the program
set(AUTOMODEL_TEST_SHARDS 16)
