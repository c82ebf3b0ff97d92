find_package(CLI11 REQUIRED)
target_link_libraries(am_cli PRIVATE CLI11::CLI11)
target_compile_definitions(am_cli PRIVATE AUTOMODEL_VERSION="${PROJECT_VERSION}")
