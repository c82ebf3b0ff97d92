# A rendering is a microsecond or a few: what inlining gains is worth the compile time of this room.
target_compile_options(am_chat PRIVATE $<$<CONFIG:Release>:-O3>)
# At -O3 gcc 12 warns of strings that overlap themselves, which they cannot (gcc bug 105651).
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  target_compile_options(am_chat PRIVATE -Wno-restrict)
endif()
