# Run by cpack when the files of the Debian package lie in CPACK_TEMPORARY_DIRECTORY: what they need of
# other packages. cpack's own call of dpkg-shlibdeps cannot say that a library is looked for in the
# package first, and would ask for the Debian packages of libraries that come along.
set(_tree "${CPACK_TEMPORARY_DIRECTORY}")
# LibTorch is left out: it is built for older systems than the program, and takes half a minute to read.
# By these folders dpkg-shlibdeps knows a source and the root of a package.
file(WRITE "${_tree}/debian/control" "Source: ${CPACK_PACKAGE_NAME}\n")
file(MAKE_DIRECTORY "${_tree}/DEBIAN")
file(GLOB _files RELATIVE "${_tree}" "${_tree}/usr/bin/automodel*" "${_tree}/usr/lib/automodel/*.so*")
execute_process(
  COMMAND dpkg-shlibdeps "-S${_tree}" -l/usr/lib/automodel -l/usr/lib/automodel/torch/lib
          -l/usr/lib/automodel/nvidia/cu13/lib --ignore-missing-info -O ${_files}
  WORKING_DIRECTORY "${_tree}"
  OUTPUT_VARIABLE _found
  ERROR_VARIABLE _said
  RESULT_VARIABLE _status)
if(NOT _status EQUAL 0 OR NOT _found MATCHES "Depends=([^\n]+)")
  message(FATAL_ERROR "dpkg-shlibdeps: ${_status}\n${_said}")
endif()
set(CPACK_DEBIAN_PACKAGE_DEPENDS "${CMAKE_MATCH_1}")
file(REMOVE_RECURSE "${_tree}/debian" "${_tree}/DEBIAN")
