#pragma once

#include <string>

#include "core/text.h"
#include "distributed/settings/class_table.h"

namespace automodel::distributed {

/// Some models' classes under their names in transformers, as recipes hand them down.
inline ClassTable model_classes() {
  const struct {
    const char* architecture;
    std::string module;
    ModelClasses classes;
  } models[] = {{"LlamaForCausalLM", "llama", {"LlamaDecoderLayer", ""}},
                {"Qwen3ForCausalLM", "qwen3", {"Qwen3DecoderLayer", ""}},
                {"GPT2LMHeadModel", "gpt2", {"GPT2Block", ""}},
                {"Qwen3MoeForCausalLM", "qwen3_moe", {"Qwen3MoeDecoderLayer", "Qwen3MoeExperts"}},
                {"DiffusionGemmaForBlockDiffusion",
                 "diffusion_gemma",
                 {"DiffusionGemmaDecoderTextLayer", "DiffusionGemmaTextExperts"}}};
  ClassTable table = module_classes();
  for (const auto& model : models) {
    const std::string file =
        cat("transformers.models.", model.module, ".modeling_", model.module, ".");
    table.add({cat(file, model.classes.layer), model.classes.layer, "layer", ""});
    if (!model.classes.experts.empty()) {
      table.add({cat(file, model.classes.experts), model.classes.experts, "experts", ""});
    }
    table.add_model(model.architecture, model.classes);
  }
  return table;
}

}  // namespace automodel::distributed
