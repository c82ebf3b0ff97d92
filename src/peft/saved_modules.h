#pragma once

#include <string>
#include <vector>

#include "models/causal_lm.h"
#include "peft/apply_lora.h"

namespace automodel::peft {

/// The modules that a section's modules_to_save names, but for a classifier's head, by their names
/// in files and in the order of the section; none is a part of another. Adds mistakes in it.
std::vector<std::string> saved_modules_of(const models::CausalLM& model, const PeftConfig& config,
                                          std::vector<PeftFinding>& findings);

/// What PEFT does not load of modules that are trained whole, a text each, though merge-lora does.
std::vector<std::string> unloadable_saved_modules(const models::CausalLM& model,
                                                  const std::vector<std::string>& modules);

/// Whether modules hold the embedding of a model.
bool holds_embedding(const models::CausalLM& model, const std::vector<std::string>& modules);

}  // namespace automodel::peft
