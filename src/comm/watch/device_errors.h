#pragma once

#include <exception>
#include <optional>
#include <string>

namespace automodel::comm {

/// The failure text of a rank whose own device or memory has failed: one line that says what to do.
/// nullopt for any other error.
std::optional<std::string> device_failure(const std::exception& error);

}  // namespace automodel::comm
