#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "core/field.h"
#include "peft/module_pattern.h"

namespace automodel::peft {

/// The `peft` section: which linear layers get low-rank adapters, and of which kind. Names and
/// defaults are upstream's PeftConfig's; adapter_name_or_path is this program's own, and
/// modules_to_save is PEFT's.
struct PeftConfig {
  std::vector<std::string> target_modules;
  std::vector<std::string> exclude_modules;
  bool match_all_linear = false;
  int64_t dim = 8;
  double alpha = 32;
  double dropout = 0;
  std::string dropout_position = "post";
  std::string lora_A_init = "xavier";
  std::optional<std::string> lora_dtype;
  bool use_dora = false;
  bool use_triton = false;
  bool use_memory_efficient_lora = true;
  bool moe_rank_scaling = false;
  std::string expert_weight_format = "unquantized";
  std::optional<std::string> adapter_name_or_path;
  std::vector<std::string> modules_to_save;
  // Not keys of a recipe: taken from the adapter that adapter_name_or_path names.
  ModulePattern rank_pattern = {};
  ModulePattern alpha_pattern = {};

  /// Rank and alpha of the adapter of a linear layer, by its name in transformers' modules.
  int64_t rank_of(const std::string& module) const {
    const auto own = rank_pattern.find(module);
    return own ? static_cast<int64_t>(*own) : dim;
  }
  double alpha_of(const std::string& module) const {
    return alpha_pattern.find(module).value_or(alpha);
  }

  static constexpr auto fields() {
    using S = PeftConfig;
    return std::tuple{
        field("target_modules", &S::target_modules,
              "names of linear layers that get adapters; * stands for anything; "
              "without this and the next two: '*_proj'")
            .or_one(),
        field("exclude_modules", &S::exclude_modules,
              "all linear layers get adapters but those of these names")
            .or_one(),
        field("match_all_linear", &S::match_all_linear,
              "all linear layers get adapters, lm_head too"),
        field("dim", &S::dim, "rank of the adapters").at_least(1).at_most(1e6),
        field("alpha", &S::alpha, "what an adapter adds is scaled by alpha / dim").above(0),
        field("dropout", &S::dropout, "probability of dropout in the adapters")
            .at_least(0)
            .at_most(1),
        field("dropout_position", &S::dropout_position,
              "pre: of an adapter's input; post: of what it adds"),
        field("lora_A_init", &S::lora_A_init,
              "xavier: normal numbers; any other value: Kaiming's uniform ones; lora_B is zero"),
        field("lora_dtype", &S::lora_dtype, "dtype of the adapters; absent: that of the model"),
        field("use_dora", &S::use_dora, "DoRA: adapted weights keep a trained length of each row"),
        field("use_triton", &S::use_triton, "Triton kernels")
            .without_effect("the adapters' products are fused with the layer's here"),
        field("use_memory_efficient_lora", &S::use_memory_efficient_lora, "recompute in backward")
            .without_effect("nothing but a layer's input and the small products is kept here"),
        field("moe_rank_scaling", &S::moe_rank_scaling,
              "adapters of experts have rank dim / experts of a token"),
        field("expert_weight_format", &S::expert_weight_format, "unquantized or mxfp4"),
        field("adapter_name_or_path", &S::adapter_name_or_path,
              "folder of an adapter to start from, in Hugging Face PEFT's format"),
        field("modules_to_save", &S::modules_to_save,
              "modules that are trained whole beside the adapters and saved with them, by the ends "
              "of their names: [embed_tokens, lm_head]")
            .or_one()};
  }
};

}  // namespace automodel::peft
