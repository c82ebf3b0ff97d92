find_package(CURL REQUIRED)
target_link_libraries(test_serve PRIVATE CURL::libcurl)  # the client
