find_package(CURL REQUIRED)
target_link_libraries(am_http PRIVATE CURL::libcurl)
