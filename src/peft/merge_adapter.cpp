#include "peft/merge_adapter.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <map>
#include <set>

#include "checkpoint/hf_export.h"
#include "checkpoint/hf_folder.h"
#include "core/divide.h"
#include "core/error.h"
#include "core/file.h"
#include "core/text.h"
#include "models/catalog.h"
#include "models/class_names.h"
#include "moe/experts.h"
#include "peft/adapter_file.h"
#include "peft/adapter_keys.h"
#include "peft/apply_lora.h"
#include "peft/tensor_names.h"
#include "tensor/dtype.h"

namespace automodel::peft {

namespace {

constexpr std::string_view kExperts = ".experts";

/// The tensors of a base model's folder, some of them changed by an adapter.
class MergedSource final : public checkpoint::TensorSource {
 public:
  MergedSource(const checkpoint::HfFolder& base, const std::string& adapter)
      : base_(base),
        config_(read_adapter_config(adapter)),
        file_(adapter, base.config()),
        transposed_(transposed_weights(base.config())) {
    std::vector<std::string> faults;
    std::vector<std::string> experts;
    for (const auto& [name, entry] : file_.entries()) {
      if (!name.ends_with(kLoraA)) continue;
      const std::string module = without_suffix(name, kLoraA);
      if (module.ends_with(kExperts)) {
        check_expert_rows(module, *entry, faults);
        experts.push_back(module);
      } else if (module.ends_with(kInnerExperts)) {
        const std::string outer = without_suffix(module, kInnerExperts);
        if (file_.find(cat(outer, kLoraA)) == nullptr) {
          faults.push_back(cat("there is no ", outer, kLoraA, " beside ", name));
        }
      } else {
        add(module, faults);
      }
    }
    if (!experts.empty() && faults.empty()) add_experts(experts, faults);
    add_class_head(faults);
    add_saved_modules(faults);
    check_rest(faults);
    if (!faults.empty()) {
      throw InputError(cat("the adapter in ", adapter, " is not one of ", base.path(), ": ",
                           join_first(faults, 5)));
    }
    if (num_changed() == 0) throw InputError(cat(adapter, " holds no adapters"));
  }

  /// Whether a head that was the embedding has become a tensor of its own, or differs from it now.
  bool is_head_untied() const {
    return is_head_apart_ || std::ranges::any_of(updates_, [](const auto& update) {
             return checkpoint::is_head_name(update.first);
           });
  }
  /// Rows of the head with which an adapter of a classifier replaces the base's; 0: it has none.
  int64_t num_labels() const { return num_labels_; }
  int64_t num_changed() const {
    return std::ssize(updates_) + std::ssize(expert_updates_) + std::ssize(class_head_) +
           std::ssize(saved_);
  }

  std::vector<checkpoint::TensorInfo> tensors() const override {
    std::vector<checkpoint::TensorInfo> infos;
    for (const std::string& name : base_.names()) {
      const checkpoint::TensorEntry& entry = *base_.find(name)->entry;
      if (!class_head_.empty() && checkpoint::has_prefix(name, replaced_)) continue;
      infos.push_back({name, entry.dtype, entry.shape});
      if (name == head_from_) infos.push_back({head_, entry.dtype, entry.shape});
    }
    for (const auto& [name, entry] : class_head_) {
      infos.push_back({name, base_.storage_dtype(), entry->shape});
    }
    return infos;
  }

  void read(std::string_view name, int64_t first, at::Tensor out) const override {
    if (const auto head = class_head_.find(name); head != class_head_.end()) {
      out.copy_(read_float(*head->second).reshape({-1}).narrow(0, first, out.numel()));
      return;
    }
    if (const auto saved = saved_.find(name); saved != saved_.end()) {
      const int64_t numel = saved->second->numel();
      file_.file().read_shard(*saved->second, {{numel}, {0}, {numel}, first, first + out.numel()},
                              out);
      finite(out, saved->second->name);
      return;
    }
    const bool is_made = !head_from_.empty() && name == head_;
    const checkpoint::HfFolder::Place place = *base_.find(is_made ? head_from_ : name);
    const auto update = updates_.find(name);
    const auto expert = expert_updates_.find(name);
    if (update == updates_.end() && expert == expert_updates_.end()) {
      base_.read_elements(place, first, out);
      return;
    }
    const int64_t width = place.entry->shape.back();
    const int64_t begin = first / width;
    const int64_t end = ceil_div(first + out.numel(), width);
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
    double scale;
    at::Tensor column_factors = {};  // what DoRA multiplies the columns of a weight [in, out] by
  };

