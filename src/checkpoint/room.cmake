find_library(AUTOMODEL_XXHASH xxhash REQUIRED)
target_link_libraries(am_checkpoint PRIVATE ${AUTOMODEL_XXHASH})
