#include "peft/adapter_folder.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "checkpoint/hf_export.h"
#include "checkpoint/safetensors.h"
#include "core/error.h"
#include "core/json.h"
#include "core/text.h"
#include "models/catalog.h"
#include "peft/adapter_file.h"
#include "peft/adapter_keys.h"
#include "peft/apply_lora.h"
#include "peft/tensor_names.h"

namespace automodel::peft {

namespace {

constexpr size_t kNamesShown = 5;

Json number(double value) {
  const bool is_whole = std::floor(value) == value && std::abs(value) < 1e15;
  return is_whole ? Json(static_cast<int64_t>(value)) : Json(value);
}

bool is_classifier(const AdapterExport& what) {
  return what.architecture.ends_with("ForSequenceClassification");
}

/// "CAUSAL_LM" for "LlamaForCausalLM", "FEATURE_EXTRACTION" for "LlamaModel": derived from the
/// class's name, as upstream does; null for a model that generates no text token by token, which
/// PEFT then loads as a plain one.
Json task_type(const std::string& architecture) {
  if (architecture.ends_with("ForBlockDiffusion")) return {};
  if (architecture.ends_with("ForSequenceClassification")) return "SEQ_CLS";
  if (architecture.ends_with("Model") && !architecture.ends_with("LMHeadModel")) {
    return "FEATURE_EXTRACTION";
  }
  const Json config = Json::Object{{"architectures", Json::Array{architecture}}};
  return models::reads_sources(config) ? "SEQ_2_SEQ_LM" : "CAUSAL_LM";
}

/// A pattern as adapter_config.json has it.
Json pattern_json(const ModulePattern& pattern) {
  Json json = Json::object();
  for (const auto& [expression, value] : pattern.entries()) json[expression] = number(value);
  return json;
}

/// Experts come before the pattern of the layers, whose first match counts, and wherever it would
/// give them another rank.
Json rank_pattern_json(const PeftConfig& config, const std::vector<std::string>& parameters,
                       int64_t expert_rank) {
  Json ranks = Json::object();
  for (const std::string& name : parameters) {
    const bool is_plain = expert_rank == config.dim && !config.rank_pattern.find(name);
    if (!is_plain) ranks[name] = expert_rank;
  }
  for (const auto& [expression, rank] : config.rank_pattern.entries()) {
    ranks[expression] = number(rank);
  }
  return ranks;
}

/// Layers whose names PEFT would take for experts' are named by their weights. No pattern may
/// choose among these, since PEFT looks for those in other names then.
bool is_named_by_weight(const AdapterExport& what, const std::string& module) {
  const PeftConfig& config = what.config;
  return is_taken_for_experts(what.hf_config, module) && !config.use_dora &&
         config.rank_pattern.is_empty() && config.alpha_pattern.is_empty();
}

/// `experts`: their parameters, which have `expert_rank`.
Json adapter_config_json(const AdapterExport& what, const std::vector<std::string>& modules,
                         const std::vector<std::string>& experts, int64_t expert_rank) {
  Json names = Json::array(), parameters = Json::array();
  for (const std::string& name : experts) parameters.push_back(name);
  for (const std::string& name : modules) {
    if (is_named_by_weight(what, name)) {
      parameters.push_back(cat(name, ".weight"));
    } else {
      names.push_back(name);
    }
  }
  Json json = Json::object();
  if (!what.config.alpha_pattern.is_empty()) {
    json["alpha_pattern"] = pattern_json(what.config.alpha_pattern);
  }
  json["base_model_name_or_path"] = what.base.empty() ? Json() : Json(what.base);
  json["bias"] = "none";
  const std::set<std::string> transposed = transposed_weights(what.hf_config);
  const auto is_transposed = [&](const std::string& module) {
    return transposed.contains(models::name_in_files(what.hf_config, module) + ".weight");
  };
  json["fan_in_fan_out"] = Json(std::ranges::any_of(modules, is_transposed));
  json["lora_alpha"] = number(what.config.alpha);
  // PEFT refuses parameters beside dropout, and an adapter that is used has none.
  json["lora_dropout"] = parameters.size() == 0 ? what.config.dropout : 0.0;
  json["peft_type"] = "LORA";
  json["r"] = what.config.dim;
  json["target_modules"] = std::move(names);
  if (parameters.size() > 0) json["target_parameters"] = std::move(parameters);
  Json ranks = rank_pattern_json(what.config, experts, expert_rank);
  if (ranks.size() > 0) json["rank_pattern"] = std::move(ranks);
  if (!what.saved_modules.empty()) {
    json["modules_to_save"] = Json::array();
    for (const std::string& module : what.saved_modules) {
      json["modules_to_save"].push_back(models::name_in_modules(what.hf_config, module));
    }
    // Without it PEFT leaves a head that is tied to a saved embedding as the base has it.
    if (!what.tied_embedding.empty()) json["ensure_weight_tying"] = true;
  }
  json["task_type"] = task_type(what.architecture);
  json["use_dora"] = Json(what.config.use_dora);
  return json;
}

/// All other keys of the recipe's section, which upstream keeps beside an adapter; of a classifier
/// also what a merged model's configuration says of classes and padding, and of a model that makes
/// embeddings what it and its folder's other files say of them.
Json peft_config_json(const AdapterExport& what) {
  const PeftConfig& config = what.config;
  const auto list = [](const std::vector<std::string>& names) {
    Json json = Json::array();
    for (const std::string& name : names) json.push_back(name);
    return json;
  };
  Json json = Json::object();
  json["target_modules"] = list(config.target_modules);
  json["exclude_modules"] = list(config.exclude_modules);
  json["match_all_linear"] = Json(config.match_all_linear);
  json["dropout"] = config.dropout;
  json["dropout_position"] = config.dropout_position;
  json["lora_A_init"] = config.lora_A_init;
  json["lora_dtype"] = config.lora_dtype ? Json(*config.lora_dtype) : Json();
  json["use_dora"] = Json(config.use_dora);
  json["use_triton"] = Json(config.use_triton);
  json["use_memory_efficient_lora"] = Json(config.use_memory_efficient_lora);
  json["moe_rank_scaling"] = Json(config.moe_rank_scaling);
  json["modules_to_save"] = list(config.modules_to_save);
  json["expert_weight_format"] = config.expert_weight_format;
  json["paramwrapper_layout"] = kLayoutStamp;
  for (const char* key : {"id2label", "pad_token_id"}) {
    const Json* value = what.hf_config.find(key);
    if (is_classifier(what) && value != nullptr) json[key] = *value;
  }
  if (models::makes_embeddings(what.hf_config)) {
    for (const char* key : kEmbeddingKeys) json[key] = what.hf_config.at(key);
    json[kMergedFiles] = Json::object();
    for (const checkpoint::TextFile& file : what.merged_files) {
      json[kMergedFiles][file.path] = file.text;
    }
  }
  return json;
}

/// The names of a module or tensor that PEFT has, of all modules with its weights.
std::vector<std::string> names_in_peft(const AdapterExport& what, const std::string& name) {
  const Json& hf_config = what.hf_config;
  std::vector<std::string> names = {models::name_in_modules(hf_config, name)};
  for (std::string& twin : models::twins_in_modules(hf_config, names[0])) {
    names.push_back(std::move(twin));
  }
  if (!name.empty() && name == what.tied_embedding) {
    const std::string head = models::name_in_files(hf_config, "lm_head");
    names.push_back(cat(models::name_in_modules(hf_config, head), ".weight"));
  }
  return names;
}

FileRecord write_text(const std::string& folder, const char* name, const Json& json) {
  const std::string path = path_join(folder, name);
  const std::string bytes = json.dump(2) + "\n";
  write_file_atomic(path, bytes);
  return {path, bytes.size(), checksum_of(bytes)};
}

std::string scale_fault(const AdapterConfig& there, const PeftConfig& here) {
  const double scale = here.alpha / static_cast<double>(here.dim);
  if (there.rank != here.dim) {
    return cat("its rank (r) is ", there.rank, ", the recipe's (peft.dim) ", here.dim);
  }
  if (there.use_dora != here.use_dora) {
    return cat("it is ", there.use_dora ? "a DoRA" : "no DoRA", " adapter, peft.use_dora is ",
               here.use_dora ? "true" : "false");
  }
  const bool has_patterns = !there.rank_pattern.is_empty() || !there.alpha_pattern.is_empty();
  if (there.use_rslora && has_patterns) {
    return "it is scaled by the root of each layer's own rank (use_rslora with rank_pattern or "
           "alpha_pattern), which automodel merge-lora alone reads";
  }
  if (std::abs(there.scale() - scale) > 1e-9 * std::abs(scale)) {
    return cat("it is scaled by ", there.scale(), ", the recipe's by alpha / dim = ", scale);
  }
  if (there.alpha_pattern.entries() != here.alpha_pattern.entries()) {
    return "some of its layers are scaled by numbers of their own (alpha_pattern), which "
           "peft.adapter_name_or_path takes from the adapter that a run begins with";
  }
  return "";
}

/// Compares experts' scales, which differ under rsLoRA if experts have a rank of their own.
std::string expert_scale_fault(const AdapterConfig& there, const PeftConfig& here,
                               const tensor::KeyMap& keys, const Json& hf_config) {
  for (const tensor::ParameterPart& part : keys) {
    if (!is_expert_adapter(part) || !part.name.ends_with(kLoraA)) continue;
    const int64_t rank = part.shape[1];
    const double scale = here.alpha / static_cast<double>(rank);
    const double found = there.scale(rank, there.alpha);
    if (std::abs(found - scale) > 1e-9 * std::abs(scale)) {
      return cat("its experts are scaled by ", found, ", the recipe's by alpha / ", rank, " = ",
                 scale);
    }
  }
  return expert_pattern_fault(there, keys, hf_config);
}

std::string tensors_fault(const AdapterFile& file, const tensor::KeyMap& keys) {
  std::vector<std::string> missing, misshapen, unexpected;
  std::set<std::string> known;
  const ExpertLayout layout = file.expert_layout(keys);
  for (const tensor::ParameterPart& part : keys) {
    const PlaceInFile place(part, layout);
    known.insert(place.name);
    const checkpoint::TensorEntry* entry = file.find(place.name);
    if (entry == nullptr) {
      missing.push_back(place.name);
    } else if (entry->shape != place.shape) {
      misshapen.push_back(place.misshapen_text(entry->shape));
    }
  }
  for (const auto& [name, entry] : file.entries()) {
    if (!known.contains(name)) unexpected.push_back(name);
  }
  std::vector<std::string> texts;
  const auto add = [&](const char* what, const std::vector<std::string>& names) {
    if (names.empty()) return;
    texts.push_back(cat(what, " ", count_and_first(names, kNamesShown)));
  };
  add("missing", missing);
  add("not among the model's adapters", unexpected);
  add("of another shape", misshapen);
  return join(texts, "; ");
}

}  // namespace

bool is_taken_for_experts(const Json& hf_config, std::string_view module) {
  static const std::set<std::string> families = {
      "afmoe",         "cohere2_moe",  "deepseek_v2", "deepseek_v3",    "deepseek_v32",
      "dots1",         "ernie4_5_moe", "exaone_moe",  "flex_olmo",      "glm4_moe",
      "glm4_moe_lite", "glm4v_moe",    "glm_moe_dsa", "hunyuan_v1_moe", "longcat_flash",
      "mellum",        "olmoe",        "qwen3_moe",   "qwen3_next",     "qwen3_omni_moe",
      "solar_open"};
  const bool is_projection = module.ends_with(".gate_proj") || module.ends_with(".up_proj") ||
                             module.ends_with(".down_proj");
  return is_projection && families.contains(hf_config.get("model_type", ""));
}

std::vector<FileRecord> save_adapter(const std::string& folder,
                                     const checkpoint::TensorSource& source,
                                     const AdapterExport& what) {
  std::vector<checkpoint::TensorInfo> tensors;
  tensor::KeyMap experts;
  std::vector<std::string> modules;
  for (checkpoint::TensorInfo& tensor : source.tensors()) {
    const bool is_saved = is_of_modules(tensor.name, what.saved_modules);
    if (!is_adapter_tensor(tensor.name) && !is_saved) continue;
    const tensor::ParameterPart part{tensor.name, "", 0, tensor.shape};
    if (is_expert_adapter(part)) {
      experts.push_back(part);
    } else if (tensor.name.ends_with(kLoraA)) {
      modules.push_back(without_suffix(tensor.name, kLoraA));
    }
    tensors.push_back(std::move(tensor));
  }
  const auto by_name = [](const auto& a, const auto& b) { return a.name < b.name; };
  std::sort(tensors.begin(), tensors.end(), by_name);
  std::sort(experts.begin(), experts.end(), by_name);
  std::vector<std::string> targets;
  for (const std::string& module : modules) {
    for (std::string& name : names_in_peft(what, module)) {
      targets.push_back(std::move(name));
    }
  }
  std::sort(targets.begin(), targets.end());
  const ExpertLayout layout = layout_of_peft(what.hf_config);
  std::vector<checkpoint::TensorInfo> written;
  for (const checkpoint::TensorInfo& tensor : tensors) {
    const tensor::ParameterPart part{tensor.name, "", 0, tensor.shape};
    checkpoint::TensorInfo info = tensor;
    std::string stored_name = tensor.name;
    if (is_expert_adapter(part)) {
      stored_name = name_in_file(part, layout);
      info.shape = shape_in_file(part, layout);
    }
    for (const std::string& name : names_in_peft(what, stored_name)) {
      info.name = cat(kPeftPrefix, name);
      written.push_back(info);
    }
  }
  checkpoint::SafetensorsWriter writer(path_join(folder, kAdapterWeightsName), written,
                                       {{"format", "pt"}});
  for (const checkpoint::TensorInfo& tensor : tensors) {
    const at::Tensor values = at::empty({tensor.numel()}, at::TensorOptions().dtype(tensor.dtype));
    source.read(tensor.name, 0, values);
    const tensor::ParameterPart part{tensor.name, "", 0, tensor.shape};
    const at::Tensor stored =
        is_expert_adapter(part)
            ? to_file(values.view(tensor.shape), part, layout).contiguous().view({-1})
            : values;
    const size_t count = names_in_peft(what, tensor.name).size();
    for (size_t i = 0; i < count; ++i) writer.write(stored);
  }
  const int64_t expert_rank =
      experts.empty() ? 0 : experts[0].shape[1];  // lora_A is the first by name
  for (tensor::ParameterPart& part : experts) {
    part.name = models::name_in_modules(what.hf_config, part.name);
  }
  std::vector<FileRecord> records = {writer.finish()};
  records.push_back(
      write_text(folder, kAdapterConfigName,
                 adapter_config_json(what, targets, target_parameters(experts), expert_rank)));
  records.push_back(write_text(folder, kOwnConfigName, peft_config_json(what)));
  if (!what.tokenizer_folder.empty()) {
    for (FileRecord& record : checkpoint::copy_tokenizer_files(what.tokenizer_folder, folder)) {
      records.push_back(std::move(record));
    }
  }
  return records;
}

PeftConfig config_of_adapter(const std::string& folder, const models::CausalLM& model) {
  const Json hf_config = model.hf_config();
  const AdapterConfig there = read_adapter_config(folder);
  const AdapterFile file(folder, hf_config);
  PeftConfig config;
  config.dim = there.rank;
  config.alpha = there.scale() * static_cast<double>(there.rank);
  config.use_dora = there.use_dora;
  config.rank_pattern = there.rank_pattern;
  config.alpha_pattern = there.alpha_pattern;
  config.modules_to_save = there.modules_to_save;
  const int64_t num_experts = models::num_routed_experts(hf_config).value_or(0);
  for (const auto& [name, entry] : file.entries()) {
    if (!name.ends_with(kLoraA)) continue;
    const std::string module = without_suffix(name, kLoraA);
    if (module.ends_with(kInnerExperts)) continue;  // under the experts' own name
    config.target_modules.push_back(module);
    // The rows of all experts; a rank of their own is one that the section can make.
    const bool are_experts = module.ends_with(".experts") && num_experts > 0;
    if (are_experts && entry->shape[0] != config.dim * num_experts) config.moe_rank_scaling = true;
  }
  if (config.target_modules.empty()) throw InputError(cat(folder, " holds no adapters"));
  return config;
}

std::string find_adapter_fault(const std::string& folder, const PeftConfig& config,
                               const models::CausalLM& model) {
  const AdapterConfig there = read_adapter_config(folder);
  const tensor::KeyMap keys = folder_keys(model);
  std::string fault = scale_fault(there, config);
  if (fault.empty()) fault = expert_scale_fault(there, config, keys, model.hf_config());
  const AdapterFile file(folder, model.hf_config());
  if (fault.empty() && !file.ties_head() && !tied_saved_embedding(model).empty()) {
    fault =
        "its head stays as the base has it while its embedding is another, and here they are one";
  }
  if (fault.empty()) fault = tensors_fault(file, keys);
  return fault.empty() ? "" : cat("the adapter in ", folder, " does not fit: ", fault);
}

void load_adapter(const std::string& folder, const PeftConfig& config,
                  const models::CausalLM& model, std::span<const tensor::FlatShard> shards) {
  const std::string fault = find_adapter_fault(folder, config, model);
  if (!fault.empty()) throw InputError(fault);
  const AdapterFile file(folder, model.hf_config());
  const tensor::KeyMap keys = folder_keys(model);
  const ExpertLayout layout = file.expert_layout(keys);
  std::set<std::string> names;
  std::map<std::string, const tensor::ParameterPart*> experts;
  for (const tensor::ParameterPart& part : keys) {
    names.insert(part.name);
    if (is_expert_adapter(part)) experts[part.name] = &part;
  }
  for (const tensor::FlatShard& shard : shards) {
    for (const tensor::FlatSegment& segment : shard.segments) {
      if (!names.contains(segment.fqn) || segment.spec.numel() == 0) continue;
      const auto expert = experts.find(segment.fqn);
      if (expert == experts.end()) {
        file.file().read_shard(*file.find(segment.fqn), segment.spec, shard.view(segment));
        continue;
      }
      const at::Tensor factor = file.read_factor(*expert->second, layout).view({-1});
      const at::Tensor own = shard.view(segment);
      for (const tensor::ShardRun& run : tensor::shard_runs(segment.spec)) {
        own.narrow(0, run.local, run.numel).copy_(factor.narrow(0, run.global, run.numel));
      }
    }
  }
}

}  // namespace automodel::peft
