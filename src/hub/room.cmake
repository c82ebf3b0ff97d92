find_package(CURL REQUIRED)
find_package(OpenSSL REQUIRED COMPONENTS Crypto)
target_link_libraries(am_hub PRIVATE CURL::libcurl OpenSSL::Crypto)
