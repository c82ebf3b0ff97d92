#pragma once

#include <string>
#include <vector>

#include "models/causal_lm.h"
#include "recipes/read/freeze_section.h"

namespace automodel::recipes {

/// A mistake in a section `freeze_config`, for a model.
struct FreezeFinding {
  std::string key;  ///< of the section
  std::string text;
  bool is_unsupported = false;
  std::string element = "";  ///< of the key's list, the one that is meant; "" for the whole value
};

/// Freezes the parameters of a model that was just built that the section names, and says what is
/// wrong with the section; a model of which something is wrong stays half frozen.
std::vector<FreezeFinding> freeze_parameters(models::CausalLM& model, const FreezeSection& section);

/// Freezes a model's parameters; throws the first mistake as UserError or UnsupportedError.
void freeze_or_throw(models::CausalLM& model, const FreezeSection& section);

/// "frozen tensors (11): model.embed_tokens.weight, model.layers.0.input_layernorm.weight and 9
/// more of 38", of a whole model with this configuration: a line for the log.
std::string frozen_text(const Json& hf_config, const FreezeSection& section);

}  // namespace automodel::recipes
