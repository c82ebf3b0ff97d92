#include "distributed/class_table.h"

#include "core/error.h"

namespace automodel::distributed {

namespace {

/// A module of transformers, the class of its layers and that of its grouped experts.
struct ModelClasses {
  std::string_view module;
  std::string_view layer;
  std::string_view experts;
};

constexpr ModelClasses kModels[] = {
    {"llama", "LlamaDecoderLayer", ""},
    {"qwen2", "Qwen2DecoderLayer", ""},
    {"qwen3", "Qwen3DecoderLayer", ""},
    {"mistral", "MistralDecoderLayer", ""},
    {"phi3", "Phi3DecoderLayer", ""},
    {"gemma", "GemmaDecoderLayer", ""},
    {"gemma2", "Gemma2DecoderLayer", ""},
    {"gemma3", "Gemma3DecoderLayer", ""},
    {"gpt2", "GPT2Block", ""},
    {"olmo2", "Olmo2DecoderLayer", ""},
    {"granite", "GraniteDecoderLayer", ""},
    {"qwen3_moe", "Qwen3MoeDecoderLayer", "Qwen3MoeExperts"},
    {"mixtral", "MixtralDecoderLayer", "MixtralExperts"},
    {"glm4_moe", "Glm4MoeDecoderLayer", "Glm4MoeExperts"},
    {"deepseek_v3", "DeepseekV3DecoderLayer", "DeepseekV3Experts"},
    {"gpt_oss", "GptOssDecoderLayer", "GptOssExperts"},
    {"diffusion_gemma", "DiffusionGemmaDecoderTextLayer", "DiffusionGemmaTextExperts"}};

std::string last_component(const std::string& path) {
  return path.substr(path.rfind('.') + 1);
}

}  // namespace

void ClassTable::add(const ImportedClass& found, const std::vector<std::string>& aliases) {
  classes_.emplace(found.path, found);
  for (const std::string& alias : aliases) classes_.emplace(alias, found);
}

const ImportedClass* ClassTable::find(const std::string& path) const {
  const auto found = classes_.find(path);
  return found == classes_.end() ? nullptr : &found->second;
}

std::vector<std::string> ClassTable::paths() const {
  std::vector<std::string> paths;
  for (const auto& [path, found] : classes_) paths.push_back(path);
  return paths;
}

std::optional<std::string> ClassTable::path_of(const std::string& name,
                                               const std::string& kind) const {
  for (const auto& [path, found] : classes_) {
    if (found.name == name && found.kind == kind) return found.path;
  }
  return std::nullopt;
}

ClassTable module_classes() {
  ClassTable table;
  const auto add = [&](std::string_view module, std::string_view name, const char* kind) {
    if (name.empty()) return;
    const std::string package = cat("transformers.models.", module, ".");
    table.add({cat(package, "modeling_", module, ".", name), std::string(name), kind, ""},
              {cat(package, name)});
  };
  for (const ModelClasses& model : kModels) {
    add(model.module, model.layer, "layer");
    add(model.module, model.experts, "experts");
  }
  table.add({"torch.nn.Embedding", "Embedding", "module", ""},
            {"torch.nn.modules.sparse.Embedding"});
  return table;
}

ImportedClass import_class_from_path(const std::string& path, const ClassTable& table) {
  const ImportedClass* found = table.find(path);
  if (found != nullptr && found->unsupported_reason.empty()) return *found;
  if (found != nullptr) {
    throw UnsupportedError(cat(path, " is not in this version: ", found->unsupported_reason));
  }
  if (path.find('.') == std::string::npos) {
    throw UserError(cat("'", path, "' is no path of a class: expected module.Class"));
  }
  // The same class of another module is nearer than a like path.
  for (const std::string& known : table.paths()) {
    if (last_component(known) == last_component(path)) {
      throw UserError(cat("no class ", path, "; did you mean '", known, "'?"));
    }
  }
  throw UserError(cat("no class ", path, did_you_mean(path, table.paths())));
}

std::vector<ImportedClass> import_classes_from_paths(const std::vector<std::string>& paths,
                                                     Reporter& reporter, const ClassTable& table) {
  std::vector<ImportedClass> classes;
  for (const std::string& path : paths) {
    try {
      classes.push_back(import_class_from_path(path, table));
    } catch (const UserError& error) {
      reporter.warning(cat("Could not import class from path ", path, ": ", error.what()));
    }
  }
  return classes;
}

std::string layer_class_of(std::string_view architecture) {
  if (architecture.starts_with("GPT2")) return "GPT2Block";
  if (architecture.starts_with("DiffusionGemma")) return "DiffusionGemmaDecoderTextLayer";
  return cat(architecture.substr(0, architecture.find("For")), "DecoderLayer");
}

std::string experts_class_of(std::string_view architecture) {
  if (architecture.starts_with("DiffusionGemma")) return "DiffusionGemmaTextExperts";
  return cat(architecture.substr(0, architecture.find("For")), "Experts");
}

}  // namespace automodel::distributed
