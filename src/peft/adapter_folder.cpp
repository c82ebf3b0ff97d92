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
#include "core/text.h"
#include "models/catalog.h"
#include "moe/experts.h"
#include "peft/apply_lora.h"
#include "peft/expert_layout.h"
#include "peft/tensor_names.h"

namespace automodel::peft {

namespace {

constexpr std::string_view kPrefix = "base_model.model.";
constexpr const char* kConfigName = "adapter_config.json";
constexpr const char* kWeightsName = "adapter_model.safetensors";
constexpr const char* kOwnConfigName = "automodel_peft_config.json";
constexpr const char* kLayoutStamp = "peft-0.19.1";
constexpr std::string_view kExperts = ".experts";
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

/// `parameters`: of experts, which have `expert_rank`.
Json adapter_config_json(const AdapterExport& what, const std::vector<std::string>& modules,
                         const std::vector<std::string>& parameters, int64_t expert_rank) {
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
  if (!parameters.empty()) {
    Json targets = Json::array();
    Json ranks = Json::object();
    for (const std::string& name : parameters) {
      targets.push_back(name);
      ranks[name] = expert_rank;
    }
    json["target_parameters"] = std::move(targets);
    if (expert_rank != what.config.dim) json["rank_pattern"] = std::move(ranks);
  }
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
  json["paramwrapper_layout"] = kLayoutStamp;
  return json;
}

FileRecord write_text(const std::string& folder, const char* name, const Json& json) {
  const std::string path = path_join(folder, name);
  const std::string bytes = json.dump(2) + "\n";
  write_file_atomic(path, bytes);
  return {path, bytes.size(), checksum_of(bytes)};
}

/// The layout of experts that a folder says it has: upstream's stamp, or the version of PEFT.
std::optional<ExpertLayout> stated_layout(const std::string& folder) {
  const std::string own = path_join(folder, kOwnConfigName);
  if (path_exists(own)) {
    const std::string stamp = Json::parse_file(own).get("paramwrapper_layout", "");
    if (stamp == kLayoutStamp) return ExpertLayout::kPeft19;
    if (stamp == "peft-0.18") return ExpertLayout::kPeft18;
    if (!stamp.empty()) {
      throw InputError(cat(own, ": paramwrapper_layout '", stamp, "' is not known: ", kLayoutStamp,
                           " and peft-0.18 are"));
    }
  }
  const Json config = Json::parse_file(path_join(folder, kConfigName));
  const std::vector<std::string> version = split(config.get("peft_version", ""), '.');
  if (version.size() < 2) return std::nullopt;
  const int64_t major = parse_int(version[0]).value_or(0);
  const int64_t minor = parse_int(version[1]).value_or(0);
  if (major == 0 && minor == 19) return std::nullopt;  // 0.19.0 has the old one, 0.19.1 the new
  return major > 0 || minor > 19 ? ExpertLayout::kPeft19 : ExpertLayout::kPeft18;
}

/// adapter_model.safetensors, names without PEFT's prefix.
class AdapterFile final {
 public:
  explicit AdapterFile(const std::string& folder)
      : file_(path_join(folder, kWeightsName)), stated_(stated_layout(folder)) {
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

  /// The layout of the experts' adapters, by their shapes and by what the folder says. InputError
  /// where both contradict each other or neither settles it.
  ExpertLayout expert_layout(const tensor::KeyMap& keys) const {
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
      if (!is_new || stated_) return stated_.value_or(ExpertLayout::kPeft19);
      throw InputError(cat(file_.path(),
                           ": experts' adapters of these sizes may be laid out as by "
                           "PEFT 0.18 or 0.19.1; say which by paramwrapper_layout (peft-0.18 or ",
                           kLayoutStamp, ") in ", kOwnConfigName));
    }
    const ExpertLayout found = is_new ? ExpertLayout::kPeft19 : ExpertLayout::kPeft18;
    if (stated_ && *stated_ != found) {
      throw InputError(cat(file_.path(), ": the shapes of experts' adapters are PEFT ",
                           is_new ? "0.19.1's" : "0.18's", ", the folder says otherwise"));
    }
    return found;
  }

