add_dependencies(test_cli automodel)  # the tests start the program
