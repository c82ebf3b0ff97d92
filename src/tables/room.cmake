# Arrow C++ out of the pinned pyarrow wheel (scripts/setup.sh). Its headers stay inside this room.
set(_deps "${CMAKE_SOURCE_DIR}/.deps")
if(DEFINED ENV{AUTOMODEL_DEPS})
  set(_deps "$ENV{AUTOMODEL_DEPS}")
endif()
set(AUTOMODEL_ARROW "${_deps}/arrow-26.0.1" CACHE PATH
    "directory that holds pyarrow/ of the unpacked wheel")
if(NOT EXISTS "${AUTOMODEL_ARROW}/pyarrow/libparquet.so.2600")
  message(FATAL_ERROR "Arrow not found in ${AUTOMODEL_ARROW}; run scripts/setup.sh first")
endif()
foreach(_name arrow parquet)
  add_library(arrow::${_name} SHARED IMPORTED GLOBAL)
  set_target_properties(arrow::${_name} PROPERTIES
    IMPORTED_LOCATION "${AUTOMODEL_ARROW}/pyarrow/lib${_name}.so.2600"
    INTERFACE_INCLUDE_DIRECTORIES "${AUTOMODEL_ARROW}/pyarrow/include")
endforeach()
target_link_libraries(am_tables PRIVATE arrow::parquet arrow::arrow)
