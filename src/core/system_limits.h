#pragma once

#include <cstdint>
#include <exception>
#include <optional>
#include <string>

namespace automodel {

/// Lets this process open as many files as its hard limit (`ulimit -Hn`) allows.
void raise_open_files();

/// Throws UserError (a rank failed) unless the process may have `count` files open, for `purpose`.
void check_open_files(int64_t count, const std::string& purpose);

/// Throws UserError (a rank failed) unless the system starts `count` threads more now. They end
/// before the call returns.
void check_threads(int count);

/// What the system refused where an exception says that it lacks threads; nullopt for another one.
std::optional<std::string> thread_shortage(const std::exception& error);

}  // namespace automodel
