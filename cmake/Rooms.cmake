# Builds one static library am_<room> per line of src/ROOMS and one test executable
# test_<room> per folder tests/<room>.

file(STRINGS "${CMAKE_SOURCE_DIR}/src/ROOMS" _room_lines REGEX "^[a-z]")
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${CMAKE_SOURCE_DIR}/src/ROOMS")

function(automodel_add_room line)
  string(REGEX MATCH "^([a-z_]+)[ ]*(t?)[ ]*:(.*)$" _ "${line}")
  set(room ${CMAKE_MATCH_1})
  set(has_torch "${CMAKE_MATCH_2}")
  separate_arguments(uses UNIX_COMMAND "${CMAKE_MATCH_3}")

  file(GLOB_RECURSE sources RELATIVE "${CMAKE_SOURCE_DIR}" CONFIGURE_DEPENDS
       "${CMAKE_SOURCE_DIR}/src/${room}/*.cpp")
  list(FILTER sources EXCLUDE REGEX "/(cli/main|cli/start|cuda/.*)\\.cpp$")
  if(AUTOMODEL_NVFSDP)
    list(FILTER sources EXCLUDE REGEX "/nvfsdp_absent\\.cpp$")
  else()
    list(FILTER sources EXCLUDE REGEX "/nvfsdp\\.cpp$")
  endif()
  if(NOT sources)
    add_library(am_${room} INTERFACE)
    set(scope INTERFACE)
  else()
    add_library(am_${room} STATIC ${sources})
    set(scope PUBLIC)
    target_compile_options(am_${room} PRIVATE ${AUTOMODEL_WARNINGS} ${AUTOMODEL_WHOLE_FUNCTIONS})
  endif()
  target_include_directories(am_${room} ${scope} "$<BUILD_INTERFACE:${CMAKE_SOURCE_DIR}/src>"
                             "$<INSTALL_INTERFACE:include/automodel>")
  target_compile_features(am_${room} ${scope} cxx_std_20)
  foreach(other IN LISTS uses)
    target_link_libraries(am_${room} ${scope} am_${other})
  endforeach()
  if(AUTOMODEL_UNITY AND sources)
    # Most of a file's compile time is the headers of others, LibTorch's above all.
    set_target_properties(am_${room} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 16)
  endif()
  if(has_torch)
    set(AUTOMODEL_TORCH_ROOMS ${AUTOMODEL_TORCH_ROOMS} ${room} PARENT_SCOPE)
    target_link_libraries(am_${room} ${scope} libtorch::torch_cpu)
    if(TARGET am_torch_rooms AND room IN_LIST AUTOMODEL_PRECOMPILED_ROOMS)
      target_precompile_headers(am_${room} REUSE_FROM am_torch_rooms)
      target_compile_options(am_${room} PRIVATE -fpch-preprocess)
    endif()
    if(AUTOMODEL_PRECOMPILE AND sources AND TARGET am_torch_tests)
      target_precompile_headers(am_${room} REUSE_FROM am_torch_tests)
      # As the tests' executables, or the header would not fit: -fPIE after a library's own -fPIC.
      target_compile_options(am_${room} PRIVATE -fpch-preprocess -fPIE)
      target_compile_definitions(am_${room} PRIVATE GTEST_HAS_PTHREAD=1)
    endif()
  endif()
  if(sources AND EXISTS "${CMAKE_SOURCE_DIR}/src/${room}/room.cmake")
    include("${CMAKE_SOURCE_DIR}/src/${room}/room.cmake")  # third-party libraries of this room
  endif()
endfunction()

# Precompiles LibTorch's headers once, as `target`, whose compile options the users of it share: am_torch_tests
# is an executable, as tests are (-fPIE), am_torch_rooms a library, as rooms are (-fPIC).
# ccache tells a precompiled header by the `.sum` beside it, not by its bytes, which differ from folder to
# folder: the headers in it are third parties' and of pinned versions.
function(automodel_precompile target header libraries)
  file(CONFIGURE OUTPUT "${CMAKE_BINARY_DIR}/${target}.cpp" CONTENT "int main() {}\n")
  if(target STREQUAL "am_torch_tests")
    add_executable(${target} "${CMAKE_BINARY_DIR}/${target}.cpp")
  else()
    add_library(${target} STATIC "${CMAKE_BINARY_DIR}/${target}.cpp")
  endif()
  target_link_libraries(${target} PRIVATE ${libraries})
  target_compile_options(${target} PRIVATE ${ARGN} -fpch-preprocess)
  target_precompile_headers(${target} PRIVATE "${header}")
  file(STRINGS "${header}" includes REGEX "^#include")
  string(SHA256 sum "${includes}")
  file(CONFIGURE OUTPUT "${CMAKE_BINARY_DIR}/CMakeFiles/${target}.dir/cmake_pch.hxx.gch.sum"
       CONTENT "${sum} ${CMAKE_CXX_COMPILER_VERSION} ${CMAKE_BUILD_TYPE} ${CMAKE_CXX_FLAGS}\n")
endfunction()

