#include "peft/adapter_folder.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <set>

#include "checkpoint/hf_export.h"
#include "checkpoint/hf_folder.h"
#include "checkpoint/safetensors.h"
#include "core/error.h"
#include "core/json.h"
#include "peft/apply_lora.h"
#include "peft/tensor_names.h"

namespace automodel::peft {

namespace {

constexpr std::string_view kPrefix = "base_model.model.";
constexpr const char* kConfigName = "adapter_config.json";
constexpr const char* kWeightsName = "adapter_model.safetensors";
constexpr const char* kHead = "lm_head.weight";
constexpr size_t kNamesShown = 5;

std::string first_names(const std::vector<std::string>& names) {
  const auto count = static_cast<std::ptrdiff_t>(std::min(names.size(), kNamesShown));
  std::string text = join(std::vector<std::string>(names.begin(), names.begin() + count), ", ");
  if (names.size() > kNamesShown) text += cat(" and ", names.size() - kNamesShown, " more");
  return text;
}

bool is_nothing(const Json* value) {
  return value == nullptr || value->is_null() || (value->is_bool() && !value->as_bool()) ||
         ((value->is_object() || value->is_array()) && value->size() == 0);
}

Json number(double value) {
  const bool is_whole = std::floor(value) == value && std::abs(value) < 1e15;
  return is_whole ? Json(static_cast<int64_t>(value)) : Json(value);
}

/// "CAUSAL_LM" of "LlamaForCausalLM", as upstream tells it by the class's name.
std::string task_type(const std::string& architecture) {
  return architecture.ends_with("ForSequenceClassification") ? "SEQ_CLS" : "CAUSAL_LM";
}

Json adapter_config_json(const AdapterExport& what, const std::vector<std::string>& modules) {
  Json json = Json::object();
  json["base_model_name_or_path"] = what.base.empty() ? Json() : Json(what.base);
  json["bias"] = "none";
  json["lora_alpha"] = number(what.config.alpha);
  json["lora_dropout"] = what.config.dropout;
  json["peft_type"] = "LORA";
  json["r"] = what.config.dim;
  Json names = Json::array();
  for (const std::string& name : modules) names.push_back(name);
  json["target_modules"] = std::move(names);
  json["task_type"] = task_type(what.architecture);
  json["use_dora"] = Json(what.config.use_dora);
  return json;
}

/// Every other key of the recipe's section, as upstream keeps them beside an adapter.
Json peft_config_json(const PeftConfig& config) {
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
  json["expert_weight_format"] = config.expert_weight_format;
  return json;
}

FileRecord write_text(const std::string& folder, const char* name, const Json& json) {
  const std::string path = path_join(folder, name);
  const std::string bytes = json.dump(2) + "\n";
  write_file_atomic(path, bytes);
  return {path, bytes.size(), checksum_of(bytes)};
}

/// adapter_model.safetensors, names without PEFT's prefix.
class AdapterFile final {
 public:
  explicit AdapterFile(const std::string& folder) : file_(path_join(folder, kWeightsName)) {
    for (const checkpoint::TensorEntry& entry : file_.tensors()) {
      std::string_view name = entry.name;
      if (name.starts_with(kPrefix)) name.remove_prefix(kPrefix.size());
      entries_.emplace(name, &entry);
    }
  }

  const checkpoint::SafetensorsFile& file() const { return file_; }
  const std::map<std::string, const checkpoint::TensorEntry*>& entries() const { return entries_; }
  const checkpoint::TensorEntry* find(const std::string& name) const {
    const auto found = entries_.find(name);
    return found == entries_.end() ? nullptr : found->second;
  }

