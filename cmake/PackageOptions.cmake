# Read by cpack for each kind of package.
if(CPACK_GENERATOR STREQUAL "DEB")
  list(APPEND CPACK_PRE_BUILD_SCRIPTS "${CMAKE_CURRENT_LIST_DIR}/DebianDepends.cmake")
endif()
