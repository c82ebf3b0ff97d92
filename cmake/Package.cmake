# `cmake --install BUILD --component devel --prefix P` makes a folder for other CMake projects:
# find_package(automodel) gives automodel::distributed, the engine with the optimizers and
# checkpoints that go with it. LibTorch stays where the build found it; -DAUTOMODEL_LIBTORCH=
# names another place. examples/ is such a project.
set(_package_rooms core mesh tensor kernels comm nn moe optim distributed checkpoint)
foreach(room IN LISTS _package_rooms)
  set_target_properties(am_${room} PROPERTIES EXPORT_NAME room_${room})
  install(TARGETS am_${room} EXPORT automodel COMPONENT devel EXCLUDE_FROM_ALL
          ARCHIVE DESTINATION lib)
  install(DIRECTORY "src/${room}" DESTINATION include/automodel COMPONENT devel EXCLUDE_FROM_ALL
          FILES_MATCHING PATTERN "*.h" PATTERN "*_fwd" EXCLUDE)
endforeach()
install(EXPORT automodel FILE automodelTargets.cmake NAMESPACE automodel::
        DESTINATION lib/cmake/automodel COMPONENT devel EXCLUDE_FROM_ALL)
configure_file(cmake/automodelConfig.cmake.in automodelConfig.cmake @ONLY)
include(CMakePackageConfigHelpers)
write_basic_package_version_file("${CMAKE_BINARY_DIR}/automodelConfigVersion.cmake"
                                 COMPATIBILITY SameMinorVersion)
install(FILES "${CMAKE_BINARY_DIR}/automodelConfig.cmake"
              "${CMAKE_BINARY_DIR}/automodelConfigVersion.cmake" cmake/ImportLibTorch.cmake
        DESTINATION lib/cmake/automodel COMPONENT devel EXCLUDE_FROM_ALL)
