find_package(Protobuf REQUIRED)
find_program(PROTOC protoc REQUIRED)

# The messages of TensorBoard's and W&B's files. Made while configuring, so that whatever reads
# compile_commands.json finds the headers before anything is built.
add_library(am_tracker_messages STATIC)
foreach(_name tensorboard_event wandb_records)
  string(REGEX REPLACE "_.*" "" _package "${_name}")
  set(_messages "${CMAKE_BINARY_DIR}/generated/${_package}")
  set(_proto "${CMAKE_SOURCE_DIR}/src/trackers/${_name}.proto")
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${_proto}")
  file(MAKE_DIRECTORY "${_messages}")
  if("${_proto}" IS_NEWER_THAN "${_messages}/${_name}.pb.h")
    execute_process(COMMAND "${PROTOC}" "--cpp_out=${_messages}" "--proto_path=${CMAKE_SOURCE_DIR}/src/trackers"
                            "${_proto}" COMMAND_ERROR_IS_FATAL ANY)
  endif()
  target_sources(am_tracker_messages PRIVATE "${_messages}/${_name}.pb.cc")
endforeach()
target_include_directories(am_tracker_messages SYSTEM PUBLIC "${CMAKE_BINARY_DIR}/generated")
target_compile_options(am_tracker_messages PRIVATE -w)
target_link_libraries(am_tracker_messages PUBLIC protobuf::libprotobuf-lite)
target_link_libraries(am_trackers PRIVATE am_tracker_messages)
