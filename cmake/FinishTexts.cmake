# Fits installed texts to a folder that has the program and no sources: the program is called by its name, and links to
# what only the sources have become words. Reads `texts_folder`, below the prefix, and `texts_pattern`.
set(_sources_only "(\\.\\./)*(src|packaging|examples|CONTRIBUTING)[^)]*")
file(GLOB_RECURSE _texts "$ENV{DESTDIR}${CMAKE_INSTALL_PREFIX}/${texts_folder}/${texts_pattern}")
foreach(_text IN LISTS _texts)
  file(READ "${_text}" _before)
  string(REPLACE "scripts/automodel " "automodel " _after "${_before}")
  string(REGEX REPLACE "\\[([^]]*)\\]\\(${_sources_only}\\)" "\\1" _after "${_after}")
  if(NOT _after STREQUAL _before)
    file(WRITE "${_text}" "${_after}")
  endif()
endforeach()
