#pragma once

#include <string>
#include <string_view>

namespace automodel {

/// Writes a file that somebody has named for the program's output. A plain file, or one that is not
/// there yet, is replaced whole or not at all. What is no plain file stays what it is and is
/// written into: a device (/dev/stdout), a pipe, the file that a link leads to. Throws InputError.
void write_output_file(const std::string& path, std::string_view bytes);

/// Throws InputError if something else than a plain file lies at a path, as a file that is written
/// in pieces cannot take its place.
void check_output_place(const std::string& path);

}  // namespace automodel
