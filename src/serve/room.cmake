find_package(PkgConfig REQUIRED)
pkg_check_modules(AUTOMODEL_MICROHTTPD REQUIRED IMPORTED_TARGET libmicrohttpd)
pkg_check_modules(AUTOMODEL_PROMETHEUS REQUIRED IMPORTED_TARGET prometheus-cpp-core)
find_package(OpenSSL REQUIRED COMPONENTS Crypto)
target_link_libraries(am_serve PRIVATE PkgConfig::AUTOMODEL_MICROHTTPD
                      PkgConfig::AUTOMODEL_PROMETHEUS OpenSSL::Crypto)