 private:
  checkpoint::SafetensorsFile file_;
  std::map<std::string, const checkpoint::TensorEntry*> entries_;
};

std::string scale_fault(const AdapterConfig& there, const PeftConfig& here) {
  const double scale = here.alpha / static_cast<double>(here.dim);
  if (there.rank != here.dim) {
    return cat("its rank (r) is ", there.rank, ", the recipe's (peft.dim) ", here.dim);
  }
  if (there.use_dora != here.use_dora) {
    return cat("it is ", there.use_dora ? "a DoRA" : "no DoRA", " adapter, peft.use_dora is ",
               here.use_dora ? "true" : "false");
  }
  if (std::abs(there.scale() - scale) > 1e-9 * scale) {
    return cat("it is scaled by ", there.scale(), ", the recipe's by alpha / dim = ", scale);
  }
  return "";
}

std::string tensors_fault(const AdapterFile& file, const tensor::KeyMap& keys) {
  std::vector<std::string> missing, misshapen, unexpected;
  std::set<std::string> known;
  for (const tensor::ParameterPart& part : keys) {
    known.insert(part.name);
    const checkpoint::TensorEntry* entry = file.find(part.name);
    if (entry == nullptr) {
      missing.push_back(part.name);
    } else if (entry->shape != part.shape) {
      misshapen.push_back(cat(part.name, " is [", join(entry->shape), "] in the file and [",
                              join(part.shape), "] in the model"));
    }
  }
  for (const auto& [name, entry] : file.entries()) {
    if (!known.contains(name)) unexpected.push_back(name);
  }
  std::vector<std::string> texts;
  const auto add = [&](const char* what, const std::vector<std::string>& names) {
    if (!names.empty()) texts.push_back(cat(what, " (", names.size(), "): ", first_names(names)));
  };
  add("missing", missing);
  add("not among the model's adapters", unexpected);
  add("of another shape", misshapen);
  return join(texts, "; ");
}

}  // namespace

double AdapterConfig::scale() const {
  const auto r = static_cast<double>(rank);
  return alpha / (use_rslora ? std::sqrt(r) : r);
}

AdapterConfig read_adapter_config(const std::string& folder) {
  const std::string path = path_join(folder, kConfigName);
  if (!path_exists(path)) {
    throw InputError(cat(folder, " is no adapter: it has no ", kConfigName));
  }
  const Json json = Json::parse_file(path);
  if (!json.is_object()) throw InputError(cat(path, ": an object is expected"));
  const std::string kind = json.get("peft_type", "LORA");
  if (kind != "LORA") throw InputError(cat(path, ": peft_type ", kind, " is not LORA"));
  if (json.get("bias", "none") != std::string("none")) {
    throw UnsupportedError(cat(path, ": trained biases (bias) are not in this version"));
  }
  for (const char* key : {"rank_pattern", "alpha_pattern", "modules_to_save", "fan_in_fan_out",
                          "target_parameters", "layer_replication", "lora_bias"}) {
    if (!is_nothing(json.find(key))) {
      throw UnsupportedError(cat(path, ": ", key, " is not in this version"));
    }
  }
  AdapterConfig config;
  config.rank = json.at("r").as_int();
  config.alpha = json.at("lora_alpha").as_double();
  config.use_rslora = json.get("use_rslora", false);
  config.use_dora = json.get("use_dora", false);
  config.base = json.get("base_model_name_or_path", "");
  if (config.rank < 1) throw InputError(cat(path, ": r is ", config.rank, ", at least 1 is right"));
  return config;
}

std::vector<FileRecord> save_adapter(const std::string& folder,
                                     const checkpoint::TensorSource& source,
                                     const AdapterExport& what) {
  std::vector<checkpoint::TensorInfo> tensors;
  std::vector<std::string> modules;
  for (checkpoint::TensorInfo& tensor : source.tensors()) {
    if (!is_adapter_tensor(tensor.name)) continue;
    if (tensor.name.ends_with(kLoraA)) modules.push_back(without_suffix(tensor.name, kLoraA));
    tensors.push_back(std::move(tensor));
  }
  const auto by_name = [](const auto& a, const auto& b) { return a.name < b.name; };
  std::sort(tensors.begin(), tensors.end(), by_name);
  std::sort(modules.begin(), modules.end());
  std::vector<checkpoint::TensorInfo> renamed = tensors;
  for (checkpoint::TensorInfo& tensor : renamed) tensor.name = cat(kPrefix, tensor.name);
  checkpoint::SafetensorsWriter writer(path_join(folder, kWeightsName), renamed,
                                       {{"format", "pt"}});
  for (const checkpoint::TensorInfo& tensor : tensors) {
    const at::Tensor values = at::empty({tensor.numel()}, at::TensorOptions().dtype(tensor.dtype));
    source.read(tensor.name, 0, values);
    writer.write(values);
  }
  std::vector<FileRecord> records = {writer.finish()};
  records.push_back(write_text(folder, kConfigName, adapter_config_json(what, modules)));
  records.push_back(
      write_text(folder, "automodel_peft_config.json", peft_config_json(what.config)));
  if (!what.tokenizer_folder.empty()) {
    for (FileRecord& record : checkpoint::copy_tokenizer_files(what.tokenizer_folder, folder)) {
      records.push_back(std::move(record));
    }
  }
  return records;
}

std::string find_adapter_fault(const std::string& folder, const PeftConfig& config,
                               const models::CausalLM& model) {
  const std::string scaled = scale_fault(read_adapter_config(folder), config);
  const std::string fault =
      scaled.empty() ? tensors_fault(AdapterFile(folder), adapter_keys(model)) : scaled;
  return fault.empty() ? "" : cat("the adapter in ", folder, " does not fit: ", fault);
}

void load_adapter(const std::string& folder, const PeftConfig& config,
                  const models::CausalLM& model, std::span<const tensor::FlatShard> shards) {
  const std::string fault = find_adapter_fault(folder, config, model);
  if (!fault.empty()) throw InputError(fault);
  const AdapterFile file(folder);
  for (const tensor::FlatShard& shard : shards) {
    for (const tensor::FlatSegment& segment : shard.segments) {
      if (!is_adapter_tensor(segment.fqn) || segment.spec.numel() == 0) continue;
      file.file().read_shard(*file.find(segment.fqn), segment.spec, shard.view(segment));
    }
  }
}

namespace {

/// The tensors of a base model's folder, with what an adapter makes of some of them.
class MergedSource final : public checkpoint::TensorSource {
 public:
  MergedSource(const checkpoint::HfFolder& base, const std::string& adapter)
      : base_(base), config_(read_adapter_config(adapter)), file_(adapter) {
    std::vector<std::string> faults;
    for (const auto& [name, entry] : file_.entries()) {
      if (name.ends_with(kLoraA)) add(without_suffix(name, kLoraA), faults);
    }
    check_rest(faults);
    if (!faults.empty()) {
      throw InputError(cat("the adapter in ", adapter, " is not one of ", base.path(), ": ",
                           first_names(faults)));
    }
    if (updates_.empty()) throw InputError(cat(adapter, " holds no adapters"));
  }

