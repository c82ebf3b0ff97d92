# What `cpack` makes of an installation (scripts/package.sh): a tar that runs wherever it is unpacked,
# and a Debian package. Both hold the same files, so that one package serves Debian 12, 13 and
# Ubuntu 24.04, whose libraries have different names.
set(AUTOMODEL_MAINTAINER "automodel <automodel@packages.invalid>" CACHE STRING
    "who answers for the packages: name and address")
set(CMAKE_SKIP_INSTALL_ALL_DEPENDENCY ON)  # the program is what is packed, not the tests
set(CPACK_GENERATOR TGZ DEB)
set(CPACK_STRIP_FILES ON)
set(CPACK_PACKAGE_NAME automodel)
set(CPACK_PACKAGE_VENDOR automodel)
set(CPACK_PACKAGE_CONTACT "${AUTOMODEL_MAINTAINER}")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "trains Hugging Face models from YAML recipes")
set(CPACK_PACKAGE_DESCRIPTION_FILE "${CMAKE_SOURCE_DIR}/packaging/debian/description")
set(CPACK_PACKAGE_FILE_NAME "automodel-${PROJECT_VERSION}-linux-x86_64")
set(CPACK_RESOURCE_FILE_LICENSE "${CMAKE_SOURCE_DIR}/LICENSE")
set(CPACK_PACKAGE_CHECKSUM SHA256)

set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_RELEASE 1)
set(CPACK_DEBIAN_PACKAGE_SECTION science)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS OFF)  # DebianDepends.cmake
set(CPACK_DEBIAN_PACKAGE_RECOMMENDS ca-certificates)
set(CPACK_DEBIAN_COMPRESSION_TYPE gzip)  # zstd is not a policy's yet, xz takes minutes
set(CPACK_PROJECT_CONFIG_FILE "${CMAKE_SOURCE_DIR}/cmake/PackageOptions.cmake")
include(CPack)
