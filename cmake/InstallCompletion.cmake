# Run by an installation: completion scripts, made by `program_file`, and the page `manual`, packed as
# Debian wants it, where shells and man look for them.
set(share "$ENV{DESTDIR}${CMAKE_INSTALL_PREFIX}/share")
foreach(place bash:bash-completion/completions/automodel zsh:zsh/vendor-completions/_automodel
              fish:fish/vendor_completions.d/automodel.fish)
  string(REGEX MATCH "^([a-z]+):(.*)$" _ "${place}")
  set(file "${share}/${CMAKE_MATCH_2}")
  get_filename_component(folder "${file}" DIRECTORY)
  file(MAKE_DIRECTORY "${folder}")
  execute_process(COMMAND "${program_file}" completion ${CMAKE_MATCH_1} OUTPUT_FILE "${file}"
                  COMMAND_ERROR_IS_FATAL ANY)
endforeach()
file(MAKE_DIRECTORY "${share}/man/man1")
execute_process(COMMAND gzip -9 --no-name --stdout "${manual}"
                OUTPUT_FILE "${share}/man/man1/automodel.1.gz" COMMAND_ERROR_IS_FATAL ANY)
