#pragma once

#include <c10/core/ScalarType.h>

#include <cstdint>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "models/causal_lm.h"
#include "moe/moe_config.h"
#include "peft/peft_config.h"

namespace automodel::peft {

/// A linear layer, or all experts of a layer, that gets an adapter; named as in Hugging Face.
struct AdaptedModule {
  std::string name;         ///< "model.layers.0.self_attn.q_proj", "model.layers.0.mlp.experts"
  std::string pattern;      ///< the pattern that chose it
  int64_t in_features = 0;  ///< for experts those of the first product
  int64_t out_features = 0;
};

/// A mistake in a section, for a model.
struct PeftFinding {
  enum class Kind { kError, kUnsupported, kWarning };
  std::string key;  ///< of the section
  std::string text;
  Kind kind = Kind::kError;
  std::string element = "";  ///< of the key's list, the one that is meant; "" for the whole value
};

/// The layers that a section chooses, and its mistakes.
struct PeftChoice {
  std::vector<AdaptedModule> modules;  ///< in the order of the model's parameters
  std::vector<std::string> saved;      ///< modules that are trained whole, but a classifier's head
  std::vector<PeftFinding> findings;
};

/// Applies the section's choice to a model that was just built, unsplit.
PeftChoice choose_modules(const models::CausalLM& model, const PeftConfig& config);

/// Freezes a model's parameters, but for a classifier's head and the modules of modules_to_save,
/// and adds adapters, which are trained, to the layers that the section chooses; their dtype is the
/// model's unless the section names one. The model is unsplit and without memory. key_map() then
/// also has "NAME.lora_A.weight", "NAME.lora_B.weight" and with DoRA "NAME.lora_magnitude_vector";
/// for experts these are [E, r, in] and [E, out, r], under "NAME" for the second product and
/// "NAME.base_layer" for the first. Throws UserError with the first finding that is not a warning.
void apply_lora(models::CausalLM& model, const PeftConfig& config, at::ScalarType model_dtype);

/// The rank of experts' adapters: with moe_rank_scaling `dim` divided by the number of experts that
/// a token chooses, rounded down, which may be 0.
int64_t expert_rank(const PeftConfig& config, const moe::MoEConfig& experts);

/// Weights of linear layers that the files of a config.json's family hold as [in, out] (GPT-2's
/// Conv1D), by name; none for a family that is not known.
std::set<std::string> transposed_weights(const Json& hf_config);

/// Lines for the log about what is trained: one of numbers, then one per pattern.
std::vector<std::string> describe(const PeftConfig& config, const models::CausalLM& whole,
                                  int64_t num_parameters, int64_t num_trained);

}  // namespace automodel::peft
