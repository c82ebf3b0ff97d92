#pragma once

#include <exception>
#include <optional>
#include <string>

namespace automodel::comm {

/// What a rank says when its own device, or its memory, has failed: one line with what to do about
/// it. nullopt for errors of any other kind.
std::optional<std::string> device_failure(const std::exception& error);

}  // namespace automodel::comm
