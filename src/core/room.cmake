find_library(AUTOMODEL_XXHASH xxhash REQUIRED)
target_link_libraries(am_core PRIVATE ${AUTOMODEL_XXHASH})
