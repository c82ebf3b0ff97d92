#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "config/diagnostic.h"
#include "config/node.h"
#include "config/registry.h"

namespace automodel::recipes {

/// The keys of sections that are of one class each, whichever section they are in.
std::vector<std::string> sections_of_a_class();

/// Names of `_target_` in a section that is of one class, by the section's key: "rng",
/// "quantization", "mlflow", a model's
/// "backend" and the like. They choose nothing. AM_CHECK: the section has a class.
config::TargetNames section_targets(std::string_view section);

/// Reports a `_target_` of such a section, by its key, that is no name of its class.
void check_section_target(const config::Node& section, config::Diagnostics& diagnostics);

}  // namespace automodel::recipes
