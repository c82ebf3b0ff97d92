#include <algorithm>

#include "config/bind.h"
#include "recipes/recipe.h"
#include "tensor/dtype.h"

namespace automodel::recipes {

namespace {

using config::Diagnostics;
using config::Node;
using distributed::Strategy;

const std::vector<std::string> kSizeKeys = {"dp_size", "dp_replicate_size", "tp_size",
                                            "pp_size", "cp_size",           "ep_size"};

const std::vector<std::string> kContextKeys = {"cp_rotate_method"};

/// The part of `node` that has (or has not) the given keys.
Node select(const Node& node, const std::vector<std::string>& keys, bool keeps) {
  Node part = node;
  for (const Node& child : node.children()) {
    const bool is_listed = std::find(keys.begin(), keys.end(), child.key()) != keys.end();
    if (is_listed != keeps) part.erase(child.key());
  }
  return part;
}

void check_dtype(const std::optional<std::string>& dtype, const Node* section, const char* key,
                 Diagnostics& diagnostics) {
  if (!dtype || section == nullptr || section->find(key) == nullptr) return;
  if (!tensor::parse_dtype(*dtype)) {
    diagnostics.error(*section->find(key), cat("unknown dtype '", *dtype, "'"));
  }
}

void check_policy(const std::optional<distributed::MixedPrecisionPolicy>& policy,
                  const Node* section, Diagnostics& diagnostics) {
  if (!policy) return;
  check_dtype(policy->param_dtype, section, "param_dtype", diagnostics);
  check_dtype(policy->reduce_dtype, section, "reduce_dtype", diagnostics);
  check_dtype(policy->output_dtype, section, "output_dtype", diagnostics);
}

/// `backend` and `_target_` inside a policy node are upstream's way to name its class.
Node without_targets(Node node) {
  for (const char* key : {"mp_policy", "offload_policy"}) {
    if (Node* policy = node.find(key)) policy->erase("_target_");
  }
  for (const char* key : {"_target_", "_recursive_", "_convert_"}) node.erase(key);
  return node;
}

/// The scope of activation checkpointing, as upstream reads it: a string or a list of strings. It
/// is taken out of the section; a wrong one is told and stays "all".
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
  try {
    return distributed::normalize_activation_checkpointing_scope(values);
  } catch (const UserError& error) {
    diagnostics.error(node, error.what());
    return {"all"};
  }
}

void read_pipeline(const Node& node, distributed::DistributedSetup& setup,
                   Diagnostics& diagnostics) {
  const Node* pipeline = node.find("pipeline");
  if (pipeline == nullptr || pipeline->is_null()) return;
  Diagnostics own = diagnostics;  // what a section without effect holds is told if it is wrong
  const auto section = config::bind<distributed::PipelineConfig>(without_targets(*pipeline), own);
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

/// Without expert parallelism upstream drops the section, whatever is in it.
void read_moe(const Node& node, distributed::DistributedSetup& setup, Diagnostics& diagnostics) {
  const Node* moe = node.find("moe");
  if (moe == nullptr || moe->is_null()) return;
  const auto section =
      config::bind<distributed::MoEParallelizerConfig>(without_targets(*moe), diagnostics);
  check_policy(section.mp_policy, moe->find("mp_policy"), diagnostics);
  if (setup.sizes.ep_size.value_or(1) == 1) {
    diagnostics.warning(*moe, "moe has no effect while ep_size is 1");
    return;
  }
  check_dtype(section.lm_head_precision, moe, "lm_head_precision", diagnostics);
  setup.moe = section;
}

}  // namespace

distributed::DistributedSetup read_distributed(const Node& node, Diagnostics& diagnostics) {
  distributed::DistributedSetup setup;
  if (!node.is_mapping()) {
    diagnostics.error(node, cat("expected a mapping, found ", node.describe()));
    return setup;
  }
  if (const Node* strategy = node.find("strategy"); strategy != nullptr && !strategy->is_null()) {
    setup.strategy = config::read_value<Strategy>(*strategy, diagnostics).value_or(setup.strategy);
  }
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
  Node rest = without_targets(select(node, own, false));
  std::optional<std::string> tp_plan_name;
  if (const Node* plan = rest.find("tp_plan"); plan != nullptr && plan->is_string()) {
    tp_plan_name = plan->string_value();
  }
  const config::BindOptions options{
      .legacy_keys = {{"multimodal", "it is for vision and audio towers"}}};
  switch (setup.strategy) {
    case Strategy::kFsdp2: {
      if (tp_plan_name) rest.erase("tp_plan");
      std::vector<std::string> scope = take_scope(rest, diagnostics);
      setup.fsdp2 = config::bind<distributed::FSDP2Config>(rest, diagnostics, options);
      setup.fsdp2.tp_plan_name = tp_plan_name;
      setup.fsdp2.activation_checkpointing_scope = std::move(scope);
      check_policy(setup.fsdp2.mp_policy, rest.find("mp_policy"), diagnostics);
      check_dtype(setup.fsdp2.autocast_dtype, &rest, "autocast_dtype", diagnostics);
      break;
    }
    case Strategy::kMegatronFsdp:
      setup.megatron_fsdp = config::bind<distributed::MegatronFSDPConfig>(rest, diagnostics);
      break;
    case Strategy::kDdp: {
      std::vector<std::string> scope = take_scope(rest, diagnostics);
      setup.ddp = config::bind<distributed::DDPConfig>(
          rest, diagnostics,
          {.legacy_keys = {{"sequence_parallel", "ddp has no tensor parallelism"}}});
      setup.ddp.activation_checkpointing_scope = std::move(scope);
      check_dtype(setup.ddp.autocast_dtype, &rest, "autocast_dtype", diagnostics);
      break;
    }
  }
  return setup;
}

}  // namespace automodel::recipes
