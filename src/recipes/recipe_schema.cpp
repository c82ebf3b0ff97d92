#include "config/schema.h"
#include "recipes/recipe.h"
#include "recipes/targets.h"

namespace automodel::recipes {

namespace {

/// An object schema with a `_target_` of the registry's names; the options of every name are
/// allowed, so that editors complete them.
template <typename Maker>
Json target_schema(const config::TargetRegistry<Maker>& registry, const char* doc) {
  Json names = Json::array();
  Json properties = Json::object();
  for (const config::TargetInfo& info : registry.infos()) {
    if (!info.unsupported_reason.empty()) continue;
    names.push_back(info.name);
    for (const std::string& alias : info.aliases) names.push_back(alias);
    if (const Json* options = info.options.find("properties")) {
      for (const auto& [key, schema] : options->as_object()) {
        if (!properties.contains(key)) properties[key] = schema;
      }
    }
  }
  Json target = Json::object();
  target["type"] = "string";
  target["description"] = cat("which ", registry.kind());
  target["enum"] = names;
  properties["_target_"] = std::move(target);
  Json schema = Json::object();
  schema["type"] = Json(Json::Array{Json("object"), Json("null")});
  schema["description"] = doc;
  schema["properties"] = std::move(properties);
  return schema;
}

/// `_target_` of the names of a registry.
template <typename Maker>
Json target_names(const config::TargetRegistry<Maker>& registry) {
  return target_schema(registry, "").at("properties").at("_target_");
}

template <HasFields T>
Json section(const char* doc) {
  Json schema = config::schema_of<T>();
  schema["type"] = Json(Json::Array{Json("object"), Json("null")});
  schema["description"] = doc;
  return schema;
}

/// Adds the properties of other structs; keys are the union.
void add_properties(Json& schema, const Json& other) {
  for (const auto& [key, value] : other.at("properties").as_object()) {
    if (!schema["properties"].contains(key)) schema["properties"][key] = value;
  }
}

Json distributed_schema() {
  Json schema = section<distributed::ParallelismSizes>("how ranks share the work");
  add_properties(schema, config::schema_of<distributed::ContextParallelConfig>());
  add_properties(schema, config::schema_of<distributed::FSDP2Config>());
  add_properties(schema, config::schema_of<distributed::MegatronFSDPConfig>());
  add_properties(schema, config::schema_of<distributed::DDPConfig>());
  Json strategy = Json::object();
  strategy["enum"] = Json(Json::Array{Json("fsdp2"), Json("megatron_fsdp"), Json("ddp")});
  strategy["default"] = "fsdp2";
  strategy["description"] = "how parameters, gradients and optimizer state are placed";
  schema["properties"]["strategy"] = std::move(strategy);
  Json pipeline = section<distributed::PipelineConfig>("pipeline parallelism; needs pp_size > 1");
  pipeline["properties"]["_target_"] = target_names(pipeline_targets());
  Json moe = section<distributed::MoEParallelizerConfig>("expert parallelism; needs ep_size > 1");
  moe["properties"]["_target_"] = target_names(moe_targets());
  moe["properties"]["mp_policy"]["properties"]["_target_"] = target_names(mp_policy_targets());
  schema["properties"]["pipeline"] = std::move(pipeline);
  schema["properties"]["moe"] = std::move(moe);
  schema["properties"]["_target_"] = target_names(distributed_targets());
  schema["properties"]["mp_policy"]["properties"]["_target_"] = target_names(mp_policy_targets());
  schema["properties"]["offload_policy"]["properties"]["_target_"] =
      target_names(offload_policy_targets());
  return schema;
}

Json model_schema() {
  Json schema = target_schema(model_targets(), "what to train");
  add_properties(schema, config::schema_of<ModelSection>());
  Json anything = Json::object();
  anything["description"] = "folder or name of a configuration, or its keys";
  schema["properties"]["config"] = anything;
  anything["description"] = "kernels of other libraries; no effect here";
  schema["properties"]["backend"] = anything;
  anything["description"] =
      "upstream's MoEConfig: gate_bias_update_factor, by which each step moves the correction of "
      "the choice of experts towards even load (absent: 0.001 for DeepSeek-V3, 0 for GLM-4.5)";
  schema["properties"]["moe_overrides"] = anything;
  schema.erase("additionalProperties");
  return schema;
}

Json loader_schema(const char* doc) {
  Json schema = target_schema(dataloader_targets(), doc);
  add_properties(schema, config::schema_of<datasets::DataloaderConfig>());
  Json collate = Json::object();
  collate["description"] = "how samples become a batch";
  schema["properties"]["collate_fn"] = std::move(collate);
  return schema;
}

Json dataset_schema(const char* doc) {
  Json schema = target_schema(dataset_targets(), doc);
  Json tokenizer = Json::object();
  tokenizer["description"] = "folder with tokenizer.json; absent: the model's";
  schema["properties"]["tokenizer"] = std::move(tokenizer);
  return schema;
}

Json plain(const char* type, Json fallback, const char* doc) {
  Json schema = Json::object();
  schema["type"] = type;
  schema["description"] = doc;
  schema["default"] = std::move(fallback);
  return schema;
}

}  // namespace

Json recipe_schema() {
  Json properties = Json::object();
  Json recipe = Json::object();
  recipe["description"] = "which recipe to run";
  Json names = Json::array();
  const auto recipes = recipe_targets();
  for (const config::TargetInfo& info : recipes.infos()) {
    if (info.unsupported_reason.empty()) names.push_back(info.name);
  }
  recipe["enum"] = std::move(names);
  properties["recipe"] = std::move(recipe);
  properties["seed"] = plain("integer", 42, "seed of weights, order and dropout");
  properties["stop_on_non_finite"] =
      plain("boolean", true, "end the run at a loss or gradient that is not finite");
  properties["step_scheduler"] =
      section<training::StepSchedulerConfig>("how long to train, when to save and validate");
  properties["dist_env"] = section<DistEnvSection>("the process group");
  properties["distributed"] = distributed_schema();
  properties["model"] = model_schema();
  properties["dataset"] = dataset_schema("what to train on");
  properties["validation_dataset"] = dataset_schema("what to validate on");
  properties["dataloader"] = loader_schema("how training batches are made");
  properties["validation_dataloader"] = loader_schema("how validation batches are made");
  properties["packed_sequence"] = section<PackedSequenceSection>("packing of short samples");
  properties["loss_fn"] = target_schema(loss_targets(), "the loss");
  properties["optimizer"] = target_schema(optimizer_targets(), "the optimizer");
  properties["lr_scheduler"] =
      section<optim::LrSchedulerConfig>("the learning rate over time; absent: constant");
  properties["lr_scheduler"]["properties"]["_target_"] = target_names(lr_scheduler_targets());
  properties["clip_grad_norm"] = section<ClipSection>("gradient clipping; absent: at 1");
  properties["checkpoint"] = section<CheckpointSection>("saving, exporting and resuming");
  properties["mfu"] = section<MfuSection>("what model FLOPs utilisation is measured against");
  properties["dllm"] = section<DllmSection>("how a diffusion language model is trained");
  properties["moe_metrics"] = section<MoeMetricsSection>("how evenly experts are used");
  Json schema = Json::object();
  schema["type"] = "object";
  schema["properties"] = std::move(properties);
  Json patterns = Json::object();
  patterns["^validation_dataset_"] = dataset_schema("a further validation set");
  patterns["^_"] = Json::object();
  schema["patternProperties"] = std::move(patterns);
  return config::schema_document(std::move(schema), "recipe.schema.json",
                                 "automodel training recipe");
}

std::string explain(const std::string& key) {
  return config::explain(recipe_schema(), key);
}

}  // namespace automodel::recipes