  /// The factor of a part of experts' adapters.
  at::Tensor read_factor(const tensor::ParameterPart& part, ExpertLayout layout) const {
    return from_file(file_.read(find(name_in_file(part, layout))->name), part, layout);
  }

 private:
  checkpoint::SafetensorsFile file_;
  std::optional<ExpertLayout> stated_;
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

/// The name and the shape of a part's tensor in the file.
std::pair<std::string, std::vector<int64_t>> place_in_file(const tensor::ParameterPart& part,
                                                           ExpertLayout layout) {
  if (!is_expert_adapter(part)) return {part.name, part.shape};
  return {name_in_file(part, layout), shape_in_file(part, layout)};
}

std::string misshapen_text(const std::string& name, const std::vector<int64_t>& found,
                           const std::vector<int64_t>& wanted) {
  return cat(name, " is [", join(found), "] in the file and [", join(wanted), "] in the model");
}

/// What is wrong with one part; "" for nothing.
std::string part_fault(const AdapterFile& file, const tensor::ParameterPart& part,
                       ExpertLayout layout) {
  const auto [name, shape] = place_in_file(part, layout);
  const checkpoint::TensorEntry* entry = file.find(name);
  if (entry == nullptr) return cat("there is no ", name);
  return entry->shape == shape ? "" : misshapen_text(name, entry->shape, shape);
}

std::string tensors_fault(const AdapterFile& file, const tensor::KeyMap& keys) {
  std::vector<std::string> missing, misshapen, unexpected;
  std::set<std::string> known;
  const ExpertLayout layout = file.expert_layout(keys);
  for (const tensor::ParameterPart& part : keys) {
    const auto [name, shape] = place_in_file(part, layout);
    known.insert(name);
    const checkpoint::TensorEntry* entry = file.find(name);
    if (entry == nullptr) {
      missing.push_back(name);
    } else if (entry->shape != shape) {
      misshapen.push_back(misshapen_text(name, entry->shape, shape));
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

namespace {

/// Ranks of their own are for experts only, which target_parameters names.
void check_rank_pattern(const Json& json, const std::string& path) {
  const Json* ranks = json.find("rank_pattern");
  if (is_nothing(ranks)) return;
  const Json* targets = json.find("target_parameters");
  for (const auto& [name, rank] : ranks->as_object()) {
    bool is_expert = false;
    if (!is_nothing(targets)) {
      for (const Json& target : targets->as_array()) is_expert |= target.as_string() == name;
    }
    if (!is_expert) {
      throw UnsupportedError(cat(path, ": rank_pattern of ", name, " is not in this version"));
    }
  }
}

}  // namespace

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
  check_rank_pattern(json, path);
  for (const char* key :
       {"alpha_pattern", "modules_to_save", "fan_in_fan_out", "layer_replication", "lora_bias"}) {
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
  tensor::KeyMap experts;
  std::vector<std::string> modules;
  for (checkpoint::TensorInfo& tensor : source.tensors()) {
    if (!is_adapter_tensor(tensor.name)) continue;
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
  std::sort(modules.begin(), modules.end());
  std::vector<checkpoint::TensorInfo> written = tensors;
  for (checkpoint::TensorInfo& tensor : written) {
    const tensor::ParameterPart part{tensor.name, "", 0, tensor.shape};
    if (is_expert_adapter(part)) tensor.shape = shape_in_file(part, ExpertLayout::kPeft19);
    tensor.name = cat(kPrefix, tensor.name);
  }
  checkpoint::SafetensorsWriter writer(path_join(folder, kWeightsName), written,
                                       {{"format", "pt"}});
  for (const checkpoint::TensorInfo& tensor : tensors) {
    const at::Tensor values = at::empty({tensor.numel()}, at::TensorOptions().dtype(tensor.dtype));
    source.read(tensor.name, 0, values);
    const bool is_expert = is_expert_adapter({tensor.name, "", 0, tensor.shape});
    writer.write(is_expert ? to_file(values.view(tensor.shape), tensor.name.ends_with(kLoraA))
                                 .contiguous()
                                 .view({-1})
                           : values);
  }
  const int64_t expert_rank =
      experts.empty() ? 0 : experts[0].shape[1];  // lora_A is the first by name
  std::vector<FileRecord> records = {writer.finish()};
  records.push_back(
      write_text(folder, kConfigName,
                 adapter_config_json(what, modules, target_parameters(experts), expert_rank)));
  records.push_back(write_text(folder, kOwnConfigName, peft_config_json(what.config)));
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
  const tensor::KeyMap keys = adapter_keys(model);
  const ExpertLayout layout = file.expert_layout(keys);
  std::map<std::string, const tensor::ParameterPart*> experts;
  for (const tensor::ParameterPart& part : keys) {
    if (is_expert_adapter(part)) experts[part.name] = &part;
  }
  for (const tensor::FlatShard& shard : shards) {
    for (const tensor::FlatSegment& segment : shard.segments) {
      if (!is_adapter_tensor(segment.fqn) || segment.spec.numel() == 0) continue;
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

namespace {

/// The tensors of a base model's folder, with what an adapter makes of some of them.
class MergedSource final : public checkpoint::TensorSource {
 public:
  MergedSource(const checkpoint::HfFolder& base, const std::string& adapter)
      : base_(base), config_(read_adapter_config(adapter)), file_(adapter) {
    std::vector<std::string> faults;
    std::vector<std::string> experts;
    for (const auto& [name, entry] : file_.entries()) {
      if (!name.ends_with(kLoraA)) continue;
      const std::string module = without_suffix(name, kLoraA);
      if (module.ends_with(kExperts)) {
        experts.push_back(module);
      } else if (!module.ends_with(kInnerExperts)) {
        add(module, faults);
      }
    }
    if (!experts.empty()) add_experts(experts, faults);
    check_rest(faults);
    if (!faults.empty()) {
      throw InputError(cat("the adapter in ", adapter, " is not one of ", base.path(), ": ",
                           first_names(faults)));
    }
    if (num_changed() == 0) throw InputError(cat(adapter, " holds no adapters"));
  }

  /// A head that was the embedding has become a tensor of its own.
  bool is_head_untied() const { return !head_from_.empty(); }
  int64_t num_changed() const {
    return static_cast<int64_t>(updates_.size() + expert_updates_.size());
  }

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
    const auto expert = expert_updates_.find(name);
    if (update == updates_.end() && expert == expert_updates_.end()) {
      base_.read_elements(place, first, out);
      return;
    }
    const int64_t width = place.entry->shape.back();
    const int64_t begin = first / width;
    const int64_t end = (first + out.numel() + width - 1) / width;
    const at::Tensor flat =
        at::empty({(end - begin) * width}, at::TensorOptions().dtype(place.entry->dtype));
    base_.read_elements(place, begin * width, flat);
    const at::Tensor plain = flat.view({end - begin, width}).to(at::kFloat, false, true);
    const at::Tensor rows = update != updates_.end() ? merged(update->second, plain, begin)
                                                     : merged(expert->second, plain, begin);
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

  /// Of a tensor that holds rows of all experts' matrices.
  struct ExpertUpdate {
    at::Tensor a, b;     // float32 [E, r, in], [E, out, r]
    bool is_transposed;  // matrices are [in, out]
    int64_t first_row;   // of the tensor among the rows of all matrices
    double scale;
  };

  static at::Tensor merged(const ExpertUpdate& update, at::Tensor rows, int64_t begin) {
    const int64_t height = update.is_transposed ? update.a.size(2) : update.b.size(1);
    for (int64_t done = 0; done < rows.size(0);) {
      const int64_t row = update.first_row + begin + done;
      const int64_t expert = row / height;
      const int64_t in_matrix = row % height;
      const int64_t count = std::min(height - in_matrix, rows.size(0) - done);
      at::Tensor left = update.b.select(0, expert);  // [out, r]
      at::Tensor right = update.a.select(0, expert);
      if (update.is_transposed) std::tie(left, right) = std::pair(right.t(), left.t());
      rows.narrow(0, done, count).addmm_(left.narrow(0, in_matrix, count), right, 1, update.scale);
      done += count;
    }
    return rows;
  }

  /// Adapters of stacked experts: which tensors of the base their matrices are is the model's to
  /// say.
  void add_experts(const std::vector<std::string>& modules, std::vector<std::string>& faults) {
    const auto model = models::build_causal_lm(base_.config(), at::kFloat);
    const tensor::KeyMap base_parts = model->key_map();
    const int64_t num_experts = models::num_routed_experts(base_.config()).value_or(0);
    PeftConfig config;
    config.target_modules = modules;
    config.dim = num_experts == 0 ? 1 : file_.find(cat(modules[0], kLoraA))->shape[0] / num_experts;
    config.alpha = config_.alpha;
    for (const PeftFinding& finding : choose_modules(*model, config).findings) {
      if (finding.kind != PeftFinding::Kind::kWarning) faults.push_back(finding.text);
    }
    if (!faults.empty()) return;
    apply_lora(*model, config, at::kFloat);
    const tensor::KeyMap keys = adapter_keys(*model);
    const ExpertLayout layout = file_.expert_layout(keys);
    for (const tensor::ParameterPart& part : keys) {
      const std::string fault = part_fault(file_, part, layout);
      if (!fault.empty()) faults.push_back(fault);
    }
    if (!faults.empty()) return;
    for (const tensor::ParameterPart& a : keys) {
      if (!a.name.ends_with(kLoraA)) continue;
      const std::string module = without_suffix(a.name, kLoraA);
      const auto b = std::find_if(keys.begin(), keys.end(), [&](const auto& part) {
        return part.name == cat(module, kLoraB);
      });
      const std::string layer = a.parameter.substr(0, a.parameter.rfind('.'));
      const auto experts =
          std::dynamic_pointer_cast<moe::Experts>(model->named_modules("", false)[layer]);
      add_expert_updates(base_parts,
                         {file_.read_factor(a, layout).to(at::kFloat),
                          file_.read_factor(*b, layout).to(at::kFloat), a.parameter,
                          experts->config().are_experts_transposed,
                          config.alpha / static_cast<double>(config.dim)},
                         faults);
    }
  }

  struct ExpertFactors {
    at::Tensor a, b;
    std::string parameter;  ///< that holds A in the model
    bool is_transposed;     ///< the matrices are [in, out]
    double scale;
  };

  /// The tensors of the base that hold the matrices under one adapter.
  void add_expert_updates(const tensor::KeyMap& base_parts, const ExpertFactors& factors,
                          std::vector<std::string>& faults) {
    const std::string module = factors.parameter.substr(0, factors.parameter.rfind('.'));
    const bool is_down = factors.parameter.ends_with("lora_down_A");
    for (const tensor::ParameterPart& part : base_parts) {
      const bool is_under = is_down ? part.parameter == module + ".down_proj"
                                    : part.parameter == module + ".gate_up_proj" ||
                                          part.parameter == module + ".up_proj";
      if (!is_under) continue;
      const auto name = checkpoint::find_name(base_, part.name);
      if (!name || base_.find(*name)->entry->shape != part.shape) {
        faults.push_back(cat("the base has no ", part.name, " [", join(part.shape), "]"));
        continue;
      }
      // A matrix alone is a piece of the stacked ones, whose rows are one expert's after another's.
      const bool is_stacked = part.shape.size() == 3;
      expert_updates_[*name] = {factors.a, factors.b, factors.is_transposed,
                                is_stacked ? 0 : part.row_begin, factors.scale};
    }
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
  std::map<std::string, ExpertUpdate, std::less<>> expert_updates_;
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
