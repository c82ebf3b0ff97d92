#include "recipes/read/read_distributed.h"

#include <algorithm>
#include <map>

#include "config/bind.h"
#include "config/registry.h"
#include "recipes/read/nvfsdp_names.h"
#include "recipes/read/recipe.h"
#include "recipes/read/targets_distributed.h"
#include "tensor/dtype.h"

namespace automodel::recipes {

namespace {

using config::Diagnostics;
using config::Node;
using distributed::Strategy;

const std::vector<std::string> kSizeKeys = {"dp_size", "dp_replicate_size", "tp_size",
                                            "pp_size", "cp_size",           "ep_size"};

const std::vector<std::string> kContextKeys = {"cp_rotate_method"};

/// A copy of `node` with only the given keys, or with all but these.
Node select(const Node& node, const std::vector<std::string>& keys, bool keeps) {
  Node part = node;
  for (const Node& child : node.children()) {
    const bool is_listed = std::find(keys.begin(), keys.end(), child.key()) != keys.end();
    if (is_listed != keeps) part.erase(child.key());
  }
  return part;
}

constexpr const char* kComputable = "bfloat16, float16, float32 or float64 would be right";

void check_dtype(const std::optional<std::string>& dtype, const Node* section, const char* key,
                 Diagnostics& diagnostics) {
  if (!dtype || section == nullptr || section->find(key) == nullptr) return;
  const auto parsed = tensor::parse_dtype(*dtype);
  if (!parsed) {
    diagnostics.error(*section->find(key), cat("unknown dtype '", *dtype, "': ", kComputable));
  } else if (!c10::isFloatingType(*parsed) || c10::elementSize(*parsed) < 2) {
    diagnostics.error(*section->find(key),
                      cat("nothing can be computed in ", *dtype, " here: ", kComputable));
  }
}

void check_autocast(const std::optional<std::string>& dtype, const Node& section,
                    Diagnostics& diagnostics) {
  const auto parsed = dtype ? tensor::parse_dtype(*dtype) : std::nullopt;
  if (dtype && (!parsed || (*parsed != at::kBFloat16 && *parsed != at::kHalf))) {
    diagnostics.error(*section.find("autocast_dtype"),
                      cat("autocast_dtype '", *dtype,
                          "': bfloat16 or float16 would be right; without the key products are "
                          "computed in the parameters' dtype"));
  }
}

/// Beside autocast a policy that does not say otherwise casts no inputs, as in 0.7.0: a stream that
/// its output_dtype keeps wider stays so.
void set_input_casts(std::optional<distributed::MixedPrecisionPolicy>& policy, const Node* section,
                     const std::optional<std::string>& autocast, Diagnostics& diagnostics) {
  if (!policy || !autocast || section == nullptr || !section->is_mapping()) return;
  const Node* written = section->find("cast_forward_inputs");
  if (written != nullptr && !written->is_null()) return;
  policy->cast_forward_inputs = false;
  diagnostics.add_default(cat(section->path(), ".cast_forward_inputs"), Json(false));
}

void check_policy(const std::optional<distributed::MixedPrecisionPolicy>& policy,
                  const Node* section, Diagnostics& diagnostics) {
  if (!policy) return;
  check_dtype(policy->param_dtype, section, "param_dtype", diagnostics);
  check_dtype(policy->reduce_dtype, section, "reduce_dtype", diagnostics);
  check_dtype(policy->output_dtype, section, "output_dtype", diagnostics);
}

/// The maker of the class that a section names; nullopt when it names none or, after reporting it,
/// an unknown one.
template <typename Maker>
std::optional<Maker> maker_of(const Node* section, const config::TargetRegistry<Maker>& registry,
                              Diagnostics& diagnostics) {
  if (section == nullptr || !section->is_mapping() || !section->has("_target_")) {
    return std::nullopt;
  }
  const auto target = config::split_target(*section, diagnostics);
  if (!target) return std::nullopt;
  const Maker* maker = registry.resolve_maker(*target, diagnostics);
  return maker == nullptr ? std::nullopt : std::optional<Maker>(*maker);
}

/// Reports keys that only other strategies have, and removes them.
void refuse_keys_of_others(Node& section, Strategy own, const std::vector<std::string>& known,
                           Diagnostics& diagnostics) {
  std::map<std::string, std::vector<Strategy>> owners;
  const auto add = [&](Strategy strategy, const auto& config) {
    using Config = std::decay_t<decltype(config)>;
    for_each_field<Config>([&](const auto& field) { owners[field.name].push_back(strategy); });
  };
  add(Strategy::kFsdp2, distributed::FSDP2Config{});
  add(Strategy::kMegatronFsdp, distributed::MegatronFSDPConfig{});
  add(Strategy::kDdp, distributed::DDPConfig{});
  owners[kShardingName].push_back(Strategy::kMegatronFsdp);
  std::vector<std::string> refused;
  for (const Node& child : section.children()) {
    const auto found = owners.find(child.key());
    const bool is_known = std::find(known.begin(), known.end(), child.key()) != known.end();
    if (found == owners.end() || is_known || child.is_deleted()) continue;
    const std::vector<Strategy>& strategies = found->second;
    if (std::find(strategies.begin(), strategies.end(), own) != strategies.end()) continue;
    std::vector<std::string> names;
    for (const Strategy strategy : strategies) {
      names.emplace_back(distributed::strategy_name(strategy));
    }
    diagnostics.unknown_key(child, cat("'", child.key(), "' is a key of ", join(names, " and "),
                                       ", and the strategy is ", distributed::strategy_name(own)));
    refused.push_back(child.key());
  }
  for (const std::string& key : refused) section.erase(key);
}

void erase_target(Node& section) {
  for (const char* key : {"_target_", "_recursive_", "_convert_"}) section.erase(key);
}

/// Checks the classes of the policies and removes them from the section, which then has fields
/// only.
void take_policy_targets(Node& section, Diagnostics& diagnostics) {
  if (Node* policy = section.find("mp_policy"); policy != nullptr && policy->is_mapping()) {
    maker_of(policy, mp_policy_targets(), diagnostics);
    erase_target(*policy);
  }
  Node* offload = section.find("offload_policy");
  if (offload == nullptr || !offload->is_mapping()) return;
  const auto kind = maker_of(offload, offload_policy_targets(), diagnostics);
  erase_target(*offload);
  if (kind != OffloadTarget::kNothing) return;
  for (const Node& child : offload->children()) {
    diagnostics.error_at_key(child, cat("OffloadPolicy has no option '", child.key(),
                                        "'; CPUOffloadPolicy offloads to the CPU"));
  }
  section.erase("offload_policy");
}

/// The strategy, by name or by class; an error with both places when the two contradict each other.
Strategy read_strategy(const Node& node, Diagnostics& diagnostics) {
  const Node* key = node.find("strategy");
  std::optional<Strategy> named;
  if (key != nullptr && !key->is_null()) named = config::read_value<Strategy>(*key, diagnostics);
  const auto meant = maker_of(&node, distributed_targets(), diagnostics);
  if (named && meant && *named != *meant) {
    diagnostics.clash(
        *key, *node.find("_target_"),
        cat("strategy ", distributed::strategy_name(*named), " clashes with _target_, which means ",
            distributed::strategy_name(*meant), "; leave one of them out"),
        "the class is named here");
  }
  return named ? *named : meant.value_or(Strategy::kFsdp2);
}

/// Reads the scope of activation checkpointing as upstream does, a string or a list of strings, and
/// removes it from the section.
std::vector<std::string> take_scope(Node& section, Diagnostics& diagnostics) {
  const char* const key = "activation_checkpointing_scope";
  const Node* found = section.find(key);
  if (found == nullptr) return {"all"};
  const Node node = *found;
  section.erase(key);
  std::vector<std::string> values;
  if (node.is_string()) {
    values.push_back(*node.string_value());
  } else if (node.is_sequence()) {
    for (const Node& child : node.children()) {
      if (child.is_string()) {
        values.push_back(*child.string_value());
      } else {
        diagnostics.error(child, "activation_checkpointing_scope entries must be strings.");
      }
    }
  } else if (!node.is_null()) {
    diagnostics.error(node, "activation_checkpointing_scope must be a string or list of strings.");
  }
  return values;
}

/// Warns of a scope that a recipe chooses for what it does not do.
template <typename Config>
void warn_of_idle_scope(const Config& config, const Node& section, Diagnostics& diagnostics) {
  const Node* scope = section.find("activation_checkpointing_scope");
  const bool is_off =
      config.activation_checkpointing == distributed::ActivationCheckpointingMode::kOff;
  const bool is_default = config.activation_checkpointing_scope == std::vector<std::string>{"all"};
  if (scope == nullptr || !is_off || is_default) return;
  diagnostics.warning(*scope,
                      "activation_checkpointing_scope has no effect while activation_checkpointing "
                      "is off");
}

/// Warns of depths that a recipe chooses without the switch that they need. A default or 0 says
/// nothing else than the switch.
void warn_of_idle_depths(const distributed::FSDP2Config& config, const Node& section,
                         Diagnostics& diagnostics) {
  if (config.enable_fsdp2_prefetch) return;
  const distributed::FSDP2Config defaults;
  const std::tuple<const char*, int64_t, int64_t> depths[] = {
      {"fsdp2_forward_prefetch_depth", config.fsdp2_forward_prefetch_depth,
       defaults.fsdp2_forward_prefetch_depth},
      {"fsdp2_backward_prefetch_depth", config.fsdp2_backward_prefetch_depth,
       defaults.fsdp2_backward_prefetch_depth}};
  for (const auto& [key, depth, usual] : depths) {
    const Node* place = section.find(key);
    if (place == nullptr || depth == 0 || depth == usual) continue;
    diagnostics.warning(*place, cat(key, " has no effect while enable_fsdp2_prefetch is false"));
  }
}

/// Finishes a section's options. What that finds is reported at the keys it names; an error that it
/// throws, at `key`.
template <typename Config, typename... Arguments>
void finish(Config& config, const Node& section, const char* key, Diagnostics& diagnostics,
            const Arguments&... arguments) {
  const auto place = [&](const std::string& name) -> const Node& {
    const Node* found = section.find(name);
    return found != nullptr ? *found : section;
  };
  try {
    for (const auto& warning : config.post_init(arguments...)) {
      diagnostics.warning(place(warning.key), warning.text);
    }
  } catch (const UserError& error) {
    diagnostics.error(place(key), error.what());
  }
}

void read_pipeline(const Node& node, distributed::DistributedSetup& setup,
                   Diagnostics& diagnostics) {
  const Node* pipeline = node.find("pipeline");
  if (pipeline == nullptr || pipeline->is_null()) return;
  Diagnostics own = diagnostics;  // mistakes are reported even if the section has no effect
  maker_of(pipeline, pipeline_targets(), own);
  Node fields = *pipeline;
  erase_target(fields);
  const auto section = config::bind<distributed::PipelineConfig>(fields, own);
  check_dtype(section.dtype, pipeline, "dtype", own);
  const bool is_read = setup.sizes.pp_size.value_or(1) != 1;
  for (size_t i = diagnostics.findings().size(); i < own.findings().size(); ++i) {
    const config::Finding& finding = own.findings()[i];
    if (is_read || finding.severity != config::Severity::kWarning) diagnostics.add(finding);
  }
  if (is_read) {
    setup.pipeline = section;
  } else {
    diagnostics.warning(*pipeline, "pipeline has no effect while pp_size is 1");
  }
}

/// Without expert parallelism upstream ignores the section, whatever it contains.
void read_moe(const Node& node, distributed::DistributedSetup& setup, Diagnostics& diagnostics) {
  const Node* moe = node.find("moe");
  if (moe == nullptr || moe->is_null()) return;
  maker_of(moe, moe_targets(), diagnostics);
  Node fields = *moe;
  erase_target(fields);
  take_policy_targets(fields, diagnostics);
  const auto section = config::bind<distributed::MoEParallelizerConfig>(fields, diagnostics);
  check_policy(section.mp_policy, moe->find("mp_policy"), diagnostics);
  if (setup.sizes.ep_size.value_or(1) == 1) {
    diagnostics.warning(*moe, "moe has no effect while ep_size is 1");
    return;
  }
  check_dtype(section.lm_head_precision, moe, "lm_head_precision", diagnostics);
  const auto head =
      section.lm_head_precision ? tensor::parse_dtype(*section.lm_head_precision) : std::nullopt;
  if (head && *head != at::kFloat) {
    diagnostics.warning(
        *moe->find("lm_head_precision"),
        cat("no effect: only float32 acts, with others the head keeps the policy's dtype"));
  }
  setup.moe = section;
}

}  // namespace

distributed::DistributedSetup read_distributed(const Node& node, Diagnostics& diagnostics) {
  distributed::DistributedSetup setup;
  if (!node.is_mapping()) {
    diagnostics.error(node, cat("expected a mapping, found ", node.describe()));
    return setup;
  }
  setup.strategy = read_strategy(node, diagnostics);
  setup.sizes =
      config::bind<distributed::ParallelismSizes>(select(node, kSizeKeys, true), diagnostics);
  setup.context = config::bind<distributed::ContextParallelConfig>(select(node, kContextKeys, true),
                                                                   diagnostics);
  if (setup.sizes.cp_size.value_or(1) == 1 && node.find("cp_rotate_method") != nullptr) {
    diagnostics.warning(*node.find("cp_rotate_method"),
                        "cp_rotate_method has no effect while cp_size is 1");
  }
  read_pipeline(node, setup, diagnostics);
  read_moe(node, setup, diagnostics);
  std::vector<std::string> own = kSizeKeys;
  own.insert(own.end(), kContextKeys.begin(), kContextKeys.end());
  own.insert(own.end(), {"strategy", "pipeline", "moe"});
  Node rest = select(node, own, false);
  erase_target(rest);
  take_policy_targets(rest, diagnostics);
  std::optional<std::string> tp_plan_name;
  if (const Node* plan = rest.find("tp_plan"); plan != nullptr && plan->is_string()) {
    tp_plan_name = plan->string_value();
  }
  const config::BindOptions options{
      .legacy_keys = {{"multimodal", "it is for vision and audio towers"}}};
  switch (setup.strategy) {
    case Strategy::kFsdp2: {
      refuse_keys_of_others(rest, setup.strategy, {}, diagnostics);
      const Node* plan = rest.find("tp_plan");
      const bool is_plan = plan == nullptr || plan->is_null() || plan->is_mapping() || tp_plan_name;
      if (!is_plan) {
        diagnostics.error(*plan,
                          cat("expected a mapping of modules to parallel styles, or the name "
                              "of a plan, found ",
                              plan->describe()));
      }
      if (tp_plan_name || !is_plan) rest.erase("tp_plan");
      std::vector<std::string> scope = take_scope(rest, diagnostics);
      setup.fsdp2 = config::bind<distributed::FSDP2Config>(rest, diagnostics, options);
      setup.fsdp2.tp_plan_name = tp_plan_name;
      setup.fsdp2.activation_checkpointing_scope = std::move(scope);
      finish(setup.fsdp2, node, "activation_checkpointing_scope", diagnostics);
      warn_of_idle_scope(setup.fsdp2, node, diagnostics);
      warn_of_idle_depths(setup.fsdp2, node, diagnostics);
      check_policy(setup.fsdp2.mp_policy, rest.find("mp_policy"), diagnostics);
      set_input_casts(setup.fsdp2.mp_policy, rest.find("mp_policy"), setup.fsdp2.autocast_dtype,
                      diagnostics);
      if (setup.moe) {
        set_input_casts(setup.moe->mp_policy, node.find_path("moe.mp_policy"),
                        setup.fsdp2.autocast_dtype, diagnostics);
      }
      check_autocast(setup.fsdp2.autocast_dtype, rest, diagnostics);
      break;
    }
    case Strategy::kMegatronFsdp: {
      std::optional<std::map<std::string, std::string>> tp_plan;
      if (const Node* plan = rest.find("tp_plan"); plan != nullptr && !plan->is_null()) {
        tp_plan.emplace();  // every plan is refused, whatever it contains
      }
      rest.erase("tp_plan");
      refuse_keys_of_others(rest, setup.strategy, {}, diagnostics);
      take_nvfsdp_names(rest, diagnostics);
      const auto sharding = take_sharding_name(rest, diagnostics);
      setup.megatron_fsdp = config::bind<distributed::MegatronFSDPConfig>(rest, diagnostics);
      setup.megatron_fsdp.data_parallel_sharding_strategy = sharding;
      finish(setup.megatron_fsdp, node, "tp_plan", diagnostics, tp_plan);
      break;
    }
    case Strategy::kDdp: {
      refuse_keys_of_others(rest, setup.strategy, {"sequence_parallel"}, diagnostics);
      std::vector<std::string> scope = take_scope(rest, diagnostics);
      setup.ddp = config::bind<distributed::DDPConfig>(
          rest, diagnostics,
          {.legacy_keys = {{"sequence_parallel", "ddp has no tensor parallelism"}}});
      setup.ddp.activation_checkpointing_scope = std::move(scope);
      finish(setup.ddp, node, "activation_checkpointing_scope", diagnostics);
      warn_of_idle_scope(setup.ddp, node, diagnostics);
      check_autocast(setup.ddp.autocast_dtype, rest, diagnostics);
      break;
    }
  }
  return setup;
}

}  // namespace automodel::recipes