  /// An update of a weight [out, in] as that of its transpose, which the base holds.
  Update transposed(const Update& update, const checkpoint::HfFolder::Place& place) const {
    Update turned{update.b.t(), update.a.t(), {}, update.scale};
    if (!update.magnitude.defined()) return turned;
    const at::Tensor stored =
        at::empty({place.entry->numel()}, at::TensorOptions().dtype(place.entry->dtype));
    base_.read_elements(place, 0, stored);
    const at::Tensor rows = stored.view(place.entry->shape).to(at::kFloat, false, true);
    turned.column_factors = update.magnitude / merged(turned, rows, 0).norm(2, 0);
    return turned;
  }

  at::Tensor merged(const Update& update, at::Tensor rows, int64_t begin) const {
    rows.addmm_(update.b.narrow(0, begin, rows.size(0)), update.a, 1, update.scale);
    if (update.column_factors.defined()) return rows * update.column_factors;
    if (!update.magnitude.defined()) return rows;
    const at::Tensor lengths = update.magnitude.narrow(0, begin, rows.size(0));
    return rows * (lengths / rows.norm(2, 1)).unsqueeze(1);
  }

  /// The update of a tensor that holds rows of all experts' matrices.
  struct ExpertUpdate {
    at::Tensor a, b;     // float32 [E, r, in], [E, out, r]
    bool is_transposed;  // matrices are [in, out]
    int64_t first_row;   // of the tensor, among the rows of all matrices
    double scale;
    int64_t first_in_matrix = 0;  // of the tensor's rows, in each expert's matrix
    int64_t rows_of_expert = 0;   // the tensor's; 0: all of a matrix
  };

  static at::Tensor merged(const ExpertUpdate& update, at::Tensor rows, int64_t begin) {
    const int64_t whole = update.is_transposed ? update.a.size(2) : update.b.size(1);
    const int64_t height = update.rows_of_expert > 0 ? update.rows_of_expert : whole;
    for (int64_t done = 0; done < rows.size(0);) {
      const int64_t row = update.first_row + begin + done;
      const int64_t expert = row / height;
      const int64_t count = std::min(height - row % height, rows.size(0) - done);
      const int64_t in_matrix = update.first_in_matrix + row % height;
      at::Tensor left = update.b.select(0, expert);  // [out, r]
      at::Tensor right = update.a.select(0, expert);
      if (update.is_transposed) std::tie(left, right) = std::pair(right.t(), left.t());
      rows.narrow(0, done, count).addmm_(left.narrow(0, in_matrix, count), right, 1, update.scale);
      done += count;
    }
    return rows;
  }

  /// Experts' lora_A has the rows of all experts, one expert's behind another's.
  void check_expert_rows(const std::string& module, const checkpoint::TensorEntry& a,
                         std::vector<std::string>& faults) const {
    const int64_t num_experts = models::num_routed_experts(base_.config()).value_or(0);
    const bool fits =
        num_experts > 0 && a.shape.size() == 2 && a.shape[0] > 0 && a.shape[0] % num_experts == 0;
    if (fits) return;
    faults.push_back(cat(module, kLoraA, " is [", join(a.shape), "]: its rows are no multiple of ",
                         "the base's ", num_experts, " experts"));
  }

  /// Adds the adapters of stacked experts; the model says which tensors of the base hold their
  /// matrices.
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
    if (const std::string fault = expert_pattern_fault(config_, keys, base_.config());
        !fault.empty()) {
      faults.push_back(fault);
    }
    for (const tensor::ParameterPart& part : keys) {
      const std::string fault = PlaceInFile(part, layout).fault(file_);
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
      add_expert_updates(
          base_parts,
          {finite(file_.read_factor(a, layout).to(at::kFloat), a.name),
           finite(file_.read_factor(*b, layout).to(at::kFloat), b->name), a.parameter,
           experts->config().are_experts_transposed, config_.scale(config.dim, config_.alpha)},
          faults);
    }
  }

  struct ExpertFactors {
    at::Tensor a, b;
    std::string parameter;  ///< the model's parameter that holds A
    bool is_transposed;     ///< the matrices are [in, out]
    double scale;
  };

