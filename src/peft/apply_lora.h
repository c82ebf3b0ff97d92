#pragma once

#include <c10/core/ScalarType.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "models/causal_lm.h"
#include "moe/moe_config.h"
#include "peft/peft_config.h"

namespace automodel::peft {

/// A linear layer, or all experts of a layer, that get an adapter, by the Hugging Face name.
struct AdaptedModule {
  std::string name;         ///< "model.layers.0.self_attn.q_proj", "model.layers.0.mlp.experts"
  std::string pattern;      ///< what has chosen it
  int64_t in_features = 0;  ///< of experts those of the first product
  int64_t out_features = 0;
};

/// Something that is wrong with a section for a model.
struct PeftFinding {
  enum class Kind { kError, kUnsupported, kWarning };
  std::string key;  ///< of the section
  std::string text;
  Kind kind = Kind::kError;
};

/// The layers that a section means, and what is wrong with it.
struct PeftChoice {
  std::vector<AdaptedModule> modules;  ///< in the order of the model's parameters
  std::vector<PeftFinding> findings;
};

/// What the section says of a model that was just built, whole.
PeftChoice choose_modules(const models::CausalLM& model, const PeftConfig& config);

/// Freezes a model's parameters and adds adapters to the layers that the section means, whose
/// parameters are trained: in the model's dtype unless the section names one. The model is whole
/// and has no memory yet; its key_map() then has "NAME.lora_A.weight", "NAME.lora_B.weight" and
/// with DoRA "NAME.lora_magnitude_vector" besides; of experts [E, r, in] and [E, out, r], for the
/// second product under "NAME", for the first under "NAME.base_layer". UserError with the first
/// finding that is no warning.
void apply_lora(models::CausalLM& model, const PeftConfig& config, at::ScalarType model_dtype);

/// The rank of adapters of experts: with moe_rank_scaling a part of `dim`, as many as a token
/// chooses experts; 0 where that leaves none.
int64_t expert_rank(const PeftConfig& config, const moe::MoEConfig& experts);

/// Whether a tensor of a key map is an adapter's.
bool is_adapter_tensor(std::string_view name);

/// The parts of a model's key map that are (not) adapters'. Weights that are held in 4 bits appear
/// as the floats that they are made of.
tensor::KeyMap base_keys(const models::CausalLM& model);
tensor::KeyMap adapter_keys(const models::CausalLM& model);

/// What trains, for the log: a line of numbers, then one for every pattern.
std::vector<std::string> describe(const PeftConfig& config, const models::CausalLM& whole,
                                  int64_t num_parameters, int64_t num_trained);

}  // namespace automodel::peft
