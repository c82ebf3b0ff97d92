#include "recipes/check/check_quantization.h"

#include "checkpoint/quantized_tensor.h"
#include "core/error.h"
#include "models/catalog.h"
#include "peft/quantize_base.h"
#include "recipes/check/place_of.h"
#include "recipes/check/strategy_check.h"
#include "tensor/dtype.h"

namespace automodel::recipes {

namespace {

using config::Diagnostics;
using config::Node;

void check_values(const Recipe& recipe, Diagnostics& diagnostics) {
  const QuantizationSection& section = *recipe.quantization;
  const auto place = [&](const char* key) -> const Node& {
    return place_of(recipe, "quantization", key);
  };
  if (section.load_in_8bit) {
    diagnostics.unsupported(place("load_in_8bit"),
                            "base weights in 8 bits (load_in_8bit) are not in this version; "
                            "load_in_4bit: true holds them in 4");
  }
  if (section.bnb_4bit_quant_type != "nf4" && section.bnb_4bit_quant_type != "fp4") {
    diagnostics.error(
        place("bnb_4bit_quant_type"),
        cat("bnb_4bit_quant_type takes nf4 or fp4, found '", section.bnb_4bit_quant_type, "'"));
  }
  const auto dtype = tensor::parse_dtype(section.bnb_4bit_compute_dtype);
  if (dtype != at::kFloat && dtype != at::kBFloat16 && dtype != at::kHalf) {
    diagnostics.error(place("bnb_4bit_compute_dtype"),
                      cat("bnb_4bit_compute_dtype takes float32, bfloat16 or float16, found '",
                          section.bnb_4bit_compute_dtype, "'"));
  }
}

/// Refuses what is not built together with weights in 4 bits.
void check_company(const Recipe& recipe, Diagnostics& diagnostics) {
  const auto refuse = [&](const char* section, const char* key, const std::string& what) {
    diagnostics.unsupported(place_of(recipe, section, key),
                            cat(what, " with quantization is not in this version"));
  };
  const distributed::ParallelismSizes& sizes = recipe.distributed.sizes;
  if (sizes.tp_size.value_or(1) > 1) refuse("distributed", "tp_size", "tp_size > 1");
  if (sizes.pp_size.value_or(1) > 1) refuse("distributed", "pp_size", "pp_size > 1");
  if (recipe.distributed.strategy == distributed::Strategy::kMegatronFsdp) {
    refuse("distributed", "strategy", "strategy megatron_fsdp");
  }
  if (distributed::autocast_dtype(recipe.distributed)) {
    refuse("distributed", "autocast_dtype", "autocast_dtype");
  }
  if (recipe.dllm) refuse("quantization", "load_in_4bit", "training by diffusion");
  if (has_experts(recipe)) refuse("quantization", "load_in_4bit", "a model with experts");
  if (recipe.peft->use_dora) refuse("peft", "use_dora", "DoRA (peft.use_dora)");
}

/// Finds layers whose weights cannot be cut into whole blocks.
void check_layers(const Recipe& recipe, Diagnostics& diagnostics) {
  const Json& config = recipe.model.hf_config;
  if (!config.is_object() || !models::find_family(config).is_known ||
      !models::check_config(config).empty()) {
    return;
  }
  const auto names = peft::unquantizable_layers(*models::build_causal_lm(config, at::kFloat));
  if (names.empty()) return;
  diagnostics.unsupported(
      place_of(recipe, "quantization", "load_in_4bit"),
      cat("weights that are stored transposed, or whose number of elements is no multiple of ",
          kernels::kFourBitBlock, ", in 4 bits are not in this version: ", names[0],
          names.size() == 1 ? "" : cat(" and ", names.size() - 1, " more")));
}

}  // namespace

void check_quantization(const Recipe& recipe, Diagnostics& diagnostics) {
  if (!recipe.quantization) return;
  check_values(recipe, diagnostics);
  if (!recipe.peft) {
    diagnostics.error(*recipe.root.find("quantization"),
                      "quantized base weights are frozen: they go with adapters, which a section "
                      "'peft' adds; without quantization, all weights train as floats");
    return;
  }
  check_company(recipe, diagnostics);
  check_layers(recipe, diagnostics);
}

void check_stored_quantization(const Recipe& recipe, Diagnostics& diagnostics) {
  for (const char* path :
       {"quantization_config", "text_config.quantization_config", "config.quantization_config",
        "config.text_config.quantization_config"}) {
    const Node* changed = recipe.model.node.find_path(path);
    if (changed == nullptr) continue;
    diagnostics.unsupported(*changed,
                            "a quantization_config of the recipe is not in this version: the "
                            "folder's config.json says how its weights are stored");
    return;
  }
  if (recipe.model.draws_weights() || !recipe.model.hf_config.is_object()) return;
  const Node* named = recipe.model.node.find("pretrained_model_name_or_path");
  const Node& place = named != nullptr ? *named : recipe.model.node;
  std::optional<checkpoint::Quantization> quantization;
  try {
    quantization = checkpoint::read_quantization(recipe.model.hf_config);
  } catch (const UnsupportedError& error) {
    diagnostics.unsupported(place, error.what());
  } catch (const UserError& error) {
    diagnostics.error(place, error.what());
  }
  if (!quantization || recipe.checkpoint.dequantize_base_checkpoint.value_or(true)) return;
  diagnostics.error(
      *recipe.root.find_path("checkpoint.dequantize_base_checkpoint"),
      cat("the base model's weights are quantized (", checkpoint::method_name(quantization->method),
          "), and dequantize_base_checkpoint: false forbids to train the floats that "
          "they stand for; leave the key out, or name a model with float weights"));
}

}  // namespace automodel::recipes
