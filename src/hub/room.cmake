find_package(OpenSSL REQUIRED COMPONENTS Crypto)
target_link_libraries(am_hub PRIVATE OpenSSL::Crypto)