  /// Adds updates to the tensors of the base that hold the matrices under one adapter.
  void add_expert_updates(const tensor::KeyMap& base_parts, const ExpertFactors& factors,
                          std::vector<std::string>& faults) {
    const std::string module = factors.parameter.substr(0, factors.parameter.rfind('.'));
    const bool is_down = factors.parameter.ends_with("lora_down_A");
    for (const tensor::ParameterPart& part : base_parts) {
      const bool is_under = is_down ? part.parameter == module + ".down_proj"
                                    : part.parameter == module + ".gate_up_proj" ||
                                          part.parameter == module + ".gate_proj" ||
                                          part.parameter == module + ".up_proj";
      if (!is_under) continue;
      const auto name = checkpoint::find_name(base_, part.name);
      if (!name || base_.find(*name)->entry->shape != part.shape) {
        faults.push_back(cat("the base has no ", part.name, " [", join(part.shape), "]"));
        continue;
      }
      // A matrix alone is a piece of the stacked ones, whose rows are one expert's after another's.
      const std::string& stored = base_.find(*name)->entry->name;
      const bool is_stacked = part.shape.size() == 3 || stored != *name;
      expert_updates_[stored] = {factors.a, factors.b, factors.is_transposed,
                                 is_stacked ? 0 : part.row_begin, factors.scale};
      const int64_t width = factors.b.size(1);
      const bool may_be_half = !is_down && !factors.is_transposed && part.shape.size() == 3;
      if (!may_be_half || part.shape[1] == width) continue;
      ExpertUpdate& half = expert_updates_[stored];  // the gate's rows come before up's
      half.rows_of_expert = part.shape[1];
      half.first_in_matrix = part.parameter.ends_with(".up_proj") ? width - part.shape[1] : 0;
    }
  }

  /// The embedding's name where the base's head is the embedding.
  std::optional<std::string> tied_embedding() const {
    const Json& config = base_.config();
    if (models::find_family(config).is_known && models::check_config(config).empty()) {
      const auto model = models::build_causal_lm(config, at::kFloat);
      std::optional<std::string> name;
      for (const tensor::ParameterPart& part : model->key_map()) {
        if (checkpoint::is_head_name(part.name)) return std::nullopt;
        if (part.parameter == "model.embed_tokens.weight") name = part.name;
      }
      return name;
    }
    const auto embedding = std::ranges::find_if(base_.names(), checkpoint::is_embedding_name);
    const bool is_tied = config.get("tie_word_embeddings", true);
    return is_tied && embedding != base_.names().end() ? std::optional(*embedding) : std::nullopt;
  }