  /// A head that was the embedding has become a tensor of its own.
  bool is_head_untied() const { return !head_from_.empty(); }
  int64_t num_changed() const { return static_cast<int64_t>(updates_.size()); }

  std::vector<checkpoint::TensorInfo> tensors() const override {
    std::vector<checkpoint::TensorInfo> infos;
    for (const std::string& name : base_.names()) {
      const checkpoint::TensorEntry& entry = *base_.find(name)->entry;
      infos.push_back({name, entry.dtype, entry.shape});
      if (name == head_from_) infos.push_back({kHead, entry.dtype, entry.shape});
    }
    return infos;
  }

  void read(std::string_view name, int64_t first, at::Tensor out) const override {
    const bool is_made = !head_from_.empty() && name == kHead;
    const checkpoint::HfFolder::Place place = *base_.find(is_made ? head_from_ : name);
    const auto update = updates_.find(name);
    if (update == updates_.end()) {
      base_.file(place.file).read_elements(*place.entry, first, out);
      return;
    }
    const int64_t width = place.entry->shape[1];
    const int64_t begin = first / width;
    const int64_t end = (first + out.numel() + width - 1) / width;
    const at::Tensor flat =
        at::empty({(end - begin) * width}, at::TensorOptions().dtype(at::kFloat));
    base_.file(place.file).read_elements(*place.entry, begin * width, flat);
    const at::Tensor rows = merged(update->second, flat.view({end - begin, width}), begin);
    out.copy_(rows.reshape({-1}).narrow(0, first - begin * width, out.numel()));
  }

