add_dependencies(test_recipes automodel)  # the tests start the program
