#include "peft/saved_modules.h"

#include <algorithm>
#include <map>
#include <utility>

#include "core/text.h"
#include "models/catalog.h"
#include "peft/module_matcher.h"
#include "peft/tensor_names.h"

namespace automodel::peft {

namespace {

constexpr std::string_view kWeightEnd = ".weight";

/// The modules that a name of modules_to_save means: their names end with it, as for PEFT, or it is
/// a pattern for the whole of one. A head that is the embedding means the embedding.
class SavedModules final {
 public:
  explicit SavedModules(const models::CausalLM& model) : model_(model) {
    const Json hf_config = model.hf_config();
    for (const tensor::ParameterPart& part : model.key_map()) {
      for (size_t dot = part.name.rfind('.'); dot != std::string::npos && dot > 0;
           dot = part.name.rfind('.', dot - 1)) {
        add(part.name.substr(0, dot), hf_config);
      }
    }
    if (!model.is_head_tied() || !model.class_head().empty()) return;
    const std::string embedding = cat(model.parallel_plan().embedding, kWeightEnd);
    for (const tensor::ParameterPart& part : model.key_map()) {
      if (part.parameter != embedding) continue;
      all_[without_suffix(part.name, kWeightEnd)].push_back(
          models::name_in_files(hf_config, "lm_head"));
    }
  }

  std::vector<std::string> find(const std::string& name) const {
    std::vector<std::string> found;
    for (const auto& [module, names] : all_) {
      const bool is_meant = std::ranges::any_of(names, [&](const std::string& each) {
        return each.ends_with(name) || wildcard_match(name, each);
      });
      // What is below a module that is meant is meant with it.
      if (is_meant && !is_of_modules(module, found)) found.push_back(module);
    }
    return found;
  }

  /// Why modules cannot be trained whole; "" if they can.
  std::string fault(const std::vector<std::string>& modules) const {
    const auto parameters = model_.named_parameters();
    for (const tensor::ParameterPart& part : model_.key_map()) {
      if (!is_of_modules(part.name, modules) || parameters[part.parameter].requires_grad()) {
        continue;
      }
      return cat(part.name,
                 " is no parameter that is trained: training a module whole that has "
                 "one is not in this version");
    }
    std::map<std::string, std::string> apart;  // a tensor outside by its parameter
    for (const tensor::ParameterPart& part : model_.key_map()) {
      if (!is_of_modules(part.name, modules)) apart.emplace(part.parameter, part.name);
    }
    for (const tensor::ParameterPart& part : model_.key_map()) {
      const auto other = apart.find(part.parameter);
      if (other == apart.end() || !is_of_modules(part.name, modules)) continue;
      return cat(part.name, " and ", other->second,
                 " are one matrix here: training one of them alone whole is not in this version");
    }
    return "";
  }

 private:
  void add(const std::string& module, const Json& hf_config) {
    if (!all_.contains(module)) all_[module] = models::names_in_recipes(hf_config, module);
  }

  const models::CausalLM& model_;
  std::map<std::string, std::vector<std::string>> all_;  // names in recipes, by those in files
};

}  // namespace

std::vector<std::string> unloadable_saved_modules(const models::CausalLM& model,
                                                  const std::vector<std::string>& modules) {
  std::string list, experts;  // the first of them
  for (const std::string& module : modules) {
    for (const tensor::ParameterPart& part : model.key_map()) {
      if (!is_of_modules(part.name, {module})) continue;
      if (list.empty() && is_digit(part.name[module.size() + 1])) list = module;
      // "layers.0.mlp.experts.1.up_proj.weight"
      const size_t end = part.name.find(".experts.");
      if (experts.empty() && end != std::string::npos) experts = part.name.substr(0, end + 8);
    }
  }
  std::vector<std::string> texts;
  if (!list.empty()) {
    texts.push_back(cat("PEFT takes no list of modules, such as ", list,
                        ", in modules_to_save, and does not load the adapter's folder; merge-lora "
                        "does"));
  }
  if (!experts.empty()) {
    texts.push_back(cat("PEFT does not load experts that are trained whole (", experts,
                        "), which transformers stacks; merge-lora does"));
  }
  return texts;
}

bool holds_embedding(const models::CausalLM& model, const std::vector<std::string>& modules) {
  const std::string embedding = cat(model.parallel_plan().embedding, kWeightEnd);
  return std::ranges::any_of(model.key_map(), [&](const tensor::ParameterPart& part) {
    return part.parameter == embedding && is_of_modules(part.name, modules);
  });
}

std::vector<std::string> saved_modules_of(const models::CausalLM& model, const PeftConfig& config,
                                          std::vector<PeftFinding>& findings) {
  std::vector<std::string> saved;
  if (config.modules_to_save.empty()) return saved;
  const SavedModules modules(model);
  const std::vector<std::string> head = model.class_head();
  for (const std::string& name : config.modules_to_save) {
    std::vector<std::string> found = modules.find(name);
    if (found.empty()) {
      findings.push_back({"modules_to_save",
                          cat("no module of the model has a name that ends in '", name,
                              "'; embed_tokens and lm_head are the usual ones"),
                          PeftFinding::Kind::kError, name});
    }
    for (std::string& module : found) {
      const bool is_known =
          std::ranges::find(saved, module) != saved.end() || is_of_modules(cat(module, "."), head);
      if (!is_known) saved.push_back(std::move(module));
    }
  }
  const std::vector<std::string> named = saved;
  std::erase_if(saved, [&](const std::string& module) { return is_of_modules(module, named); });
  const bool is_tied = model.is_head_tied() && head.empty();
  for (const std::string& module : saved) {
    if (!is_tied || module.ends_with("embed_tokens") || !holds_embedding(model, {module})) {
      continue;
    }
    findings.push_back({"modules_to_save",
                        cat("PEFT ties no head to an embedding called ", module,
                            ": trained on there, the two go apart"),
                        PeftFinding::Kind::kWarning});
  }
  if (const std::string fault = modules.fault(saved); !fault.empty()) {
    findings.push_back({"modules_to_save", fault, PeftFinding::Kind::kUnsupported});
  }
  return saved;
}

}  // namespace automodel::peft
