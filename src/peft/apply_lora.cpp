#include "peft/apply_lora.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <map>
#include <optional>
#include <set>

#include "core/error.h"
#include "models/catalog.h"
#include "moe/experts.h"
#include "nn/layers.h"
#include "peft/adapter_keys.h"
#include "peft/module_matcher.h"
#include "peft/quantize_base.h"
#include "peft/saved_modules.h"
#include "peft/tensor_names.h"
#include "tensor/dtype.h"

namespace automodel::peft {

namespace {

constexpr std::string_view kWeight = ".weight";

/// One matrix of a linear layer; in the Hugging Face model it is a linear layer of its own.
struct Candidate {
  std::string name;
  std::vector<std::string> names;  ///< as recipes may call it (models::names_in_recipes)
  std::string layer;               ///< fqn of the layer here
  nn::Linear* linear = nullptr;    ///< null: the head is the embedding
  int64_t in_features = 0;
  kernels::OutputRange range;
};

/// Linear layers by their Hugging Face names, in the order of the key map.
std::vector<Candidate> linear_layers(const models::CausalLM& model) {
  const Json hf_config = model.hf_config();
  std::map<std::string, nn::Linear*> layers;
  for (const auto& item : model.named_modules("", false)) {
    auto* linear = dynamic_cast<nn::Linear*>(item.value().get());
    if (linear != nullptr && linear->options().takes_adapters) layers[item.key()] = linear;
  }
  std::vector<Candidate> found;
  for (const tensor::ParameterPart& part : model.key_map()) {
    if (!part.parameter.ends_with(kWeight) || !part.name.ends_with(kWeight)) continue;
    const auto layer = layers.find(without_suffix(part.parameter, kWeight));
    if (layer == layers.end()) continue;
    std::string name = without_suffix(part.name, kWeight);
    std::vector<std::string> names = models::names_in_recipes(hf_config, name);
    const nn::LinearOptions& options = layer->second->options();
    const kernels::OutputRange whole{0, options.out_features};
    found.push_back(
        {std::move(name), std::move(names), layer->first, layer->second, options.in_features,
         options.is_transposed ? whole : kernels::OutputRange{part.row_begin, part.shape[0]}});
  }
  if (model.parallel_plan().head.empty()) {
    const models::ModelDims dims = model.dims();
    const std::string head = models::name_in_files(hf_config, "lm_head");
    found.push_back({head, {head}, "lm_head", nullptr, dims.hidden_size, {0, dims.vocab_size}});
  }
  return found;
}

/// All experts of a layer, as one candidate.
struct ExpertCandidate {
  std::string name;  ///< "model.layers.0.mlp.experts": the module in transformers and upstream,
                     ///< but for the parts of names that a family's files have otherwise
  std::vector<std::string> names;  ///< as recipes may call it
  std::string module;              ///< fqn here
  moe::Experts* experts = nullptr;
};

/// The experts' module in transformers where a family's files name stacked experts as linear layers
/// beside the router: "model.layers.0.block_sparse_moe.input_linear.weight" (Granite).
std::string named_as_layers(const std::string& tensor) {
  const std::string layer = tensor.substr(0, tensor.rfind('.'));
  return cat(layer.substr(0, layer.rfind('.')), ".experts");
}

bool is_number(std::string_view text) {
  return std::ranges::all_of(text, [](char c) { return c >= '0' && c <= '9'; });
}

/// The experts' module in transformers where a tensor's name holds ".experts." at `end`. Where a
/// family's files have the experts one by one, they are under `mlp` in transformers' modules, be
/// their name in the files another (Mixtral's block_sparse_moe), but for `mixer`, `feed_forward`
/// and experts of the layer itself.
std::string experts_in_modules(const std::string& tensor, size_t end) {
  constexpr std::string_view kExperts = ".experts.";
  const size_t dot = tensor.rfind('.', end - 1);
  const std::string parent = tensor.substr(dot + 1, end - dot - 1);
  const size_t first = end + kExperts.size();
  const bool is_one_by_one = is_number(tensor.substr(first, tensor.find('.', first) - first));
  const bool is_kept =
      !is_one_by_one || is_number(parent) || parent == "mixer" || parent == "feed_forward";
  return cat(tensor.substr(0, dot), ".", is_kept ? parent : "mlp", ".experts");
}

std::vector<ExpertCandidate> grouped_experts(const models::CausalLM& model) {
  const Json hf_config = model.hf_config();
  std::map<std::string, moe::Experts*> modules;
  for (const auto& item : model.named_modules("", false)) {
    if (auto* experts = dynamic_cast<moe::Experts*>(item.value().get())) {
      modules[item.key()] = experts;
    }
  }
  std::vector<ExpertCandidate> found;
  for (const std::string& module : model.parallel_plan().expert_modules) {
    const auto experts = modules.find(module);
    if (experts == modules.end()) continue;
    for (const tensor::ParameterPart& part : model.key_map()) {
      if (!part.parameter.starts_with(module + ".")) continue;
      const size_t end = part.name.rfind(".experts.");
      if (end == std::string::npos) {
        std::string name = named_as_layers(part.name);
        found.push_back({name, {name}, module, experts->second});
        break;
      }
      std::string name = models::name_in_files(hf_config, experts_in_modules(part.name, end));
      std::vector<std::string> names = models::names_in_recipes(hf_config, name);
      found.push_back({std::move(name), std::move(names), module, experts->second});
      break;
    }
  }
  return found;
}

void check_values(const PeftConfig& config, std::vector<PeftFinding>& findings) {
  using Kind = PeftFinding::Kind;
  if (config.dropout_position != "pre" && config.dropout_position != "post") {
    findings.push_back({"dropout_position", cat("dropout_position takes pre or post, found '",
                                                config.dropout_position, "'")});
  }
  if (!config.target_modules.empty() && !config.exclude_modules.empty()) {
    findings.push_back({"exclude_modules",
                        "target_modules and exclude_modules exclude each other: keep one of them"});
  }
  if (config.match_all_linear &&
      (!config.target_modules.empty() || !config.exclude_modules.empty())) {
    findings.push_back({"match_all_linear",
                        "match_all_linear means all layers: leave target_modules and "
                        "exclude_modules out, or match_all_linear"});
  }
  if (config.lora_dtype) {
    const auto dtype = tensor::parse_dtype(*config.lora_dtype);
    if (!dtype || !tensor::is_plain_float(*dtype)) {
      findings.push_back({"lora_dtype", cat("no floating dtype is named '", *config.lora_dtype,
                                            "', e.g. float32 or bfloat16")});
    }
  }
  if (config.expert_weight_format == "mxfp4") {
    findings.push_back({"expert_weight_format",
                        "experts in mxfp4 (expert_weight_format) are not in this version",
                        Kind::kUnsupported});
  } else if (config.expert_weight_format != "unquantized") {
    findings.push_back(
        {"expert_weight_format", cat("expert_weight_format takes unquantized or mxfp4, found '",
                                     config.expert_weight_format, "'")});
  }
}

/// Finds patterns that match no layer of the model. `head`: the modules of a head of classes.
void check_patterns(const ModuleMatcher& matcher, const std::vector<std::string>& names,
                    const std::vector<std::string>& head, std::vector<PeftFinding>& findings) {
  const auto is_idle = [&](const std::string& pattern) {
    return std::none_of(names.begin(), names.end(), [&](const std::string& name) {
      return name == pattern || wildcard_match(pattern, name);
    });
  };
  const auto text_of = [&](const std::string& pattern) {
    if (pattern == "all-linear") {
      return cat("'", pattern, "' is no pattern; match_all_linear: true adapts all linear layers");
    }
    const bool is_head = std::ranges::any_of(
        head, [&](const std::string& module) { return wildcard_match(pattern, module); });
    if (is_head || is_of_modules(pattern, head)) {
      return cat("'", pattern, "' chooses no layer: the head of a classifier (", join(head, ", "),
                 ") is trained whole beside adapters");
    }
    if (pattern.starts_with('[')) {
      return cat("'", pattern, "' is one text; names in a list need quotes: ['q_proj', 'v_proj']");
    }
    const std::string nearest = nearest_pattern(pattern, names);
    return cat("no linear layer of the model has a name like '", pattern,
               "': patterns are whole names such as ",
               names.empty() ? "model.layers.0.self_attn.q_proj" : names.front(),
               nearest.empty() ? "" : cat("; did you mean '", nearest, "'?"));
  };
  for (const std::string& pattern : matcher.targets()) {
    if (!is_idle(pattern)) continue;
    findings.push_back({"target_modules", text_of(pattern), PeftFinding::Kind::kError, pattern});
  }
  for (const std::string& pattern : matcher.excluded()) {
    if (!is_idle(pattern)) continue;
    findings.push_back({"exclude_modules", text_of(pattern), PeftFinding::Kind::kWarning, pattern});
  }
}

struct ChosenExperts {
  ExpertCandidate experts;
  std::string pattern;
};

/// The pattern that chooses a module by the first of its names that one does.
std::optional<std::string> any_match(const ModuleMatcher& matcher,
                                     const std::vector<std::string>& names) {
  for (const std::string& name : names) {
    if (auto pattern = matcher.match(name)) return pattern;
  }
  return std::nullopt;
}

/// Experts are not linear layers: only name patterns choose them.
std::vector<ChosenExperts> chosen_experts(const models::CausalLM& model,
                                          const ModuleMatcher& matcher) {
  std::vector<ChosenExperts> chosen;
  if (matcher.targets().empty()) return chosen;
  for (ExpertCandidate& experts : grouped_experts(model)) {
    if (auto pattern = any_match(matcher, experts.names)) {
      chosen.push_back({std::move(experts), *pattern});
    }
  }
  return chosen;
}

/// Refuses options that adapters of experts do not have.
void check_experts(const PeftConfig& config, const moe::MoEConfig& experts,
                   std::vector<PeftFinding>& findings) {
  using Kind = PeftFinding::Kind;
  const int64_t chosen = experts.n_activated_experts;
  if (config.use_dora) {
    findings.push_back(
        {"use_dora", "DoRA adapters of experts are not in this version", Kind::kUnsupported});
  }
  if (config.dropout > 0) {
    findings.push_back({"dropout", "adapters of experts have no dropout", Kind::kWarning});
  }
  if (expert_rank(config, experts) < 1) {
    findings.push_back(
        {"dim", cat("with moe_rank_scaling adapters of experts have rank dim / ", chosen,
                    ", the experts of a token: dim is at least ", chosen, ", found ", config.dim)});
  } else if (config.moe_rank_scaling && config.dim % chosen != 0) {
    findings.push_back(
        {"dim",
         cat("dim ", config.dim, " is no multiple of the ", chosen,
             " experts of a token: adapters of experts have rank ", expert_rank(config, experts)),
         Kind::kWarning});
  }
}

struct Chosen {
  Candidate layer;
  std::string pattern;
};

/// What chooses a layer: one of its names, where patterns are for layers to be left out all of
/// them. A layer that is several of upstream's takes the patterns of all of these.
std::optional<std::string> chosen_by(const ModuleMatcher& matcher, const Candidate& layer) {
  const auto first = matcher.match(layer.names.front());
  if (layer.names.size() == 1 || (first && !matcher.targets().empty())) return first;
  if (!first && matcher.targets().empty()) return std::nullopt;
  std::optional<std::string> pattern;
  for (size_t i = 1; i < layer.names.size(); ++i) {
    pattern = matcher.match(layer.names[i]);
    if (!pattern) return std::nullopt;
  }
  return pattern;
}

/// Refuses patterns for some of the modules that are one layer here.
void check_joined_layers(const ModuleMatcher& matcher, const std::vector<Candidate>& layers,
                         std::vector<PeftFinding>& findings) {
  for (const Candidate& layer : layers) {
    if (layer.names.size() < 3 || chosen_by(matcher, layer)) continue;
    const auto is_left_out = [&](const std::string& name) { return !matcher.match(name); };
    const auto left_out = std::find_if(layer.names.begin() + 1, layer.names.end(), is_left_out);
    const bool are_all = std::all_of(layer.names.begin() + 1, layer.names.end(), is_left_out);
    if (are_all || left_out == layer.names.end()) continue;
    const char* key = matcher.targets().empty() ? "exclude_modules" : "target_modules";
    findings.push_back({key, cat("the model's checkpoints have one tensor, ", layer.name,
                                 ", for all of its parts, so they get adapters together or not at "
                                 "all; ",
                                 *left_out, " is left out")});
    return;
  }
}

/// The layers that get adapters. `saved`: modules that are trained whole, which get none where no
/// name chooses them.
std::vector<Chosen> chosen_layers(const models::CausalLM& model, const ModuleMatcher& matcher,
                                  const std::vector<std::string>& saved) {
  std::vector<Chosen> chosen;
  for (Candidate& layer : linear_layers(model)) {
    const bool is_saved = is_of_modules(cat(layer.name, kWeight), saved);
    if (is_saved && matcher.targets().empty()) continue;
    if (auto pattern = chosen_by(matcher, layer)) chosen.push_back({std::move(layer), *pattern});
  }
  return chosen;
}

/// Initial values of a layer's lora_A.
tensor::InitRule rule_of_a(const PeftConfig& config, int64_t rank, int64_t in_features) {
  const auto in = static_cast<double>(in_features);
  if (config.lora_A_init == "xavier") {
    return tensor::InitRule::normal(0.0, std::sqrt(2.0 / (in + static_cast<double>(rank))));
  }
  const double bound = 1.0 / std::sqrt(in);  // Kaiming's bound for a = sqrt(5)
  return {tensor::InitRule::Kind::kUniform, -bound, bound, 0, -1};
}

/// Initial values of experts' A [E, r, in], by torch's rules for three dims, as upstream uses them.
tensor::InitRule rule_of_expert_a(const PeftConfig& config, int64_t num_experts, int64_t rank,
                                  int64_t in_features) {
  const auto in = static_cast<double>(in_features);
  const auto r = static_cast<double>(rank);
  if (config.lora_A_init == "xavier") {
    const double fans = r * (in + static_cast<double>(num_experts));
    return tensor::InitRule::normal(0.0, std::sqrt(2.0 / fans));
  }
  const double bound = 1.0 / std::sqrt(in * r);
  return {tensor::InitRule::Kind::kUniform, -bound, bound, 0, -1};
}

/// Adds the adapters of all experts of a layer.
void adapt_experts(const ExpertCandidate& layer, const PeftConfig& config, at::ScalarType dtype,
                   tensor::KeyMap& keys, std::vector<models::ParameterInit>& inits) {
  const moe::MoEConfig& moe = layer.experts->config();
  const int64_t rank = expert_rank(config, moe);
  const int64_t count = moe.n_routed_experts;
  layer.experts->add_lora({rank, config.alpha / static_cast<double>(rank), dtype});
  const auto add = [&](std::string name, const char* parameter, int64_t rows, int64_t columns,
                       const tensor::InitRule& rule) {
    const std::string fqn = cat(layer.module, ".", parameter);
    keys.push_back({std::move(name), fqn, 0, {count, rows, columns}});
    inits.push_back({fqn, rule});
  };
  const std::string inner = cat(layer.name, kInnerExperts);
  const auto zeros = tensor::InitRule::constant(0.0);
  add(cat(inner, kLoraA), "lora_gate_and_up_A", rank, moe.expert_dim(),
      rule_of_expert_a(config, count, rank, moe.expert_dim()));
  add(cat(inner, kLoraB), "lora_gate_and_up_B", moe.expert_width(), rank, zeros);
  add(cat(layer.name, kLoraA), "lora_down_A", rank, moe.moe_inter_dim,
      rule_of_expert_a(config, count, rank, moe.moe_inter_dim));
  add(cat(layer.name, kLoraB), "lora_down_B", moe.expert_dim(), rank, zeros);
}

/// Adds the adapters of one layer, in the order of its matrices' rows.
class LayerAdapter final {
 public:
  LayerAdapter(models::CausalLM& model, const PeftConfig& config, at::ScalarType dtype)
      : model_(model), config_(config), hf_config_(model.hf_config()) {
    options_.dropout = config.dropout;
    options_.dropout_position =
        config.dropout_position == "pre" ? nn::DropoutPosition::kPre : nn::DropoutPosition::kPost;
    options_.has_magnitude = config.use_dora;
    options_.dtype = dtype;
    options_.dropout_key = model.adapter_dropout_key();
  }

