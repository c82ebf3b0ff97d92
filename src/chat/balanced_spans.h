#pragma once

#include <cstddef>
#include <string_view>
#include <vector>

namespace automodel::chat {

/// For every place in `begins`, which rise and hold `opener`: the place behind the `closer` that
/// ends what begins there, npos where nothing does. What lies in JSON strings, as they look to a
/// reader that starts at that place, does not count. Spans may overlap, and may see each other's
/// strings inside out. Opener and closer are neither quotes nor backslashes. The time is linear in
/// the text's length, and n log² n in the number of places.
std::vector<size_t> balanced_ends(std::string_view text, const std::vector<size_t>& begins,
                                  char opener, char closer);

}  // namespace automodel::chat
