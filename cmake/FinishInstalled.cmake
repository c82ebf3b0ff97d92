# Run by an installation. Strips the file `linked`, below the prefix, where symbols are to be stripped,
# and gives it the search path `rpath` ("": it has none).
set(file "$ENV{DESTDIR}${CMAKE_INSTALL_PREFIX}/${linked}")
if(CMAKE_INSTALL_DO_STRIP)
  execute_process(COMMAND "${strip}" --strip-unneeded "${file}" COMMAND_ERROR_IS_FATAL ANY)
endif()
if(rpath)
  if(NOT patchelf)
    message(FATAL_ERROR
            "patchelf is needed to install ${linked}; run scripts/setup.sh, then configure again")
  endif()
  execute_process(COMMAND "${patchelf}" --force-rpath --set-rpath "${rpath}" "${file}"
                  COMMAND_ERROR_IS_FATAL ANY)
endif()