  void add(const std::vector<Chosen>& matrices, tensor::KeyMap& keys,
           std::vector<models::ParameterInit>& inits) const {
    std::vector<Alike> all;
    for (const Chosen& matrix : matrices) {
      const std::string name = models::name_in_modules(hf_config_, matrix.layer.name);
      const int64_t rank = config_.rank_of(name);
      const double alpha = config_.alpha_of(name);
      auto alike = std::find_if(all.begin(), all.end(), [&](const Alike& other) {
        return other.rank == rank && other.alpha == alpha;
      });
      if (alike == all.end()) alike = all.insert(all.end(), {rank, alpha, {}});
      alike->matrices.push_back(matrix);
    }
    for (size_t i = 0; i < all.size(); ++i) add(all[i], nn::lora_suffix(i), keys, inits);
  }

 private:
  /// Matrices of a layer whose adapters have one rank and one alpha.
  struct Alike {
    int64_t rank = 0;
    double alpha = 0;
    std::vector<Chosen> matrices;
  };

  void add(const Alike& alike, const std::string& suffix, tensor::KeyMap& keys,
           std::vector<models::ParameterInit>& inits) const {
    const std::vector<Chosen>& matrices = alike.matrices;
    nn::Linear* linear = matrices[0].layer.linear;
    const std::string& fqn = matrices[0].layer.layer;
    const int64_t in = matrices[0].layer.in_features;
    nn::LoraOptions options = options_;
    options.rank = alike.rank;
    options.scale = alike.alpha / static_cast<double>(alike.rank);
    for (const Chosen& matrix : matrices) {
      options.parts.push_back({cat("lora/", matrix.layer.name), matrix.layer.range});
    }
    linear == nullptr ? model_.adapt_tied_head(options) : linear->add_lora(options);
    const std::string a = cat(fqn, ".lora_A", suffix);
    const std::string b = cat(fqn, ".lora_B", suffix);
    int64_t a_row = 0;
    for (const Chosen& matrix : matrices) {
      keys.push_back({cat(matrix.layer.name, kLoraA), a, a_row, {alike.rank, in}});
      a_row += alike.rank;
    }
    add_rows(matrices, kLoraB, b, alike.rank, keys);
    inits.push_back({a, rule_of_a(config_, alike.rank, in)});
    inits.push_back({b, tensor::InitRule::constant(0.0)});
    if (!config_.use_dora) return;
    const std::string magnitude = cat(fqn, ".lora_magnitude", suffix);
    add_rows(matrices, kLoraMagnitude, magnitude, std::nullopt, keys);
    // Replaced by the rows' lengths once the weights are loaded.
    inits.push_back({magnitude, tensor::InitRule::constant(1.0)});
  }