# A room's tests are one executable. `AUTOMODEL_TEST_SHARDS` of its tests.cmake cuts them into as many
# runs of some of the cases each, <room>_1 and on, for ctest to spread over the cores.
function(automodel_add_tests room)
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS "${CMAKE_SOURCE_DIR}/tests/${room}/*_test.cpp")
  if(NOT sources)
    return()
  endif()
  add_executable(test_${room} ${sources})
  target_link_libraries(test_${room} PRIVATE am_${room} am_test_support)
  target_compile_options(test_${room} PRIVATE ${AUTOMODEL_TEST_OPTIONS})
  if(room IN_LIST AUTOMODEL_TORCH_ROOMS AND TARGET am_torch_tests)
    target_precompile_headers(test_${room} REUSE_FROM am_torch_tests)
    target_compile_options(test_${room} PRIVATE -fpch-preprocess)
  endif()
  set(AUTOMODEL_TEST_SHARDS 1)
  if(EXISTS "${CMAKE_SOURCE_DIR}/tests/${room}/tests.cmake")
    include("${CMAKE_SOURCE_DIR}/tests/${room}/tests.cmake")  # other rooms that the tests use
  endif()
  set(name ${room})
  set(environment "AUTOMODEL_SOURCE_DIR=${CMAKE_SOURCE_DIR}"
                  "AUTOMODEL_BINARY=${CMAKE_BINARY_DIR}/automodel" "GOMP_SPINCOUNT=1000")
  foreach(shard RANGE 1 ${AUTOMODEL_TEST_SHARDS})
    if(AUTOMODEL_TEST_SHARDS GREATER 1)
      set(name ${room}_${shard})
    endif()
    math(EXPR index "${shard} - 1")
    add_test(NAME ${name} COMMAND test_${room}
             --gtest_output=xml:${CMAKE_BINARY_DIR}/test-results/${name}.xml)
    set_tests_properties(${name} PROPERTIES ENVIRONMENT
      "${environment};GTEST_TOTAL_SHARDS=${AUTOMODEL_TEST_SHARDS};GTEST_SHARD_INDEX=${index}")
  endforeach()
endfunction()

if(AUTOMODEL_TESTS)
  find_package(GTest REQUIRED)
  # Test code runs once: in a release too, compiling it quickly is worth more than running it fast.
  set(AUTOMODEL_TEST_OPTIONS ${AUTOMODEL_WARNINGS} $<$<CONFIG:Release>:-O0>)
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    automodel_precompile(am_torch_tests "${CMAKE_SOURCE_DIR}/tests/support/torch_tests.h"
                         "libtorch::torch_cpu;GTest::gtest;GTest::gmock" ${AUTOMODEL_TEST_OPTIONS})
  endif()
endif()

# Rooms that read LibTorch's headers for longer than a precompiled header of all of them takes to load.
set(AUTOMODEL_PRECOMPILED_ROOMS
    tensor kernels nn moe models comm optim checkpoint datasets training distributed peft recipes)
if(AUTOMODEL_UNITY AND NOT AUTOMODEL_SANITIZE AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  automodel_precompile(am_torch_rooms "${CMAKE_SOURCE_DIR}/cmake/torch_rooms.h" libtorch::torch_cpu
                       ${AUTOMODEL_WARNINGS} ${AUTOMODEL_WHOLE_FUNCTIONS})
endif()

foreach(line IN LISTS _room_lines)
  automodel_add_room("${line}")
endforeach()

if(AUTOMODEL_TESTS)
  file(GLOB support CONFIGURE_DEPENDS "${CMAKE_SOURCE_DIR}/tests/support/*.cpp")
  add_library(am_test_support STATIC ${support})
  target_include_directories(am_test_support PUBLIC "${CMAKE_SOURCE_DIR}/tests")
  target_compile_definitions(am_test_support PRIVATE AUTOMODEL_SOURCE_DIR="${CMAKE_SOURCE_DIR}")
  target_link_libraries(am_test_support PUBLIC am_core GTest::gtest GTest::gmock GTest::gmock_main)
  find_package(OpenSSL REQUIRED COMPONENTS Crypto)
  target_link_libraries(am_test_support PRIVATE OpenSSL::Crypto)
  # A hub of folders and what fetches from one, for trials by hand and with Python.
  add_executable(serve_hub EXCLUDE_FROM_ALL tests/support/hub_program/serve_hub.cpp)
  target_link_libraries(serve_hub PRIVATE am_test_support)
  add_executable(fetch_hub EXCLUDE_FROM_ALL tests/support/hub_program/fetch_hub.cpp)
  target_link_libraries(fetch_hub PRIVATE am_hub)
  # Stands between the program and the kernel in tests of failing disks.
  add_library(am_failing_calls MODULE tests/support/shim/failing_calls.cpp)
  set_target_properties(am_failing_calls PROPERTIES PREFIX "" OUTPUT_NAME failing_calls
                        LIBRARY_OUTPUT_DIRECTORY "${CMAKE_BINARY_DIR}")
  target_link_libraries(am_failing_calls PRIVATE ${CMAKE_DL_LIBS})
  add_dependencies(am_test_support am_failing_calls)
  file(GLOB rooms_with_tests RELATIVE "${CMAKE_SOURCE_DIR}/tests" "${CMAKE_SOURCE_DIR}/tests/*")
  foreach(room IN LISTS rooms_with_tests)
    if(TARGET am_${room})
      automodel_add_tests(${room})
    endif()
  endforeach()
endif()
