#pragma once

#include <c10/core/ScalarType.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/json.h"

namespace automodel::models {

class CausalLM;

/// Whether this version has the family of a config.json (by its `architectures` or `model_type`).
struct FamilyCheck {
  bool is_known = false;
  std::string architecture;  ///< the Hugging Face class name
  std::string reason;        ///< when not known: what it would need
};

/// Looks a config.json up without building anything.
FamilyCheck find_family(const Json& hf_config);

/// All architectures this version builds, sorted.
std::vector<std::string> known_architectures();

/// Routed experts of each layer that has some; 0 for models without; nullopt when config.json is
/// none of a family built here.
std::optional<int64_t> num_routed_experts(const Json& hf_config);

/// The name of a tensor, or of a module, of a family's files as the modules of transformers have
/// it.
std::string name_in_modules(const Json& hf_config, std::string name);

/// The way back; what is a name in files already stays as it is.
std::string name_in_files(const Json& hf_config, std::string name);

/// Parses and validates a config.json of a known family (old and new key forms) and returns what is
/// wrong with it: one text per finding, empty when it is right.
std::vector<std::string> check_config(const Json& hf_config);

/// Builds the model with parameters of `dtype` that have no memory yet. Throws UnsupportedError for
/// an unknown family and InputError for a config that is wrong.
std::shared_ptr<CausalLM> build_causal_lm(const Json& hf_config, at::ScalarType dtype);

}  // namespace automodel::models
