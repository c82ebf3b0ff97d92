# `cmake --install BUILD --prefix P` makes a folder that runs wherever it is moved to:
#   P/bin                automodel, and automodel-main that it starts                 (program)
#   P/lib/automodel      the libraries that a bare Debian 12 has not                  (libraries)
#   P/lib/automodel/torch/lib, .../nvidia/cu13/lib
#                        LibTorch, in the layout its own search path expects          (torch)
#   P/share              recipes, configurations, schema, manual page, completion     (data)
#   P/share/doc          pages, and the licences of everything above                  (documents)
# glibc and libstdc++ belong to the machine: those of Debian 12 or newer do, which
# scripts/check_package.sh holds the symbols against.
set(_torch_lib "${AUTOMODEL_LIBTORCH}/torch/lib")
set(_cuda_lib "${AUTOMODEL_LIBTORCH}/nvidia/cu13/lib")
set(_own_lib lib/automodel)
set(_documents share/doc/automodel)

# RPATH, not RUNPATH: it also serves the libraries that our libraries need.
target_link_options(automodel_main PRIVATE LINKER:--disable-new-dtags)

# install(TARGETS) would give the program of the build a search path that ends in an empty entry, the
# current folder, to find it again in the file. So what is linked is copied, and patchelf sets its path.
find_program(AUTOMODEL_PATCHELF patchelf)
# Variables of these scripts must not be named as a component: installation scripts compare names by the old rules of if().
function(automodel_finish_installed file rpath component)
  install(CODE "set(linked [[${file}]])
                set(rpath [[${rpath}]])
                set(patchelf [[${AUTOMODEL_PATCHELF}]])
                set(strip [[${CMAKE_STRIP}]])" COMPONENT ${component})
  install(SCRIPT cmake/FinishInstalled.cmake COMPONENT ${component})
endfunction()
function(automodel_install_linked target destination rpath)
  install(PROGRAMS "$<TARGET_FILE:${target}>" DESTINATION ${destination} COMPONENT program)
  automodel_finish_installed("${destination}/$<TARGET_FILE_NAME:${target}>" "${rpath}" program)
endfunction()
automodel_install_linked(automodel bin "")
automodel_install_linked(automodel_main bin
                         "$ORIGIN/../${_own_lib}:$ORIGIN/../${_own_lib}/torch/lib")

install(FILES "${_torch_lib}/libtorch_cpu.so" "${_torch_lib}/libc10.so" "${_torch_lib}/libgomp.so.1"
        DESTINATION ${_own_lib}/torch/lib COMPONENT torch)
automodel_finish_installed("${_own_lib}/torch/lib/libtorch_cpu.so" "" torch)  # a fifth is symbols
automodel_finish_installed("${_own_lib}/torch/lib/libc10.so" "" torch)
install(DIRECTORY "${_cuda_lib}/" DESTINATION ${_own_lib}/nvidia/cu13/lib COMPONENT torch
        FILES_MATCHING REGEX "/lib(cudart|cupti)\\.so\\.[0-9]+$")

install(DIRECTORY configs recipes schemas DESTINATION share/automodel COMPONENT data)
# What recipes/smoke/tiny_llama_{sft,qlora,kd}.yaml, tiny_{classifier,embedder,t5}.yaml read.
install(DIRECTORY tests/recipes/data/tiny_llama tests/recipes/data/tiny_teacher
        tests/recipes/data/tiny_classifier tests/recipes/data/tiny_t5
        DESTINATION share/automodel/tests/recipes/data COMPONENT data)
install(FILES tests/recipes/data/rows.jsonl tests/recipes/data/pairs.jsonl
              tests/recipes/data/questions.jsonl tests/recipes/data/searches.jsonl
              tests/recipes/data/searches_left.jsonl
        DESTINATION share/automodel/tests/recipes/data COMPONENT data)
install(CODE "set(texts_folder share/automodel/recipes)
              set(texts_pattern *.yaml)" COMPONENT data)
install(SCRIPT cmake/FinishTexts.cmake COMPONENT data)
install(CODE "set(program_file \"$<TARGET_FILE:automodel>\")" COMPONENT data)
install(CODE "set(manual \"${CMAKE_SOURCE_DIR}/docs/automodel.1\")" COMPONENT data)
install(SCRIPT cmake/InstallCompletion.cmake COMPONENT data)

install(FILES LICENSE README.md CHANGELOG.md packaging/debian/copyright
        DESTINATION ${_documents} COMPONENT documents)
install(FILES packaging/debian/lintian-overrides DESTINATION share/lintian/overrides
        RENAME automodel COMPONENT documents)
install(CODE "set(changelog [[${CMAKE_SOURCE_DIR}/packaging/debian/changelog]])
              set(documents_folder ${_documents})" COMPONENT documents)
install(CODE [[
  execute_process(COMMAND gzip -9 --no-name --stdout "${changelog}" COMMAND_ERROR_IS_FATAL ANY
    OUTPUT_FILE "$ENV{DESTDIR}${CMAKE_INSTALL_PREFIX}/${documents_folder}/changelog.Debian.gz")
]] COMPONENT documents)
install(DIRECTORY docs DESTINATION ${_documents} COMPONENT documents PATTERN automodel.1 EXCLUDE)
install(DIRECTORY packaging/slurm packaging/kubernetes DESTINATION ${_documents}/packaging COMPONENT documents)
install(CODE "set(texts_folder ${_documents})
              set(texts_pattern *.md)" COMPONENT documents)
install(SCRIPT cmake/FinishTexts.cmake COMPONENT documents)
install(DIRECTORY "${AUTOMODEL_LIBTORCH}/torch-2.11.0.dist-info/licenses/"
        DESTINATION ${_documents}/licences/libtorch COMPONENT torch)
foreach(_part runtime cupti)
  file(GLOB _texts "${AUTOMODEL_LIBTORCH}/nvidia_cuda_${_part}-*.dist-info/licenses/*")
  install(FILES ${_texts} DESTINATION ${_documents}/licences/cuda_${_part} COMPONENT torch)
endforeach()
install(DIRECTORY "${AUTOMODEL_ARROW}/pyarrow-26.0.1.dist-info/licenses/"
        DESTINATION ${_documents}/licences/arrow COMPONENT libraries)

install(CODE "set(program_file \"$<TARGET_FILE:automodel_main>\")" COMPONENT libraries)
install(CODE "set(folders \"${_torch_lib}\" \"${_cuda_lib}\" \"${AUTOMODEL_ARROW}/pyarrow\")"
        COMPONENT libraries)
install(CODE "set(own_lib ${_own_lib})
              set(strip [[${CMAKE_STRIP}]])" COMPONENT libraries)
install(CODE "set(documents_folder ${_documents})" COMPONENT libraries)
install(SCRIPT cmake/InstallLibraries.cmake COMPONENT libraries)