 private:
  struct Update {
    at::Tensor a, b, magnitude;  // float32
  };

  at::Tensor merged(const Update& update, at::Tensor rows, int64_t begin) const {
    rows.addmm_(update.b.narrow(0, begin, rows.size(0)), update.a, 1, config_.scale());
    if (!update.magnitude.defined()) return rows;
    const at::Tensor lengths = update.magnitude.narrow(0, begin, rows.size(0));
    return rows * (lengths / rows.norm(2, 1)).unsqueeze(1);
  }

  void add(const std::string& module, std::vector<std::string>& faults) {
    auto name = checkpoint::find_name(base_, module + ".weight");
    if (!name && cat(module, ".weight") == kHead &&
        base_.config().get("tie_word_embeddings", true)) {
      name = checkpoint::find_name(base_, "model.embed_tokens.weight");
      if (name) head_from_ = *name;
    }
    const checkpoint::TensorEntry* a = file_.find(cat(module, kLoraA));
    const checkpoint::TensorEntry* b = file_.find(cat(module, kLoraB));
    const checkpoint::TensorEntry* magnitude = file_.find(cat(module, kLoraMagnitude));
    if (!name) {
      faults.push_back(cat("the base has no ", module, ".weight"));
      return;
    }
    if (b == nullptr) {
      faults.push_back(cat("there is no ", module, kLoraB));
      return;
    }
    const std::vector<int64_t>& base = base_.find(*name)->entry->shape;
    const bool fits = base.size() == 2 && a->shape == std::vector<int64_t>{config_.rank, base[1]} &&
                      b->shape == std::vector<int64_t>{base[0], config_.rank};
    if (!fits) {
      faults.push_back(cat(*name, " is [", join(base), "], lora_A [", join(a->shape),
                           "] and lora_B [", join(b->shape), "]"));
      return;
    }
    if ((magnitude != nullptr) != config_.use_dora ||
        (magnitude != nullptr && magnitude->shape != std::vector<int64_t>{base[0]})) {
      faults.push_back(cat(module, ": the magnitude of DoRA is missing or of another shape"));
      return;
    }
    Update update{read_float(*a), read_float(*b), {}};
    if (magnitude != nullptr) update.magnitude = read_float(*magnitude);
    updates_[*name == head_from_ ? kHead : *name] = std::move(update);
  }

  /// Tensors that belong to no lora_A.
  void check_rest(std::vector<std::string>& faults) const {
    for (const auto& [name, entry] : file_.entries()) {
      std::string module;
      for (const std::string_view suffix : {kLoraA, kLoraB, kLoraMagnitude}) {
        if (name.ends_with(suffix)) module = without_suffix(name, suffix);
      }
      if (module.empty()) {
        faults.push_back(cat(name, " is no tensor of a LoRA adapter"));
      } else if (file_.find(cat(module, kLoraA)) == nullptr) {
        faults.push_back(cat("there is no ", module, kLoraA));
      }
    }
  }

  at::Tensor read_float(const checkpoint::TensorEntry& entry) const {
    return file_.file().read(entry.name).to(at::kFloat);
  }

  const checkpoint::HfFolder& base_;
  AdapterConfig config_;
  AdapterFile file_;
  std::string head_from_;  // the embedding's name where the head is made of it
  std::map<std::string, Update, std::less<>> updates_;  // by the merged model's names
};

}  // namespace

int64_t merge_adapter(const std::string& base, const std::string& adapter, const std::string& out) {
  if (path_exists(out)) {
    throw InputError(cat(out, " is there already: name a folder that is not"));
  }
  const at::NoGradGuard no_grad;
  const auto folder = checkpoint::HfFolder::open(base);
  const MergedSource source(folder, adapter);
  Json config = folder.config();
  if (source.is_head_untied()) config["tie_word_embeddings"] = Json(false);
  checkpoint::save_hf_folder(out, source,
                             {.config = std::move(config),
                              .original_folder = base,
                              .kept_prefixes = {},
                              .tokenizer_folder = base});
  return source.num_changed();
}

}  // namespace automodel::peft
