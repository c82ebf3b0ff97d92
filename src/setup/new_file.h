#pragma once

#include <string>
#include <string_view>

namespace automodel::setup {

/// Writes a file that is not there yet. Throws UserError when it is, InputError when it cannot be
/// written; then nothing of it remains.
void write_new_file(const std::string& path, std::string_view bytes);

}  // namespace automodel::setup
