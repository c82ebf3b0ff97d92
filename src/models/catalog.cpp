#include "models/catalog.h"

#include <algorithm>
#include <span>

#include "core/error.h"
#include "models/causal_lm.h"
#include "models/decoder/model.h"
#include "models/deepseek_v3/config.h"
#include "models/diffusion_gemma/config.h"
#include "models/diffusion_gemma/model.h"
#include "models/gemma/config.h"
#include "models/gemma2/config.h"
#include "models/gemma3/config.h"
#include "models/glm4_moe/config.h"
#include "models/gpt2/config.h"
#include "models/gpt_oss/config.h"
#include "models/granite/config.h"
#include "models/llama/config.h"
#include "models/mistral/config.h"
#include "models/mixtral/config.h"
#include "models/olmo2/config.h"
#include "models/phi3/config.h"
#include "models/qwen2/config.h"
#include "models/qwen3/config.h"
#include "models/qwen3_moe/config.h"

namespace automodel::models {

namespace {

using decoder::ConfigReader;
using decoder::Family;

/// Every family of this version.
std::span<const Family> families() {
  static constexpr Family kFamilies[] = {
      {"LlamaForCausalLM", "llama", llama::read_config, llama::parallel_plan, llama::key_map},
      {"Qwen2ForCausalLM", "qwen2", qwen2::read_config, qwen2::parallel_plan, qwen2::key_map},
      {"Qwen3ForCausalLM", "qwen3", qwen3::read_config, qwen3::parallel_plan, qwen3::key_map},
      {"MistralForCausalLM", "mistral", mistral::read_config, mistral::parallel_plan,
       mistral::key_map},
      {"Phi3ForCausalLM", "phi3", phi3::read_config, phi3::parallel_plan, phi3::key_map},
      {"GemmaForCausalLM", "gemma", gemma::read_config, gemma::parallel_plan, gemma::key_map},
      {"Gemma2ForCausalLM", "gemma2", gemma2::read_config, gemma2::parallel_plan, gemma2::key_map},
      {"Gemma3ForCausalLM", "gemma3_text", gemma3::read_config, gemma3::parallel_plan,
       gemma3::key_map},
      {"GPT2LMHeadModel", "gpt2", gpt2::read_config, gpt2::parallel_plan, gpt2::key_map},
      {"Olmo2ForCausalLM", "olmo2", olmo2::read_config, olmo2::parallel_plan, olmo2::key_map},
      {"GraniteForCausalLM", "granite", granite::read_config, granite::parallel_plan,
       granite::key_map},
      {"Qwen3MoeForCausalLM", "qwen3_moe", qwen3_moe::read_config, qwen3_moe::parallel_plan,
       qwen3_moe::key_map},
      {"MixtralForCausalLM", "mixtral", mixtral::read_config, mixtral::parallel_plan,
       mixtral::key_map},
      {"DeepseekV3ForCausalLM", "deepseek_v3", deepseek_v3::read_config, deepseek_v3::parallel_plan,
       deepseek_v3::key_map},
      {"GptOssForCausalLM", "gpt_oss", gpt_oss::read_config, gpt_oss::parallel_plan,
       gpt_oss::key_map},
      {"Glm4MoeForCausalLM", "glm4_moe", glm4_moe::read_config, glm4_moe::parallel_plan,
       glm4_moe::key_map},
      {.architecture = "DiffusionGemmaForBlockDiffusion",
       .model_type = "diffusion_gemma",
       .read_config = diffusion_gemma::read_config,
       .parallel_plan = diffusion_gemma::parallel_plan,
       .build = diffusion_gemma::build},
  };
  return kFamilies;
}

/// `architectures[0]`, or "" when config.json has none.
std::string named_architecture(const Json& hf_config) {
  const Json* list = hf_config.find("architectures");
  if (list == nullptr || !list->is_array() || list->size() == 0) return "";
  const Json& first = list->as_array().front();
  return first.is_string() ? first.as_string() : "";
}

const Family* find(const Json& hf_config) {
  const std::string architecture = named_architecture(hf_config);
  const std::string model_type = hf_config.get("model_type", "");
  for (const Family& family : families()) {
    const bool is_match = architecture.empty() ? family.model_type == model_type
                                               : family.architecture == architecture;
    if (is_match) return &family;
  }
  return nullptr;
}

/// What a family makes of its config.json and of the recipe's moe_overrides in it.
decoder::DecoderConfig read(const Family& family, ConfigReader& reader) {
  decoder::DecoderConfig config = family.read_config(reader);
  if (reader.has("moe_overrides") && !(config.moe && config.moe->has_correction_bias)) {
    reader.problem(cat("moe_overrides: a ", family.architecture, " has no correction to move"));
  }
  return config;
}

std::string unknown_reason(const Json& hf_config) {
  const std::string architecture = named_architecture(hf_config);
  if (!architecture.empty()) {
    const std::vector<std::string> known = known_architectures();
    return cat("the model class ", architecture, " is not built in this version",
               did_you_mean(architecture, known), "; built: ", join(known, ", "));
  }
  std::vector<std::string> types;
  for (const Family& family : families()) types.emplace_back(family.model_type);
  std::sort(types.begin(), types.end());
  const std::string model_type = hf_config.get("model_type", "");
  if (model_type.empty()) {
    return cat("config.json has neither architectures nor model_type; built: ", join(types, ", "));
  }
  return cat("the model type '", model_type, "' is not built in this version",
             did_you_mean(model_type, types), "; built: ", join(types, ", "));
}

}  // namespace

FamilyCheck find_family(const Json& hf_config) {
  if (!hf_config.is_object()) return {false, "", "config.json does not hold an object"};
  if (const Family* family = find(hf_config)) {
    return {true, std::string(family->architecture), ""};
  }
  return {false, named_architecture(hf_config), unknown_reason(hf_config)};
}

std::vector<std::string> known_architectures() {
  std::vector<std::string> names;
  for (const Family& family : families()) names.emplace_back(family.architecture);
  std::sort(names.begin(), names.end());
  return names;
}

std::optional<int64_t> num_routed_experts(const Json& hf_config) {
  if (!hf_config.is_object() || !find_family(hf_config).is_known) return std::nullopt;
  ConfigReader reader(hf_config);
  const decoder::DecoderConfig config = find(hf_config)->read_config(reader);
  return config.moe ? config.moe->n_routed_experts : 0;
}

std::vector<std::string> check_config(const Json& hf_config) {
  const FamilyCheck check = find_family(hf_config);
  if (!check.is_known) return {check.reason};
  ConfigReader reader(hf_config);
  read(*find(hf_config), reader);
  return reader.problems();
}

std::shared_ptr<CausalLM> build_causal_lm(const Json& hf_config, at::ScalarType dtype) {
  const FamilyCheck check = find_family(hf_config);
  if (!check.is_known) throw UnsupportedError(check.reason);
  const Family& family = *find(hf_config);
  if (family.build != nullptr) return family.build(hf_config, dtype);
  ConfigReader reader(hf_config);
  decoder::DecoderConfig config = read(family, reader);
  if (!reader.problems().empty()) {
    throw InputError(
        cat("config.json of a ", family.architecture, ": ", join(reader.problems(), "; ")));
  }
  return std::make_shared<decoder::DecoderModel>(family, std::move(config), hf_config, dtype);
}

}  // namespace automodel::models