  /// The matrices' parts of a parameter with a row for each of their output features.
  static void add_rows(const std::vector<Chosen>& matrices, std::string_view name,
                       const std::string& parameter, std::optional<int64_t> width,
                       tensor::KeyMap& keys) {
    int64_t row = 0;
    for (const Chosen& matrix : matrices) {
      const int64_t count = matrix.layer.range.count;
      std::vector<int64_t> shape = {count};
      if (width) shape.push_back(*width);
      keys.push_back({cat(matrix.layer.name, name), parameter, row, std::move(shape)});
      row += count;
    }
  }

  models::CausalLM& model_;
  const PeftConfig& config_;
  Json hf_config_;
  nn::LoraOptions options_;
};

/// Leaves of what is trained the parameters of these modules alone.
void freeze_all_but(models::CausalLM& model, const std::vector<std::string>& modules) {
  std::set<std::string> trained;
  for (const tensor::ParameterPart& part : model.key_map()) {
    if (is_of_modules(part.name, modules)) trained.insert(part.parameter);
  }
  for (auto& item : model.named_parameters()) {
    if (!trained.contains(item.key())) item.value().set_requires_grad(false);
  }
}

/// Adds a finding for experts that get adapters and are to be trained whole, all or a part of them.
bool are_chosen_twice(const ChosenExperts& chosen, const models::CausalLM& model,
                      PeftChoice& choice) {
  const std::string experts = cat(chosen.experts.name, ".");
  for (const tensor::ParameterPart& part : model.key_map()) {
    if (!part.parameter.starts_with(experts) || !is_of_modules(part.name, choice.saved)) continue;
    choice.findings.push_back(
        {"modules_to_save",
         cat(chosen.experts.name, " is to be trained whole, and gets an adapter by ",
             chosen.pattern, ": leave it out of one")});
    return true;
  }
  return false;
}

}  // namespace

/// ", rank_pattern {q_proj: 16}"; "" for none.
static std::string pattern_text(const char* name, const ModulePattern& pattern) {
  if (pattern.is_empty()) return "";
  std::vector<std::string> entries;
  for (const auto& [expression, value] : pattern.entries()) {
    entries.push_back(cat(expression, ": ", value));
  }
  return cat(", ", name, " {", join(entries, ", "), "}");
}

PeftChoice choose_modules(const models::CausalLM& model, const PeftConfig& config) {
  PeftChoice choice;
  check_values(config, choice.findings);
  if (!choice.findings.empty()) return choice;
  choice.saved = saved_modules_of(model, config, choice.findings);
  const ModuleMatcher matcher(config);
  std::vector<std::string> names;
  const std::vector<Candidate> layers = linear_layers(model);
  for (const Candidate& layer : layers) {
    names.insert(names.end(), layer.names.begin(), layer.names.end());
  }
  for (const ExpertCandidate& experts : grouped_experts(model)) {
    names.insert(names.end(), experts.names.begin(), experts.names.end());
  }
  check_patterns(matcher, names, model.class_head(), choice.findings);
  check_joined_layers(matcher, layers, choice.findings);
  const std::vector<ChosenExperts> experts = chosen_experts(model, matcher);
  if (experts.empty() && config.moe_rank_scaling) {
    choice.findings.push_back({"moe_rank_scaling",
                               "moe_rank_scaling has no effect: no experts get adapters",
                               PeftFinding::Kind::kWarning});
  }
  if (!experts.empty()) {
    check_experts(config, experts[0].experts.experts->config(), choice.findings);
  }
  for (const ChosenExperts& chosen : experts) {
    if (are_chosen_twice(chosen, model, choice)) return choice;
    const moe::MoEConfig& moe = chosen.experts.experts->config();
    choice.modules.push_back(
        {chosen.experts.name, chosen.pattern, moe.expert_dim(), moe.expert_width()});
  }
  for (const Chosen& chosen : chosen_layers(model, matcher, choice.saved)) {
    if (is_of_modules(cat(chosen.layer.name, kWeight), choice.saved)) {
      choice.findings.push_back({"modules_to_save", cat(chosen.layer.name,
                                                        " is to be trained whole, and gets an "
                                                        "adapter by ",
                                                        chosen.pattern, ": leave it out of one")});
      return choice;
    }
    if (chosen.layer.linear == nullptr && holds_embedding(model, choice.saved)) {
      choice.findings.push_back({"modules_to_save",
                                 "the head is the embedding, which is to be trained whole: it gets "
                                 "no adapter beside that in this version",
                                 PeftFinding::Kind::kUnsupported});
      return choice;
    }
    choice.modules.push_back(
        {chosen.layer.name, chosen.pattern, chosen.layer.in_features, chosen.layer.range.count});
    if (config.dropout > 0 && chosen.layer.layer == "lm_head") {
      const std::string& name = chosen.layer.names.front();
      choice.findings.push_back(
          {"dropout",
           cat("dropout of an adapter of the head is not in this version: its "
               "logits are never whole; exclude_modules: '*",
               name.substr(name.rfind('.') + 1), "'",
               config.match_all_linear ? " in match_all_linear's place" : ""),
           PeftFinding::Kind::kUnsupported});
    }
  }
  if (choice.modules.empty() && choice.findings.empty()) {
    choice.findings.push_back({"exclude_modules", "no linear layer of the model is left"});
  }
  return choice;
}

void apply_lora(models::CausalLM& model, const PeftConfig& config, at::ScalarType model_dtype) {
  const PeftChoice choice = choose_modules(model, config);
  for (const PeftFinding& finding : choice.findings) {
    const std::string text = cat("peft.", finding.key, ": ", finding.text);
    if (finding.kind == PeftFinding::Kind::kUnsupported) throw UnsupportedError(text);
    if (finding.kind == PeftFinding::Kind::kError) throw UserError(text);
  }
  const at::ScalarType dtype =
      config.lora_dtype ? tensor::parse_dtype(*config.lora_dtype).value() : model_dtype;
  const ModuleMatcher matcher(config);
  const std::vector<Chosen> chosen = chosen_layers(model, matcher, choice.saved);
  const std::vector<ChosenExperts> experts = chosen_experts(model, matcher);
  model.set_saved_modules(choice.saved);
  freeze_all_but(model, model.saved_modules());
  const LayerAdapter adapter(model, config, dtype);
  tensor::KeyMap keys;
  std::vector<models::ParameterInit> inits;
  for (size_t begin = 0; begin < chosen.size();) {
    size_t end = begin;
    while (end < chosen.size() && chosen[end].layer.layer == chosen[begin].layer.layer) ++end;
    adapter.add({chosen.begin() + static_cast<std::ptrdiff_t>(begin),
                 chosen.begin() + static_cast<std::ptrdiff_t>(end)},
                keys, inits);
    begin = end;
  }
  for (const ChosenExperts& layer : experts) {
    adapt_experts(layer.experts, config, dtype, keys, inits);
  }
  model.add_parameters(keys, inits);
}

int64_t expert_rank(const PeftConfig& config, const moe::MoEConfig& experts) {
  return config.moe_rank_scaling ? config.dim / experts.n_activated_experts : config.dim;
}

std::set<std::string> transposed_weights(const Json& hf_config) {
  std::set<std::string> names;
  if (!models::find_family(hf_config).is_known || !models::check_config(hf_config).empty()) {
    return names;
  }
  const auto model = models::build_causal_lm(hf_config, at::kFloat);
  for (const Candidate& layer : linear_layers(*model)) {
    const bool is_transposed = layer.linear != nullptr && layer.linear->options().is_transposed;
    if (is_transposed) names.insert(cat(layer.name, kWeight));
  }
  return names;
}

std::vector<std::string> describe(const PeftConfig& config, const models::CausalLM& whole,
                                  int64_t num_parameters, int64_t num_trained) {
  char share[32];
  std::snprintf(share, sizeof(share), "%.3f %%",
                100.0 * static_cast<double>(num_trained) / static_cast<double>(num_parameters));
  std::vector<std::string> lines = {cat(config.use_dora ? "DoRA" : "LoRA", ": rank ", config.dim,
                                        ", scale ", config.alpha / static_cast<double>(config.dim),
                                        pattern_text("rank_pattern", config.rank_pattern),
                                        pattern_text("alpha_pattern", config.alpha_pattern),
                                        ", trains ", num_trained, " of ", num_parameters,
                                        " parameters (", share, ")")};
  struct Count {
    std::string pattern;
    std::vector<std::pair<std::string, int64_t>> leaves;
  };
  std::vector<Count> counts;
  const ModuleMatcher matcher(config);
  const Json hf_config = whole.hf_config();
  for (const tensor::ParameterPart& part : whole.key_map()) {
    if (!part.name.ends_with(kLoraA)) continue;
    const std::string name = without_suffix(part.name, kLoraA);
    if (name.ends_with(kInnerExperts)) continue;  // counted with the second product
    const std::string pattern =
        any_match(matcher, models::names_in_recipes(hf_config, name)).value_or("?");
    auto count = std::find_if(counts.begin(), counts.end(),
                              [&](const Count& known) { return known.pattern == pattern; });
    if (count == counts.end()) count = counts.insert(counts.end(), Count{pattern, {}});
    const std::string leaf = name.substr(name.rfind('.') + 1);
    auto of_leaf = std::find_if(count->leaves.begin(), count->leaves.end(),
                                [&](const auto& known) { return known.first == leaf; });
    if (of_leaf == count->leaves.end()) {
      of_leaf = count->leaves.insert(count->leaves.end(), {leaf, 0});
    }
    of_leaf->second += 1;
  }
  for (const Count& count : counts) {
    std::vector<std::string> texts;
    int64_t sum = 0;
    for (const auto& [leaf, number] : count.leaves) {
      texts.push_back(cat(number, " ", leaf));
      sum += number;
    }
    lines.push_back(cat("  ", count.pattern, ": ", sum, sum == 1 ? " module (" : " modules (",
                        join(texts, ", "), ")"));
  }
  const std::vector<std::string> head = whole.class_head();
  if (const int64_t num_labels = whole.dims().num_labels; num_labels > 0) {
    lines.push_back(
        cat("  ", join(head, ", "), ": the head of ", num_labels, " classes, trained whole"));
  }
  std::vector<std::string> saved = whole.saved_modules();
  std::erase_if(saved, [&](const std::string& module) {
    return std::ranges::find(head, module) != head.end();
  });
  if (!saved.empty()) {
    lines.push_back(cat("  trained whole ", count_and_first(saved)));
  }
  return lines;
}

}  // namespace automodel::peft
