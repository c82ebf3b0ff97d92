find_library(AUTOMODEL_XXHASH xxhash REQUIRED)
find_library(AUTOMODEL_PCRE2 pcre2-8 REQUIRED)
target_link_libraries(am_core PRIVATE ${AUTOMODEL_XXHASH} ${AUTOMODEL_PCRE2})