  void add(const std::string& module, std::vector<std::string>& faults) {
    auto name = checkpoint::find_name(base_, module + ".weight");
    const bool is_head = checkpoint::is_head_name(module + ".weight");
    if (const auto tied = is_head ? tied_embedding() : std::nullopt) {
      const auto embedding = checkpoint::find_name(base_, *tied);
      if (!embedding) {
        faults.push_back(head_alone_text(module + ".weight"));
        return;
      }
      if (!name) {
        name = head_from_ = *embedding;
        head_ = module + ".weight";
      }
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
    const checkpoint::TensorEntry& entry = *base_.find(*name)->entry;
    if (entry.name != *name) {
      faults.push_back(cat(*name, " is a part of ", entry.name, " in the base; an adapter of a ",
                           "single expert cannot be merged into that"));
      return;
    }
    if (!tensor::is_plain_float(entry.dtype)) {
      faults.push_back(cat(*name, " is of dtype ", tensor::safetensors_dtype_name(entry.dtype)));
      return;
    }
    const bool is_transposed = entry.shape.size() == 2 && transposed_.contains(module + ".weight");
    std::vector<int64_t> base = entry.shape;
    if (is_transposed) std::swap(base[0], base[1]);
    const std::string in_modules = models::name_in_modules(base_.config(), module);
    const int64_t rank = config_.rank_of(in_modules);
    const bool fits = base.size() == 2 && a->shape == std::vector<int64_t>{rank, base[1]} &&
                      b->shape == std::vector<int64_t>{base[0], rank};
    if (!fits) {
      faults.push_back(cat(*name, " is [", join(entry.shape), "], lora_A [", join(a->shape),
                           "] and lora_B [", join(b->shape), "]"));
      return;
    }
    if ((magnitude != nullptr) != config_.use_dora ||
        (magnitude != nullptr && magnitude->shape != std::vector<int64_t>{base[0]})) {
      faults.push_back(cat(module, ": the magnitude of DoRA is missing or of another shape"));
      return;
    }
    const auto copy = file_.base_copies().find(module);
    if (copy != file_.base_copies().end() && !is_base(*copy->second, *base_.find(*name))) {
      faults.push_back(cat(module, ": the adapter was trained on another weight, which it has as ",
                           copy->second->name));
      return;
    }
    Update update{read_float(*a), read_float(*b), {}, config_.scale_of(in_modules)};
    if (magnitude != nullptr) update.magnitude = read_float(*magnitude);
    if (is_transposed) update = transposed(update, *base_.find(*name));
    updates_[*name == head_from_ ? head_ : *name] = std::move(update);
  }

  /// Takes the head that an adapter of a classifier has.
  void add_class_head(std::vector<std::string>& faults) {
    Json config = base_.config();
    const models::ClassHead head = models::class_head_of(config);
    const std::string rows = cat(head.rows, ".weight");
    const checkpoint::TensorEntry* entry = head.rows.empty() ? nullptr : file_.find(rows);
    if (entry == nullptr) return;
    if (entry->shape.size() != 2 || entry->shape[1] != config.get("hidden_size", entry->shape[1])) {
      faults.push_back(cat(rows, " is [", join(entry->shape), "]"));
      return;
    }
    num_labels_ = entry->shape[0];
    config["architectures"] = Json(Json::Array{Json(models::classifier_of(config))});
    models::set_class_names(models::usual_class_names(num_labels_), config);
    const auto model = models::build_causal_lm(config, at::kFloat);
    const std::vector<std::string> modules = modules_of_adapter(head.modules, *model);
    replaced_ = model->unused_prefixes();
    for (const std::string& module : modules) replaced_.push_back(module + ".");
    tensor::KeyMap of_base = model->key_map();
    std::erase_if(of_base, [&](const auto& part) { return is_of_modules(part.name, modules); });
    checkpoint::LoadOptions options;
    options.skipped_prefixes = replaced_;
    options.stand_ins = model->stand_ins();
    for (std::string& finding : checkpoint::check_weights(base_, of_base, options)) {
      faults.push_back(cat("of the base's tensors ", finding));
    }
    for (const tensor::ParameterPart& part : model->key_map()) {
      if (!is_of_modules(part.name, modules)) continue;
      const checkpoint::TensorEntry* own = file_.find(part.name);
      if (own == nullptr || own->shape != part.shape) {
        faults.push_back(own == nullptr ? cat("there is no ", part.name)
                                        : cat(part.name, " is [", join(own->shape), "], not [",
                                              join(part.shape), "]"));
      }
      class_head_[part.name] = own;
    }
  }

  static std::string head_alone_text(const std::string& head) {
    return cat("the base's embedding is its tied head, ", head, ", alone, and the merged model ",
               "needs both: save the base with its embedding");
  }

  /// Takes the modules that the adapter has whole.
  void add_saved_modules(std::vector<std::string>& faults) {
    for (const auto& [name, entry] : file_.entries()) {
      if (is_adapter_tensor(name) || class_head_.contains(name) || !is_saved(name)) continue;
      const bool is_head = checkpoint::is_head_name(name);
      std::optional<std::string> own = checkpoint::find_name(base_, name);
      const auto tied = !is_head && own ? std::nullopt : tied_embedding();
      if (is_head && tied) {
        is_head_apart_ = true;
        if (!own) own = make_head(name, *tied);
        if (!checkpoint::find_name(base_, *tied)) {
          faults.push_back(head_alone_text(name));
          continue;
        }
      }
      if (!own && tied == name) {  // which the base has as its head alone
        own = checkpoint::find_name_or_tied(base_, name);
        if (own && !file_.ties_head()) {
          faults.push_back(head_alone_text(*own));
          continue;
        }
      }
      const auto place = own ? base_.find(*own == head_ ? head_from_ : *own) : std::nullopt;
      if (!place || place->entry->shape != entry->shape) {
        faults.push_back(!place ? cat("the base has no ", name)
                                : cat(name, " is [", join(entry->shape), "], the base's [",
                                      join(place->entry->shape), "]"));
        continue;
      }
      saved_[*own] = entry;
    }
    const bool has_head = num_labels_ == 0 && !models::is_classifier(base_.config());
    const auto tied = has_head ? tied_embedding() : std::nullopt;
    const auto embedding = tied ? checkpoint::find_name(base_, *tied) : std::nullopt;
    if (!embedding || !saved_.contains(*embedding) || is_head_apart_) return;
    const std::string head = models::name_in_files(base_.config(), "lm_head") + ".weight";
    const auto own = checkpoint::find_name(base_, head);
    if (file_.ties_head()) {
      if (own) saved_[*own] = saved_.at(*embedding);
      return;
    }
    // PEFT trains a copy of the embedding then, and the head stays as the base has it.
    is_head_apart_ = true;
    if (!own) make_head(head, *tied);
  }

  /// Makes a tensor of the head that the base has as its embedding alone.
  std::optional<std::string> make_head(const std::string& name, const std::string& embedding) {
    const auto from = checkpoint::find_name(base_, embedding);
    if (!from) return std::nullopt;
    head_from_ = *from;
    head_ = name;
    return name;
  }

  /// Whether a tensor is below a module that modules_to_save names by the end of its name.
  bool is_saved(const std::string& name) const {
    for (size_t dot = name.rfind('.'); dot != std::string::npos && dot > 0;
         dot = name.rfind('.', dot - 1)) {
      const std::string module = models::name_in_modules(base_.config(), name.substr(0, dot));
      const auto& ends = config_.modules_to_save;
      if (std::ranges::any_of(ends, [&](const auto& end) { return module.ends_with(end); })) {
        return true;
      }
    }
    return false;
  }

  /// The modules of a head without those that the base alone has: PEFT leaves layers before the one
  /// with a row a class as they are in the base, unless it is told to save them.
  std::vector<std::string> modules_of_adapter(std::vector<std::string> modules,
                                              const models::CausalLM& model) const {
    std::erase_if(modules, [&](const std::string& module) {
      bool is_in_adapter = false;
      bool is_in_base = false;
      for (const tensor::ParameterPart& part : model.key_map()) {
        if (!is_of_modules(part.name, {module})) continue;
        is_in_adapter |= file_.find(part.name) != nullptr;
        is_in_base |= checkpoint::find_name(base_, part.name).has_value();
      }
      return is_in_base && !is_in_adapter;
    });
    return modules;
  }

  /// Whether an adapter's copy of a weight has the base's values, rounded to the base's dtype.
  bool is_base(const checkpoint::TensorEntry& copy, const checkpoint::HfFolder::Place& base) const {
    if (copy.shape != base.entry->shape) return false;
    constexpr int64_t kPiece = int64_t{1} << 18;
    const auto options = at::TensorOptions().dtype(base.entry->dtype);
    const int64_t numel = base.entry->numel();
    for (int64_t first = 0; first < numel; first += kPiece) {
      const int64_t count = std::min(kPiece, numel - first);
      const at::Tensor there = at::empty({count}, options);
      const at::Tensor here = at::empty({count}, options);
      file_.file().read_shard(copy, {{numel}, {0}, {numel}, first, first + count}, there);
      base_.read_elements(base, first, here);
      if (!at::equal(there, here)) return false;
    }
    return true;
  }

  /// Reports tensors that belong to no lora_A.
  void check_rest(std::vector<std::string>& faults) const {
    for (const auto& [name, entry] : file_.entries()) {
      std::string module;
      for (const std::string_view suffix : {kLoraA, kLoraB, kLoraMagnitude}) {
        if (name.ends_with(suffix)) module = without_suffix(name, suffix);
      }
      if (class_head_.contains(name) || is_saved(name)) continue;
      if (module.empty()) {
        faults.push_back(is_of_modules(name, {std::string(models::kClassifierHead)})
                             ? cat(name,
                                   " is the head of a classifier, and the base's family has "
                                   "none of that name")
                             : cat(name, " is no tensor of a LoRA adapter"));
      } else if (file_.find(cat(module, kLoraA)) == nullptr) {
        faults.push_back(cat("there is no ", module, kLoraA));
      } else if (name.ends_with(kLoraMagnitude) &&
                 (module.ends_with(kExperts) || module.ends_with(kInnerExperts))) {
        faults.push_back(cat(name, ": DoRA of experts is not in this version"));
      }
    }
    for (const auto& [name, update] : updates_) {
      if (expert_updates_.contains(name)) {
        faults.push_back(cat(name, " has an adapter of its own and one of all experts"));
      }
    }
  }

  at::Tensor read_float(const checkpoint::TensorEntry& entry) const {
    return finite(file_.file().read(entry.name).to(at::kFloat), entry.name);
  }

  at::Tensor finite(at::Tensor values, const std::string& name) const {
    if (at::isfinite(values).all().item<bool>()) return values;
    throw InputError(cat(file_.file().path(), ": '", name,
                         "' has numbers that are not finite, which would be in the merged model"));
  }

  const checkpoint::HfFolder& base_;
  AdapterConfig config_;
  AdapterFile file_;
  std::set<std::string> transposed_;   // weights [in, out]
  std::string head_from_;              // the embedding's name where the head is made of it
  std::string head_;                   // the name of the head that is made
  int64_t num_labels_ = 0;             // of an adapter of a classifier
  std::vector<std::string> replaced_;  // prefixes of the base's tensors without use
  /// The adapter's head of a classifier, by names.
  std::map<std::string, const checkpoint::TensorEntry*, std::less<>> class_head_;
  std::map<std::string, const checkpoint::TensorEntry*, std::less<>> saved_;  // as updates_
  bool is_head_apart_ = false;  // a head that was the embedding is a tensor of its own
  std::map<std::string, Update, std::less<>> updates_;  // by the merged model's names
  std::map<std::string, ExpertUpdate, std::less<>> expert_updates_;
};

/// Makes the configuration of a base that of a classifier with so many classes: the adapter's, else
/// the base's own.
void classify(int64_t num_labels, const std::string& adapter, Json& config) {
  const std::string own = path_join(adapter, kOwnConfigName);
  const Json said = path_exists(own) ? Json::parse_file(own) : Json::object();
  const bool has_names = models::is_classifier(config);
  if (const Json* pad = said.find("pad_token_id"); pad != nullptr && pad->is_int()) {
    config["pad_token_id"] = *pad;
  }
  std::vector<std::string> names = models::usual_class_names(num_labels);
  const auto take = [&](const Json& source) {
    if (!source.contains("id2label")) return;
    models::ClassNames found = models::class_names(source);
    if (std::ssize(found.names) == num_labels) names = std::move(found.names);
  };
  if (has_names) take(config);
  take(said);
  config["architectures"] = Json(Json::Array{Json(models::classifier_of(config))});
  models::set_class_names(names, config);
}

/// Makes what is written that of a model which makes embeddings, where the adapter is one of such.
void embed(const std::string& adapter, checkpoint::HfExport& what) {
  const std::string own = path_join(adapter, kOwnConfigName);
  if (!path_exists(own)) return;
  const Json said = Json::parse_file(own);
  const Json* files = said.find(kMergedFiles);
  if (files == nullptr || !files->is_object()) return;
  for (const char* key : kEmbeddingKeys) what.config[key] = said.at(key);
  for (const auto& [path, text] : files->as_object()) {
    what.more_files.push_back({path, text.as_string()});
  }
  what.generates = false;
}

}  // namespace

int64_t merge_adapter(const std::string& base, const std::string& adapter,
                      const std::string& out_path) {
  const std::string out = checkpoint::new_folder(out_path);
  const at::NoGradGuard no_grad;
  const auto folder = checkpoint::HfFolder::open(base);
  const MergedSource source(folder, adapter);
  Json config = folder.config();
  if (source.is_head_untied()) config["tie_word_embeddings"] = Json(false);
  if (source.num_labels() > 0) classify(source.num_labels(), adapter, config);
  // An adapter is used with the chat template that it was trained with.
  const bool has_tokenizer = path_exists(path_join(adapter, "tokenizer.json"));
  checkpoint::HfExport what{.config = std::move(config),
                            .original_folder = base,
                            .kept_prefixes = {},
                            .tokenizer_folder = has_tokenizer ? adapter : base};
  embed(adapter, what);
  checkpoint::save_hf_folder(out, source, what);
  return source.num_changed();
}

}  // namespace automodel::peft
