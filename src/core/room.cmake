find_library(AUTOMODEL_XXHASH xxhash REQUIRED)
find_package(PkgConfig REQUIRED)
pkg_check_modules(PCRE2 REQUIRED IMPORTED_TARGET libpcre2-8)
target_link_libraries(am_core PRIVATE ${AUTOMODEL_XXHASH} PkgConfig::PCRE2)
