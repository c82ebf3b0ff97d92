find_package(Threads REQUIRED)
target_link_libraries(am_report PRIVATE Threads::Threads)
