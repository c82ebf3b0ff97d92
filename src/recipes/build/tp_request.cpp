#include "recipes/build/tp_request.h"

#include "core/error.h"
#include "distributed/tensor/split_module.h"
#include "distributed/tensor/tp_layer_plan.h"
#include "models/catalog.h"

namespace automodel::recipes {

namespace {

using config::Diagnostics;
using config::Node;
using distributed::Strategy;
using distributed::TpModel;

/// The node at which a finding about the plan's entry `pattern` is shown; findings about sizes or
/// the model's own plan are shown at tp_size.
const Node& place_of_entry(const Recipe& recipe, const std::string& pattern) {
  const Node* section = recipe.root.find("distributed");
  if (section == nullptr) return recipe.root;
  const Node* plan = section->find("tp_plan");
  if (plan != nullptr && plan->is_mapping() && plan->find(pattern) != nullptr) {
    return *plan->find(pattern);
  }
  if (plan != nullptr && plan->is_string() && pattern == "tp_plan") return *plan;
  const Node* size = section->find("tp_size");
  return size != nullptr ? *size : *section;
}

/// True when there is a plan of the name.
bool check_name(const Recipe& recipe, const std::string& name, Diagnostics& diagnostics) {
  try {
    distributed::get_parallel_plan({}, false, name);
  } catch (const UserError& error) {
    diagnostics.error(place_of_entry(recipe, "tp_plan"), error.what());
    return false;
  }
  return true;
}

/// True when every entry of a mapping is a style, and a name a plan's, whatever the model.
bool check_choice(const Recipe& recipe, const distributed::TpPlanChoice& choice,
                  Diagnostics& diagnostics) {
  bool is_right = true;
  if (const auto* name = std::get_if<std::string>(&choice)) {
    return check_name(recipe, *name, diagnostics);
  }
  const auto* names = std::get_if<distributed::TpStyleNames>(&choice);
  if (names == nullptr) return true;
  for (const auto& [pattern, name] : *names) {
    try {
      distributed::translate_to_torch_parallel_style(name);
    } catch (const UserError& error) {
      diagnostics.error(place_of_entry(recipe, pattern),
                        cat(error.what(),
                            "; one of colwise, rowwise, colwise_rep, rowwise_rep, "
                            "sequence_parallel, replicated_with_grad_allreduce"));
      is_right = false;
    }
  }
  return is_right;
}

/// Reading the section has already reported that this flag turns sequence_parallel on.
void check_flags(const Recipe& recipe, Diagnostics& diagnostics) {
  const bool is_fsdp2 = recipe.distributed.strategy == Strategy::kFsdp2;
  if (!is_fsdp2 || !recipe.distributed.fsdp2.enable_async_tensor_parallel) return;
  const Node& section = *recipe.root.find("distributed");
  const Node* place = section.find("enable_async_tensor_parallel");
  diagnostics.warning(place != nullptr ? *place : section,
                      "enable_async_tensor_parallel overlaps nothing here: collectives of tensor "
                      "parallelism are not run beside products");
}

/// Warns of what a recipe says of layers that are not split.
void warn_of_idle_keys(const Recipe& recipe, Diagnostics& diagnostics) {
  const Node* section = recipe.root.find("distributed");
  if (section == nullptr || recipe.distributed.strategy != Strategy::kFsdp2) return;
  const Node* plan = section->find("tp_plan");
  const Node* sequence = section->find("sequence_parallel");
  if (plan != nullptr && !plan->is_null()) {
    diagnostics.warning(*plan, "tp_plan has no effect while tp_size is 1");
  }
  if (sequence != nullptr && sequence->bool_value() == true) {
    diagnostics.warning(*sequence, "sequence_parallel has no effect while tp_size is 1");
  }
}

/// The recipe's model without memory; null when its configuration is not here or wrong.
std::shared_ptr<models::CausalLM> buildable_model(const Recipe& recipe) {
  const Json& config = recipe.model.hf_config;
  const bool is_buildable = config.is_object() && models::find_family(config).is_known &&
                            models::check_config(config).empty();
  return is_buildable ? models::build_causal_lm(config, at::kFloat) : nullptr;
}

}  // namespace

TpRequest tp_request(const Recipe& recipe) {
  const distributed::DistributedSetup& setup = recipe.distributed;
  TpRequest request;
  request.size = setup.sizes.tp_size.value_or(1);
  if (setup.strategy != Strategy::kFsdp2) return request;
  request.sequence_parallel = setup.fsdp2.sequence_parallel;
  if (setup.fsdp2.tp_plan) request.plan = *setup.fsdp2.tp_plan;
  if (setup.fsdp2.tp_plan_name) request.plan = *setup.fsdp2.tp_plan_name;
  return request;
}

TpModel tp_model(const models::CausalLM& model) {
  const models::ModelDims dims = model.dims();
  // A pipeline stage has some of the parameters only.
  const auto parameters = model.named_parameters();
  tensor::KeyMap keys = model.key_map();
  std::erase_if(keys, [&](const tensor::ParameterPart& part) {
    return parameters.find(part.parameter) == nullptr;
  });
  return {model.architecture(), dims.num_heads,        dims.num_kv_heads,
          dims.vocab_size,      model.parallel_plan(), std::move(keys)};
}

std::optional<bool> splits_vocabulary(const Recipe& recipe) {
  const TpRequest request = tp_request(recipe);
  if (request.size == 1 || recipe.distributed.strategy == Strategy::kDdp) return false;
  const auto model = buildable_model(recipe);
  if (model == nullptr) return std::nullopt;
  try {
    const TpModel what = tp_model(*model);
    const auto layers = distributed::plan_layers(
        *model, what, distributed::get_parallel_plan(what, request.sequence_parallel, request.plan),
        {.tp_size = static_cast<int>(request.size),
         .sequence_parallel = request.sequence_parallel});
    if (!layers.findings.empty()) return std::nullopt;
    return layers.splits_vocabulary;
  } catch (const UserError&) {
    return std::nullopt;  // check_tensor_parallel reports it
  }
}

mesh::MeshSizes mesh_of(const Recipe& recipe, int64_t world_size) {
  return mesh::infer_sizes(distributed::size_request(recipe.distributed.sizes), world_size);
}

void check_tensor_parallel(const Recipe& recipe, Diagnostics& diagnostics) {
  const TpRequest request = tp_request(recipe);
  check_flags(recipe, diagnostics);
  if (!check_choice(recipe, request.plan, diagnostics)) return;
  if (request.size == 1) return warn_of_idle_keys(recipe, diagnostics);
  if (recipe.distributed.strategy == Strategy::kDdp) return;
  const auto model = buildable_model(recipe);
  if (model == nullptr) return;  // other checks report it
  const TpModel what = tp_model(*model);
  const distributed::TpShardPlan plan =
      distributed::get_parallel_plan(what, request.sequence_parallel, request.plan);
  const auto layers = distributed::plan_layers(
      *model, what, plan,
      {.tp_size = static_cast<int>(request.size),
       .sequence_parallel = request.sequence_parallel,
       .must_match = std::holds_alternative<distributed::TpStyleNames>(request.plan)});
  for (const distributed::TpFinding& finding : layers.findings) {
    diagnostics.error(place_of_entry(recipe, finding.pattern), finding.text);
  }
}

}  // namespace automodel::recipes
