# `cmake --install BUILD --prefix P` makes a folder that runs wherever it is moved to:
#   P/bin/automodel, and automodel-main that it starts
#   P/lib            the libraries it needs that are not glibc's
#   P/lib/torch/lib, P/lib/nvidia/cu13/lib   LibTorch, in the layout its own search path expects
#   P/share/automodel/{configs,recipes,schemas}
set(_torch_lib "${AUTOMODEL_LIBTORCH}/torch/lib")
set(_cuda_lib "${AUTOMODEL_LIBTORCH}/nvidia/cu13/lib")

# RPATH, not RUNPATH: it also serves the libraries that our libraries need.
target_link_options(automodel_main PRIVATE LINKER:--disable-new-dtags)
set_target_properties(automodel_main PROPERTIES
  INSTALL_RPATH "$ORIGIN/../lib:$ORIGIN/../lib/torch/lib:$ORIGIN/../lib/nvidia/cu13/lib")
install(TARGETS automodel automodel_main RUNTIME DESTINATION bin)
install(FILES "${_torch_lib}/libtorch_cpu.so" "${_torch_lib}/libc10.so"
              "${_torch_lib}/libgomp.so.1" DESTINATION lib/torch/lib)
install(DIRECTORY "${_cuda_lib}/" DESTINATION lib/nvidia/cu13/lib
        FILES_MATCHING REGEX "/lib(cudart|cupti)\\.so\\.[0-9]+$")
install(DIRECTORY "${AUTOMODEL_LIBTORCH}/torch-2.11.0.dist-info/" DESTINATION share/doc/libtorch)
install(FILES LICENSE README.md CHANGELOG.md DESTINATION share/doc/automodel)
install(DIRECTORY docs DESTINATION share/doc/automodel PATTERN automodel.1 EXCLUDE)
install(FILES docs/automodel.1 DESTINATION share/man/man1 COMPONENT data)
install(DIRECTORY configs recipes schemas DESTINATION share/automodel COMPONENT data)
# What recipes/smoke/tiny_llama_{sft,qlora,kd}.yaml read.
install(DIRECTORY tests/recipes/data/tiny_llama tests/recipes/data/tiny_teacher
        DESTINATION share/automodel/tests/recipes/data COMPONENT data)
install(FILES tests/recipes/data/rows.jsonl DESTINATION share/automodel/tests/recipes/data
        COMPONENT data)

install(DIRECTORY "${AUTOMODEL_ARROW}/pyarrow-26.0.1.dist-info/" DESTINATION share/doc/arrow)
set(_libtorch_directories "${_torch_lib}" "${_cuda_lib}" "${AUTOMODEL_ARROW}/pyarrow")
install(CODE "set(libtorch_directories \"${_libtorch_directories}\")")
install(CODE "set(automodel_binary \"$<TARGET_FILE:automodel_main>\")")
install(CODE [[
  file(GET_RUNTIME_DEPENDENCIES
    EXECUTABLES "${automodel_binary}"
    RESOLVED_DEPENDENCIES_VAR found
    UNRESOLVED_DEPENDENCIES_VAR missing
    DIRECTORIES ${libtorch_directories}
    # glibc belongs to the machine; LibTorch's own libraries are installed above.
    PRE_EXCLUDE_REGEXES "^ld-linux" "^lib(c|m|dl|rt|pthread|util|resolv|nsl|anl|mvec)\\.so"
                        "^lib(torch_cpu|c10|gomp|cudart|cupti)\\.so")
  if(missing)
    message(FATAL_ERROR "libraries not found: ${missing}")
  endif()
  file(INSTALL ${found} DESTINATION "${CMAKE_INSTALL_PREFIX}/lib" FOLLOW_SYMLINK_CHAIN)
]])
