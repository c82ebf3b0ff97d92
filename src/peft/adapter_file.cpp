#include "peft/adapter_file.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "checkpoint/hf_folder.h"
#include "core/error.h"
#include "core/file.h"
#include "core/json.h"
#include "core/text.h"
#include "models/catalog.h"
#include "peft/adapter_keys.h"
#include "peft/tensor_names.h"
#include "tensor/dtype.h"

namespace automodel::peft {

namespace {

bool is_nothing(const Json* value) {
  return value == nullptr || value->is_null() || (value->is_bool() && !value->as_bool()) ||
         ((value->is_object() || value->is_array()) && value->size() == 0);
}

/// The result of `read`, whose errors get the file's path in front.
template <typename Read>
auto naming_file(const std::string& path, const Read& read) {
  try {
    return read();
  } catch (const UnsupportedError& error) {
    throw UnsupportedError(cat(path, ": ", error.what()));
  } catch (const InputError& error) {
    throw InputError(cat(path, ": ", error.what()));
  }
}

/// The layout that upstream's stamp names.
std::optional<ExpertLayout> stamped_layout(const Json& config) {
  const std::string stamp = config.get("paramwrapper_layout", "");
  if (stamp.empty()) return std::nullopt;
  if (stamp == kLayoutStamp) return ExpertLayout::kPeft19;
  if (stamp == "peft-0.18") return ExpertLayout::kPeft18;
  throw InputError(
      cat("paramwrapper_layout '", stamp, "' is not known: ", kLayoutStamp, " and peft-0.18 are"));
}

/// The layout of the version of PEFT that wrote an adapter_config.json.
std::optional<ExpertLayout> layout_of_version(const Json& config) {
  const std::vector<std::string> version = split(config.get("peft_version", ""), '.');
  if (version.size() < 2) return std::nullopt;
  const int64_t major = parse_int(version[0]).value_or(0);
  const int64_t minor = parse_int(version[1]).value_or(0);
  const auto patch = version.size() > 2 ? parse_int(version[2]) : std::nullopt;
  if (major == 0 && minor == 19 && !patch) return std::nullopt;  // 0.19.0's differs from 0.19.1's
  const std::array<int64_t, 3> found = {major, minor, patch.value_or(0)};
  return found >= std::array<int64_t, 3>{0, 19, 1} ? ExpertLayout::kPeft19 : ExpertLayout::kPeft18;
}

/// The layout of experts' adapters that a folder states: by upstream's stamp or PEFT's version.
/// The statement means the other layout of families that exchange factors.
std::optional<ExpertLayout> stated_layout(const std::string& folder, const Json& hf_config) {
  std::optional<ExpertLayout> found;
  const std::string own = path_join(folder, kOwnConfigName);
  if (path_exists(own)) {
    const Json config = Json::parse_file(own);
    found = naming_file(own, [&] { return stamped_layout(config); });
  }
  if (!found) {
    const std::string path = path_join(folder, kAdapterConfigName);
    const Json config = Json::parse_file(path);
    found = naming_file(path, [&] { return layout_of_version(config); });
  }
  if (!found) return std::nullopt;
  return layout_of_peft(hf_config, *found == ExpertLayout::kPeft18);
}

/// `pattern` without the parameters of experts that target_parameters names.
Json without_experts(const Json& json, const char* pattern) {
  const Json* all = json.find(pattern);
  const Json* targets = json.find("target_parameters");
  if (is_nothing(all) || is_nothing(targets) || !all->is_object()) {
    return all == nullptr ? Json() : *all;
  }
  Json rest = Json::object();
  for (const auto& [name, value] : all->as_object()) {
    const auto is_it = [&, &name = name](const Json& target) { return target.as_string() == name; };
    if (!std::ranges::any_of(targets->as_array(), is_it)) rest[name] = value;
  }
  return rest;
}

ModulePattern rank_pattern_of(const Json& json) {
  const Json ranks = without_experts(json, "rank_pattern");
  ModulePattern pattern("rank_pattern", &ranks);
  for (const auto& [name, rank] : pattern.entries()) {
    if (rank >= 1 && rank == std::floor(rank) && rank < 1e6) continue;
    throw InputError(
        cat("rank_pattern of ", name, " is ", rank, ", a whole number from 1 is right"));
  }
  return pattern;
}

ModulePattern alpha_pattern_of(const Json& json) {
  const Json* all = json.find("alpha_pattern");
  if (!is_nothing(all) && all->is_object() &&
      without_experts(json, "alpha_pattern").size() != all->size()) {
    throw UnsupportedError("alpha_pattern of experts is not in this version");
  }
  ModulePattern pattern("alpha_pattern", all);
  for (const auto& [name, alpha] : pattern.entries()) {
    if (!std::isfinite(alpha)) throw InputError(cat("alpha_pattern of ", name, " is not finite"));
  }
  return pattern;
}

/// Refuses options that change what the adapter adds to the base, or the base itself.
void refuse_variants(const Json& json) {
  for (const char* key : {"layer_replication", "lora_bias", "alora_invocation_tokens", "use_qalora",
                          "use_bdlora", "arrow_config", "trainable_token_indices"}) {
    if (!is_nothing(json.find(key))) throw UnsupportedError(cat(key, " is not in this version"));
  }
  const Json* init = json.find("init_lora_weights");
  if (init == nullptr || !init->is_string()) return;
  for (const char* kind : {"pissa", "olora", "corda", "lora_ga", "loftq"}) {
    if (!to_lower(init->as_string()).starts_with(kind)) continue;
    throw UnsupportedError(
        cat("init_lora_weights '", init->as_string(),
            "' is not in this version: it changes the base's weights too; PEFT's "
            "save_pretrained can convert such an adapter to a plain one"));
  }
}

/// Refuses adapters of one of the two products of stacked experts, which are made together here.
void refuse_half_of_experts(const Json& json) {
  const Json* targets = json.find("target_parameters");
  if (is_nothing(targets) || !targets->is_array()) return;
  std::array<std::string, 2> names;  // of the first product's and of the second one's
  for (const Json& target : targets->as_array()) {
    if (!target.is_string()) continue;
    const std::string& name = target.as_string();
    const size_t dot = name.rfind('.');
    if (dot == std::string::npos || !name.substr(0, dot).ends_with("experts")) continue;
    names[name.ends_with(".down_proj") ? 1 : 0] = name;
  }
  if (names[0].empty() == names[1].empty()) return;
  throw UnsupportedError(cat("target_parameters names ", names[0], names[1],
                             " and not the other product of these experts; adapters of one of the "
                             "two are not in this version"));
}

/// The modules that an adapter has whole. PEFT names heads of several families for any classifier,
/// which are left out: a model knows its own.
std::vector<std::string> saved_modules_of(const Json& json) {
  const Json* saved = json.find("modules_to_save");
  if (is_nothing(saved)) return {};
  if (!saved->is_array()) throw InputError("modules_to_save is no list of names");
  const std::vector<std::string> heads = models::class_head_modules();
  std::vector<std::string> modules;
  for (const Json& name : saved->as_array()) {
    if (!name.is_string()) throw InputError("modules_to_save is no list of names");
    const bool is_head = std::ranges::find(heads, name.as_string()) != heads.end();
    if (!is_head) modules.push_back(name.as_string());
  }
  return modules;
}

AdapterConfig parse_adapter_config(const Json& json) {
  if (!json.is_object()) throw InputError("an object is expected");
  const std::string kind = json.get("peft_type", "LORA");
  if (kind != "LORA") throw InputError(cat("peft_type ", kind, " is not LORA"));
  if (json.get("bias", "none") != std::string("none")) {
    throw UnsupportedError("trained biases (bias) are not in this version");
  }
  refuse_variants(json);
  refuse_half_of_experts(json);
  AdapterConfig config;
  config.rank = json.at("r").as_int();
  config.alpha = json.at("lora_alpha").as_double();
  config.use_rslora = json.get("use_rslora", false);
  config.use_dora = json.get("use_dora", false);
  config.base = json.get("base_model_name_or_path", "");
  config.rank_pattern = rank_pattern_of(json);
  config.alpha_pattern = alpha_pattern_of(json);
  config.modules_to_save = saved_modules_of(json);
  config.ensure_weight_tying = json.get("ensure_weight_tying", false);
  if (config.rank < 1) throw InputError(cat("r is ", config.rank, ", at least 1 is right"));
  if (!std::isfinite(config.alpha)) throw InputError("lora_alpha is not a finite number");
  return config;
}

/// The file of an adapter's tensors, which old versions of PEFT wrote as a pickle.
std::string weights_path(const std::string& folder) {
  const std::string path = path_join(folder, kAdapterWeightsName);
  const std::string pickle = path_join(folder, "adapter_model.bin");
  if (path_exists(path) || !path_exists(pickle)) return path;
  throw InputError(cat(pickle,
                       ": a Python pickle, which is never loaded because it can run code; save the "
                       "adapter as safetensors (PEFT's save_pretrained does)"));
}

}  // namespace

double AdapterConfig::scale(int64_t own_rank, double own_alpha) const {
  const auto r = static_cast<double>(own_rank);
  return own_alpha / (use_rslora ? std::sqrt(r) : r);
}

int64_t AdapterConfig::rank_of(const std::string& module) const {
  const auto own = rank_pattern.find(module);
  return own ? static_cast<int64_t>(*own) : rank;
}

double AdapterConfig::scale_of(const std::string& module) const {
  return scale(rank_of(module), alpha_pattern.find(module).value_or(alpha));
}

AdapterConfig read_adapter_config(const std::string& folder) {
  const std::string path = path_join(folder, kAdapterConfigName);
  if (!path_exists(path)) {
    std::string hint;
    for (const char* below : {"model", "LATEST/model"}) {
      const std::string other = path_join(folder, below);
      if (hint.empty() && path_exists(path_join(other, kAdapterConfigName))) {
        hint = cat("; ", other, " is one");
      }
    }
    throw InputError(cat(folder, " is no adapter: it has no ", kAdapterConfigName, hint));
  }
  const Json json = Json::parse_file(path);
  return naming_file(path, [&] { return parse_adapter_config(json); });
}

std::string expert_pattern_fault(const AdapterConfig& there, const tensor::KeyMap& keys,
                                 const Json& hf_config) {
  for (const tensor::ParameterPart& part : keys) {
    if (!is_expert_adapter(part) || !part.name.ends_with(kLoraA)) continue;
    std::string module = without_suffix(part.name, kLoraA);
    if (module.ends_with(kInnerExperts)) module = without_suffix(module, kInnerExperts);
    module = models::name_in_modules(hf_config, module);
    for (const char* parameter : {".gate_up_proj", ".up_proj", ".down_proj"}) {
      if (!there.alpha_pattern.find(module + parameter)) continue;
      return cat("its alpha_pattern names experts (", module, parameter,
                 "), whose own alpha is not in this version");
    }
  }
  return "";
}

AdapterFile::AdapterFile(const std::string& folder, const Json& hf_config)
    : file_(weights_path(folder)),
      newest_(layout_of_peft(hf_config)),
      stated_(stated_layout(folder, hf_config)) {
  for (const checkpoint::TensorEntry& entry : file_.tensors()) {
    if (!tensor::is_plain_float(entry.dtype)) {
      throw InputError(cat(file_.path(), ": '", entry.name, "' is of dtype ",
                           tensor::safetensors_dtype_name(entry.dtype),
                           "; an adapter is of float32, bfloat16 or the like"));
    }
    const auto [place, is_new] =
        entries_.emplace(models::name_in_files(hf_config, name_in_modules(entry)), &entry);
    if (!is_new && !are_twins(entry, *place->second, hf_config)) {
      throw InputError(cat(file_.path(), ": '", entry.name, "' and '", place->second->name,
                           "' are adapters of the same layer"));
    }
  }
  set_base_copies_apart();
  if (read_adapter_config(folder).ensure_weight_tying) settle_tied_head(hf_config);
}

std::string AdapterFile::name_in_modules(const checkpoint::TensorEntry& entry) {
  return entry.name.starts_with(kPeftPrefix) ? entry.name.substr(kPeftPrefix.size()) : entry.name;
}

bool AdapterFile::are_twins(const checkpoint::TensorEntry& a, const checkpoint::TensorEntry& b,
                            const Json& hf_config) const {
  const auto is_twin_of = [&](const auto& twin, const auto& other) {
    const auto twins = models::twins_in_modules(hf_config, name_in_modules(other));
    return std::ranges::find(twins, name_in_modules(twin)) != twins.end();
  };
  return (is_twin_of(a, b) || is_twin_of(b, a)) && a.dtype == b.dtype && a.shape == b.shape &&
         at::equal(file_.read(a.name), file_.read(b.name));
}

void AdapterFile::settle_tied_head(const Json& hf_config) {
  const auto named = [&](bool (*is_it)(std::string_view)) {
    return std::ranges::find_if(entries_, [&](const auto& entry) { return is_it(entry.first); });
  };
  const auto head = named(checkpoint::is_head_name);
  const auto embedding = named(checkpoint::is_embedding_name);
  if (embedding == entries_.end() || !has_tied_head(hf_config)) return;
  if (head == entries_.end()) {
    // PEFT ties modules of this name alone, whatever ensure_weight_tying says of others.
    ties_head_ = embedding->first.ends_with("embed_tokens.weight");
    return;
  }
  const bool are_one =
      head->second->shape == embedding->second->shape &&
      at::equal(file_.read(head->second->name), file_.read(embedding->second->name));
  if (!are_one) {
    throw InputError(cat(file_.path(), ": '", head->second->name, "' and '",
                         embedding->second->name,
                         "' differ, and ensure_weight_tying says that they are one"));
  }
  entries_.erase(head);
  ties_head_ = true;
}

void AdapterFile::set_base_copies_apart() {
  constexpr std::string_view kCopy = ".base_layer.weight";
  for (auto entry = entries_.begin(); entry != entries_.end();) {
    const std::string& name = entry->first;
    const std::string module =
        name.ends_with(kCopy) ? name.substr(0, name.size() - kCopy.size()) : "";
    const bool is_copy = !module.empty() && entries_.contains(cat(module, kLoraA));
    if (is_copy) base_copies_.emplace(module, entry->second);
    entry = is_copy ? entries_.erase(entry) : std::next(entry);
  }
}

const checkpoint::TensorEntry* AdapterFile::find(const std::string& name) const {
  const auto found = entries_.find(name);
  return found == entries_.end() ? nullptr : found->second;
}

ExpertLayout AdapterFile::expert_layout(const tensor::KeyMap& keys) const {
  if (std::none_of(keys.begin(), keys.end(), is_expert_adapter)) return ExpertLayout::kPeft19;
  const auto fits = [&](ExpertLayout layout) {
    return std::all_of(keys.begin(), keys.end(), [&](const tensor::ParameterPart& part) {
      if (!is_expert_adapter(part)) return true;
      const checkpoint::TensorEntry* entry = find(name_in_file(part, layout));
      return entry == nullptr || entry->shape == shape_in_file(part, layout);
    });
  };
  const bool is_new = fits(ExpertLayout::kPeft19);
  const bool is_old = fits(ExpertLayout::kPeft18);
  if (is_new == is_old) {
    if (!is_new || stated_) return stated_.value_or(newest_);
    throw InputError(cat(file_.path(),
                         ": experts' adapters of these sizes may be laid out as by "
                         "PEFT 0.18 or 0.19.1; say which by paramwrapper_layout (peft-0.18 or ",
                         kLayoutStamp, ") in ", kOwnConfigName));
  }
  const ExpertLayout found = is_new ? ExpertLayout::kPeft19 : ExpertLayout::kPeft18;
  if (stated_ && *stated_ != found) {
    throw InputError(cat(file_.path(), ": the shapes of experts' adapters are PEFT ",
                         found == newest_ ? "0.19.1's" : "0.18's", ", the folder says otherwise"));
  }
  return found;
}

at::Tensor AdapterFile::read_factor(const tensor::ParameterPart& part, ExpertLayout layout) const {
  return from_file(file_.read(find(name_in_file(part, layout))->name), part, layout);
}

PlaceInFile::PlaceInFile(const tensor::ParameterPart& part, ExpertLayout layout)
    : name(part.name), shape(part.shape) {
  if (!is_expert_adapter(part)) return;
  name = name_in_file(part, layout);
  shape = shape_in_file(part, layout);
}

std::string PlaceInFile::fault(const AdapterFile& file) const {
  const checkpoint::TensorEntry* entry = file.find(name);
  if (entry == nullptr) return cat("there is no ", name);
  return entry->shape == shape ? "" : misshapen_text(entry->shape);
}

std::string PlaceInFile::misshapen_text(const std::vector<int64_t>& found) const {
  return cat(name, " is [", join(found), "] in the file and [", join(shape), "] in the model");
}

}  // namespace automodel::peft
