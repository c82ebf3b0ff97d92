#pragma once

#include <cstddef>
#include <string_view>

namespace automodel::tokenizers {

/// Where the extended grapheme cluster that begins at `begin` of valid UTF-8 ends, by the reference
/// implementation's Unicode (character_tables.h). Flags are two clusters here, and control
/// characters of 4 bytes are like letters: both have too many bytes to be looked up with others.
size_t end_of_cluster(std::string_view text, size_t begin);

}  // namespace automodel::tokenizers
