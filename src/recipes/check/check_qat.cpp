#include "recipes/check/check_qat.h"

#include <algorithm>
#include <initializer_list>
#include <iterator>
#include <memory>
#include <string>
#include <vector>

#include "core/error.h"
#include "models/catalog.h"
#include "recipes/build/fake_quantizer_options.h"
#include "recipes/check/place_of.h"
#include "recipes/check/strategy_check.h"
#include "tensor/dtype.h"

namespace automodel::recipes {

namespace {

using config::Diagnostics;
using config::Node;

const Node& qat_place(const Recipe& recipe, const char* key) {
  const Node* found = recipe.root.find_path(cat("qat.qat_config.", key));
  return found != nullptr ? *found : place_of(recipe, "qat", "qat_config");
}

bool is_among(int64_t value, std::initializer_list<int64_t> values) {
  return std::find(values.begin(), values.end(), value) != values.end();
}

void check_quantizer(const Recipe& recipe, Diagnostics& diagnostics) {
  const QatConfig& config = recipe.qat->config;
  const auto dtype = tensor::parse_dtype(config.scales_precision);
  const bool is_weight_only = config.quantizer_type == QuantizerType::kInt4WeightOnly;
  if (!tensor::parse_dtype(config.precision)) {
    diagnostics.error(qat_place(recipe, "precision"),
                      cat("precision is a dtype, found '", config.precision, "'"));
  }
  if (dtype != at::kFloat && dtype != at::kBFloat16) {
    diagnostics.error(
        qat_place(recipe, "scales_precision"),
        cat("scales_precision takes float32 or bfloat16, found '", config.scales_precision, "'"));
  } else if (is_weight_only && dtype != at::kBFloat16) {
    diagnostics.error(qat_place(recipe, "scales_precision"),
                      "int4_weight_only has scales in bfloat16 alone");
  }
  const auto refuse_of_other = [&](const char* key, const char* owner) {
    if (recipe.root.find_path(cat("qat.qat_config.", key)) == nullptr) return;
    diagnostics.error(qat_place(recipe, key), cat(key, " is of quantizer_type ", owner, " alone"));
  };
  if (!is_weight_only) {
    refuse_of_other("inner_k_tiles", "int4_weight_only");
    return;
  }
  refuse_of_other("padding_allowed", "int8_dynact_int4weight");
  if (!is_among(config.groupsize, {32, 64, 128, 256})) {
    diagnostics.error(
        qat_place(recipe, "groupsize"),
        cat("int4_weight_only takes groups of 32, 64, 128 or 256, not ", config.groupsize));
  }
  if (!is_among(config.inner_k_tiles, {2, 4, 8})) {
    diagnostics.error(qat_place(recipe, "inner_k_tiles"),
                      cat("inner_k_tiles is 2, 4 or 8, not ", config.inner_k_tiles));
  }
}

/// Refuses what is not built together with it.
void check_qat_company(const Recipe& recipe, Diagnostics& diagnostics) {
  const auto refuse = [&](const char* section, const char* key, const std::string& what) {
    diagnostics.unsupported(place_of(recipe, section, key),
                            cat(what, " with qat is not in this version"));
  };
  if (recipe.peft) {
    diagnostics.unsupported(*recipe.root.find("peft"),
                            "adapters (peft) with qat are not in this version, nor in AutoModel: "
                            "qat trains the weights that are quantized afterwards");
  }
  if (recipe.distributed.sizes.tp_size.value_or(1) > 1) {
    refuse("distributed", "tp_size", "tp_size > 1");
  }
  if (distributed::autocast_dtype(recipe.distributed)) {
    refuse("distributed", "autocast_dtype", "autocast_dtype");
  }
  if (recipe.model.hf_config.is_object() && has_experts(recipe)) {
    diagnostics.warning(place_of(recipe, "qat", "enabled"),
                        "experts' weights are not rounded, as in AutoModel: attention, shared "
                        "experts, dense layers and the head are");
  }
}

std::string names_of(const std::vector<std::string>& names) {
  return names.size() == 1 ? names[0] : cat(names[0], " and ", names.size() - 1, " more");
}

/// Looks at the layers of the model: which cannot be cut into groups.
void check_rounded_layers(const Recipe& recipe, Diagnostics& diagnostics) {
  const Json& config = recipe.model.hf_config;
  if (!config.is_object() || !models::find_family(config).is_known ||
      !models::check_config(config).empty()) {
    return;
  }
  const auto model = models::build_causal_lm(config, at::kFloat);
  try {
    model->set_fake_quantizer(std::make_shared<nn::FakeQuantizer>(quantizer_options(*recipe.qat)));
  } catch (const UnsupportedError& error) {
    diagnostics.unsupported(place_of(recipe, "qat", "enabled"), error.what());
    return;
  }
  const QatConfig& section = recipe.qat->config;
  const bool is_weight_only = section.quantizer_type == QuantizerType::kInt4WeightOnly;
  const auto [unit, odd, biased, num_layers] = rounded_layers(*model, *recipe.qat);
  const Node& group = qat_place(recipe, "groupsize");
  const std::string misfit =
      odd.empty() ? "" : cat("rows of ", names_of(odd), " are no multiple of ", unit);
  if (!odd.empty() && (is_weight_only || section.padding_allowed)) {
    diagnostics.error(
        group, cat(misfit, is_weight_only ? " (of groupsize and of 16 x inner_k_tiles)" : ""));
  } else if (std::ssize(odd) == num_layers) {
    diagnostics.error(group, cat(misfit, ": no layer would be rounded; take a smaller groupsize"));
  } else if (std::ssize(biased) == num_layers) {
    diagnostics.error(qat_place(recipe, "quantizer_type"),
                      "int4_weight_only does not round layers with a bias, and all layers of this "
                      "model have one");
    return;
  } else if (!odd.empty()) {
    diagnostics.warning(group, cat(misfit, ": they are not rounded"));
  }
  if (!biased.empty()) {
    diagnostics.warning(
        qat_place(recipe, "quantizer_type"),
        cat(names_of(biased), " have a bias: int4_weight_only does not round them"));
  }
}

}  // namespace

void check_qat(const Recipe& recipe, Diagnostics& diagnostics) {
  if (!recipe.qat) return;
  check_quantizer(recipe, diagnostics);
  check_qat_company(recipe, diagnostics);
  // What is wrong in the section may be the reason why layers do not fit.
  if (!recipe.peft && !diagnostics.has_errors()) check_rounded_layers(recipe, diagnostics);
}

}  // namespace automodel::recipes
