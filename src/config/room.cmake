find_library(AUTOMODEL_YAML_CPP yaml-cpp REQUIRED)
target_link_libraries(am_config PRIVATE ${AUTOMODEL_YAML_CPP})
