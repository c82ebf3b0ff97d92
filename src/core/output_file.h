#pragma once

#include <string>
#include <string_view>

namespace automodel {

/// Writes a file that somebody has named for the program's output. A plain file, or one that is not
/// there yet, is replaced whole or not at all. What is no plain file stays what it is and is
/// written into: a device, a pipe, the file that a link leads to; standard output and error go on
/// where they are (/dev/stdout). Throws InputError.
void write_output_file(const std::string& path, std::string_view bytes);

/// Whether write_output_file() would write to standard output.
bool is_standard_output(const std::string& path);

/// Throws InputError if something else than a plain file lies at a path where a file is to be made
/// that is renamed to it in the end.
void check_output_place(const std::string& path);

}  // namespace automodel
