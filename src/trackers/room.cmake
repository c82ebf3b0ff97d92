find_package(Protobuf REQUIRED)
find_program(PROTOC protoc REQUIRED)

# The messages of TensorBoard's event files. Made while configuring, so that whatever reads
# compile_commands.json finds the header before anything is built.
set(_messages "${CMAKE_BINARY_DIR}/generated/tensorboard")
set(_proto "${CMAKE_SOURCE_DIR}/src/trackers/tensorboard_event.proto")
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${_proto}")
file(MAKE_DIRECTORY "${_messages}")
if("${_proto}" IS_NEWER_THAN "${_messages}/tensorboard_event.pb.h")
  execute_process(COMMAND "${PROTOC}" "--cpp_out=${_messages}" "--proto_path=${CMAKE_SOURCE_DIR}/src/trackers"
                          "${_proto}" COMMAND_ERROR_IS_FATAL ANY)
endif()
add_library(am_tensorboard_messages STATIC "${_messages}/tensorboard_event.pb.cc")
target_include_directories(am_tensorboard_messages SYSTEM PUBLIC "${CMAKE_BINARY_DIR}/generated")
target_compile_options(am_tensorboard_messages PRIVATE -w)
target_link_libraries(am_tensorboard_messages PUBLIC protobuf::libprotobuf-lite)
target_link_libraries(am_trackers PRIVATE am_tensorboard_messages)
