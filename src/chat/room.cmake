# A rendering is a microsecond or a few: what inlining gains is worth the compile time of this room.
target_compile_options(am_chat PRIVATE $<$<CONFIG:Release>:-O3>)
