find_package(spdlog REQUIRED)
target_link_libraries(am_loggers PRIVATE spdlog::spdlog)
