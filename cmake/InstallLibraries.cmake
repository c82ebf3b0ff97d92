# Run by an installation. Copies the libraries that `program_file` needs into `own_lib`, each under the name
# that it is asked for by, and the licence of each Debian package that they, and the headers that are
# compiled in, come from, into `documents_folder`. LibTorch's are looked for in `folders`, but another
# component's.
set(prefix "$ENV{DESTDIR}${CMAKE_INSTALL_PREFIX}")
file(GET_RUNTIME_DEPENDENCIES
  EXECUTABLES "${program_file}"
  RESOLVED_DEPENDENCIES_VAR found
  UNRESOLVED_DEPENDENCIES_VAR missing
  DIRECTORIES ${folders}
  PRE_EXCLUDE_REGEXES "^ld-linux" "^lib(c|m|dl|rt|pthread|util|resolv|nsl|anl|mvec)\\.so"
                      "^lib(stdc\\+\\+|gcc_s)\\.so" "^lib(torch_cpu|c10|gomp|cudart|cupti)\\.so")
if(missing)
  message(FATAL_ERROR "libraries not found: ${missing}")
endif()

file(MAKE_DIRECTORY "${prefix}/${own_lib}" "${prefix}/${documents_folder}/licences")
set(patterns)
foreach(library IN LISTS found)
  get_filename_component(name "${library}" NAME)
  get_filename_component(file "${library}" REALPATH)
  file(COPY_FILE "${file}" "${prefix}/${own_lib}/${name}")
  file(CHMOD "${prefix}/${own_lib}/${name}"
       PERMISSIONS OWNER_READ OWNER_WRITE GROUP_READ WORLD_READ)
  if(file MATCHES "/pyarrow/")  # its licence is installed with it
    if(CMAKE_INSTALL_DO_STRIP)
      execute_process(COMMAND "${strip}" --strip-unneeded "${prefix}/${own_lib}/${name}"
                      COMMAND_ERROR_IS_FATAL ANY)
    endif()
  else()
    # Packages may name a library below /lib that is found below /usr/lib.
    get_filename_component(file_name "${file}" NAME)
    list(APPEND patterns "*/${file_name}")
  endif()
endforeach()

set(packages libcli11-dev nlohmann-json3-dev rapidjson-dev)
find_program(dpkg_query dpkg-query)
if(dpkg_query)
  execute_process(COMMAND "${dpkg_query}" --search ${patterns} OUTPUT_VARIABLE owners ERROR_QUIET)
endif()
foreach(pattern IN LISTS patterns)
  string(REGEX REPLACE "([][+.*^$()|?])" "\\\\\\1" file_name "${pattern}")
  string(REPLACE "\\*/" "" file_name "${file_name}")
  if("\n${owners}" MATCHES "\n([^:, \n]+)[^\n]*/${file_name}\n")
    list(APPEND packages ${CMAKE_MATCH_1})
  else()
    message(WARNING "${pattern} is of no Debian package: its licence has to be added by hand")
  endif()
endforeach()
list(REMOVE_DUPLICATES packages)
list(SORT packages)
foreach(package IN LISTS packages)
  set(text "/usr/share/doc/${package}/copyright")
  if(EXISTS "${text}")
    get_filename_component(text "${text}" REALPATH)
    file(COPY_FILE "${text}" "${prefix}/${documents_folder}/licences/${package}")
  else()
    message(WARNING "${text} is missing: the licence of ${package} has to be added by hand")
  endif()
endforeach()
