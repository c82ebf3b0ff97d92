#include "recipes/read/recipe_schema.h"

#include <algorithm>
#include <map>
#include <regex>
#include <string>
#include <utility>
#include <vector>

#include "config/schema.h"
#include "recipes/read/backend_section.h"
#include "recipes/read/dataset_recipe.h"
#include "recipes/read/inactive_sections.h"
#include "recipes/read/nvfsdp_names.h"
#include "recipes/read/recipe.h"
#include "recipes/read/retrieval_section.h"
#include "recipes/read/section_targets.h"
#include "recipes/read/targets_distributed.h"
#include "recipes/read/targets_optimizer.h"
#include "recipes/read/targets_simple.h"

namespace automodel::recipes {

namespace {

/// The schema of a target's name: a known one, or any other name in upstream's packages, which this
/// version may not have.
Json name_schema(const config::TargetNames& registry) {
  Json names = Json::array();
  for (const config::TargetInfo& info : registry.infos()) {
    names.push_back(info.name);
    for (const std::string& alias : info.aliases) names.push_back(alias);
  }
  Json known = Json::object();
  known["enum"] = std::move(names);
  Json foreign = Json::object();
  foreign["type"] = "string";
  foreign["pattern"] =
      "^(nemo_automodel|transformers|torch|torchao|torchdata|transformer_engine|megatron)\\.|\\$";
  Json schema = Json::object();
  schema["description"] = cat("which ", registry.kind());
  schema["anyOf"] = Json(Json::Array{std::move(known), std::move(foreign)});
  return schema;
}

/// A schema of a key, and the targets that have the key so.
struct KeyVariant {
  Json schema;
  std::vector<std::string> targets;
};

/// One schema of a key that several targets have: theirs, if it is the same, or else one that takes
/// what any of them takes, of which each `title` names the targets.
Json schema_of_variants(std::vector<KeyVariant> variants) {
  if (variants.size() == 1) return std::move(variants[0].schema);
  Json schema = Json::object();
  if (const Json* doc = variants[0].schema.find("description")) schema["description"] = *doc;
  schema["anyOf"] = Json::array();
  for (KeyVariant& variant : variants) {
    variant.schema["title"] = join(variant.targets, ", ");
    schema["anyOf"].push_back(std::move(variant.schema));
  }
  return schema;
}

/// "AdamW" of "torch.optim.AdamW"; the whole name where another target ends so.
std::string short_name(const config::TargetNames& registry, const std::string& name) {
  const std::string last = name.substr(name.rfind('.') + 1);
  const auto ends_so = [&](const config::TargetInfo& info) {
    return info.unsupported_reason.empty() && info.name.substr(info.name.rfind('.') + 1) == last;
  };
  return std::ranges::count_if(registry.infos(), ends_so) > 1 ? name : last;
}

/// The schema of an object with a `_target_` among the registry's names; it allows the options of
/// all names, so that editors complete them.
Json target_schema(const config::TargetNames& registry, const char* doc) {
  std::vector<std::string> keys;
  std::map<std::string, std::vector<KeyVariant>> variants;
  for (const config::TargetInfo& info : registry.infos()) {
    const Json* options = info.options.find("properties");
    if (!info.unsupported_reason.empty() || options == nullptr) continue;
    for (const auto& [key, schema] : options->as_object()) {
      std::vector<KeyVariant>& of_key = variants[key];
      if (of_key.empty()) keys.push_back(key);
      auto same = std::ranges::find_if(of_key, [&, text = schema.dump()](const KeyVariant& it) {
        return it.schema.dump() == text;
      });
      if (same == of_key.end()) same = of_key.insert(same, {schema, {}});
      same->targets.push_back(short_name(registry, info.name));
    }
  }
  Json properties = Json::object();
  for (const std::string& key : keys)
    properties[key] = schema_of_variants(std::move(variants[key]));
  properties["_target_"] = name_schema(registry);
  Json schema = Json::object();
  schema["type"] = Json(Json::Array{Json("object"), Json("null")});
  schema["description"] = doc;
  schema["properties"] = std::move(properties);
  return schema;
}

template <HasFields T>
Json section(const char* doc) {
  Json schema = config::schema_of<T>();
  schema["description"] = doc;
  return schema;
}

/// Adds the sections that have no effect, for editors.
void add_inactive_sections(Json& properties) {
  const auto add = [&](const char* key, Json schema, const char* doc) {
    schema["description"] = doc;
    properties[key] = std::move(schema);
  };
  const auto add_of_class = [&](const char* key, Json schema, const char* doc) {
    schema["properties"]["_target_"] = name_schema(section_targets(key));
    add(key, std::move(schema), doc);
  };
  add_of_class("rng", config::schema_of<RngSection>(), "no effect: seed says it");
  add("compile", config::schema_of<CompileSection>(), "no effect: kernels are fused already");
  add_of_class("prewarm", config::schema_of<PrewarmSection>(),
               "no effect: there is nothing to warm up");
  add_of_class("fp8", config::schema_of<Fp8Section>(), "no effect here");
  add_of_class(
      "embedding_row_repair", config::schema_of<EmbeddingRowRepairSection>(),
      "rows of the base's embedding that are zero or not finite get the head's direction; absent: "
      "off");
  add_of_class("comet", config::schema_of<CometSection>(), "not in this version");
}

Json wandb_schema() {
  Json schema = section<trackers::WandbConfig>(
      "Weights & Biases, which metrics are sent to, or kept for; absent: none");
  schema.erase("additionalProperties");  // upstream hands other keys to wandb.init
  Json& resume = schema["properties"]["resume"];
  Json choices = Json::array();
  choices.push_back(std::move(resume));
  choices.push_back(Json::object());
  choices.as_array().back()["type"] = "boolean";
  resume = Json::object();
  resume["anyOf"] = std::move(choices);
  return schema;
}

/// Adds the properties of another struct that the schema does not have yet.
void add_properties(Json& schema, const Json& other) {
  for (const auto& [key, value] : other.at("properties").as_object()) {
    if (!schema["properties"].contains(key)) schema["properties"][key] = value;
  }
}

/// `distributed.strategy` alone.
struct StrategyChoice {
  distributed::Strategy strategy = distributed::Strategy::kFsdp2;

  static constexpr auto fields() {
    return std::tuple{field("strategy", &StrategyChoice::strategy, "")};
  }
};

/// The top-level keys that are not sections.
struct TopLevel {
  int64_t seed = 42;
  bool stop_on_non_finite = true;
  MatmulPrecision float32_matmul_precision = MatmulPrecision::kHighest;

  static constexpr auto fields() {
    return std::tuple{field("seed", &TopLevel::seed, "seed of weights, order and dropout"),
                      field("stop_on_non_finite", &TopLevel::stop_on_non_finite,
                            "end the run at a loss or gradient that is not finite"),
                      field("float32_matmul_precision", &TopLevel::float32_matmul_precision,
                            "products of float32 matrices: ieee (float32 multiply-adds alone), "
                            "highest (an error no greater than theirs), high (TF32 on a GPU)")};
  }
};

Json distributed_schema() {
  Json schema = section<distributed::ParallelismSizes>("how ranks share the work");
  add_properties(schema, config::schema_of<distributed::ContextParallelConfig>());
  add_properties(schema, config::schema_of<distributed::FSDP2Config>());
  add_properties(schema, config::schema_of<distributed::MegatronFSDPConfig>());
  add_properties(schema, config::schema_of<distributed::DDPConfig>());
  Json strategy = config::schema_of<StrategyChoice>().at("properties").at("strategy");
  strategy["description"] = "how parameters, gradients and optimizer state are placed";
  schema["properties"]["strategy"] = std::move(strategy);
  Json pipeline = section<distributed::PipelineConfig>("pipeline parallelism; needs pp_size > 1");
  pipeline["properties"]["_target_"] = name_schema(pipeline_targets());
  Json moe = section<distributed::MoEParallelizerConfig>("expert parallelism; needs ep_size > 1");
  moe["properties"]["_target_"] = name_schema(moe_targets());
  moe["properties"]["mp_policy"]["properties"]["_target_"] = name_schema(mp_policy_targets());
  schema["properties"]["pipeline"] = std::move(pipeline);
  schema["properties"]["moe"] = std::move(moe);
  schema["properties"]["_target_"] = name_schema(distributed_targets());
  schema["properties"]["mp_policy"]["properties"]["_target_"] = name_schema(mp_policy_targets());
  schema["properties"]["offload_policy"]["properties"]["_target_"] =
      name_schema(offload_policy_targets());
  for (const char* key : {"_recursive_", "_convert_", "multimodal"}) {
    schema["properties"][key] = Json::object();
  }
  for (const auto& [older, name] : nvfsdp_names()) {
    schema["properties"][older] = schema.at("properties").at(name);
  }
  Json sharding = Json::object();
  sharding["description"] =
      "what zero_dp_strategy says, by a name; params keeps gradients whole, grads_params is 3";
  sharding["enum"] = Json::array();
  for (const char* name :
       {"no_shard", "optim", "optim_grads", "optim_grads_params", "params", "grads_params"}) {
    sharding["enum"].push_back(name);
  }
  sharding["enum"].push_back(Json());
  schema["properties"][kShardingName] = std::move(sharding);
  // tp_plan may also be a plan's name; both strategies have the key.
  schema["properties"]["tp_plan"]["type"] =
      Json(Json::Array{Json("object"), Json("string"), Json("null")});
  return schema;
}

Json model_schema(const char* doc) {
  Json schema = target_schema(model_targets(), doc);
  add_properties(schema, config::schema_of<ModelSection>());
  Json anything = Json::object();
  anything["description"] = "folder or name of a configuration, or its keys";
  schema["properties"]["config"] = anything;
  anything["description"] =
      "names of a classifier's classes by number, {0: negative, 1: positive}, or in order; data "
      "may "
      "name classes so, and the exported folder has them";
  schema["properties"]["id2label"] = anything;
  anything["description"] = "numbers of a classifier's classes by name; id2label is enough";
  schema["properties"]["label2id"] = anything;
  anything["description"] =
      "single_label_classification, the only kind here: every text has one of several classes";
  schema["properties"]["problem_type"] = anything;
  Json backend = section<BackendSection>("which kernels compute what");
  for (auto& [key, of_key] : backend["properties"].as_object()) {
    if (BackendSection::reads(key)) continue;
    of_key["description"] = cat(of_key.at("description").as_string(),
                                ". No effect here: one implementation is built in");
  }
  schema["properties"]["backend"] = std::move(backend);
  schema["properties"]["backend"]["properties"]["_target_"] =
      name_schema(section_targets("backend"));
  schema["properties"]["backend"]["properties"]["te_fp8"]["properties"]["_target_"] =
      name_schema(section_targets("te_fp8"));
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

Json tokenizer_schema(const char* doc) {
  Json tokenizer = section<TokenizerSection>(doc);
  tokenizer["properties"]["_target_"] = name_schema(tokenizer_targets());
  tokenizer.erase("pattern");  // the name of a folder only
  return tokenizer;
}

Json dataset_schema(const char* doc) {
  Json schema = target_schema(dataset_targets(), doc);
  schema["properties"]["tokenizer"] =
      tokenizer_schema("folder with tokenizer.json; absent: the model's");
  schema["properties"]["datasets"]["type"] = Json("array");
  schema["properties"]["datasets"]["items"] = Json::Object{{"$ref", "#/properties/dataset"}};
  return schema;
}

Json tool_call_schema() {
  Json schema = section<ToolCallEvalSection>(
      "how well the model calls tools, asked when a run validates; absent: it is not asked");
  schema["properties"]["_target_"] = name_schema(section_targets("tool_call_eval"));
  schema["properties"]["tokenizer"] =
      tokenizer_schema("folder with tokenizer.json; absent: the dataset's");
  return schema;
}

Json qat_schema() {
  Json schema = section<QatSection>(
      "quantization-aware training: products round their operands; absent: they do not");
  Json config = section<QatConfig>("how they are rounded; absent: its defaults");
  config["properties"]["_target_"] = name_schema(section_targets("qat_config"));
  schema["properties"]["qat_config"] = std::move(config);
  return schema;
}

/// A section, or noise_alpha alone.
Json neftune_schema() {
  Json schema = section<NeftuneSection>(
      "noise on embedded tokens in training (NEFTune), or noise_alpha alone; absent: none");
  schema["properties"]["_target_"] = name_schema(section_targets("neftune"));
  const char* types[] = {"object", "number", "string", "null"};
  schema["type"] = Json(Json::Array(std::begin(types), std::end(types)));
  schema["minimum"] = 0;
  return schema;
}

/// What only the recipe that distils has.
void add_distillation(Json& properties) {
  properties["teacher_model"] =
      model_schema("the frozen model that a student learns from; spread over the same ranks");
  properties["kd_loss_fn"] =
      target_schema(kd_loss_targets(), "how far the student is from the teacher");
  const Json keys = config::schema_of<DistillationKeys>();
  for (const auto& [key, schema] : keys.at("properties").as_object()) properties[key] = schema;
  Json distributed = Json::object();
  distributed["description"] = "with separate_meshes: how the teacher is spread over its own ranks";
  properties["teacher_distributed"] = std::move(distributed);
}

/// A recipe class by name, by dotted path or as a `_target_`.
Json recipe_name_schema() {
  Json names = Json::array();
  const auto recipes = recipe_targets();
  for (const config::TargetInfo& info : recipes.infos()) {
    if (info.unsupported_reason.empty()) names.push_back(info.name);
  }
  Json known = Json::object();
  known["enum"] = std::move(names);
  Json foreign = Json::object();
  foreign["type"] = "string";
  foreign["pattern"] = "Recipe|\\$";
  Json target = Json::object();
  target["type"] = "object";
  target["required"] = Json(Json::Array{Json("_target_")});
  Json schema = Json::object();
  schema["description"] = "which recipe to run";
  schema["anyOf"] = Json(Json::Array{std::move(known), std::move(foreign), std::move(target)});
  return schema;
}

}  // namespace

Json recipe_schema() {
  Json properties = Json::object();
  properties["recipe"] = recipe_name_schema();
  const Json top_level = config::schema_of<TopLevel>();
  for (const auto& [key, schema] : top_level.at("properties").as_object()) properties[key] = schema;
  properties["step_scheduler"] =
      section<training::StepSchedulerConfig>("how long to train, when to save and validate");
  properties["dist_env"] = section<DistEnvSection>("the process group");
  properties["distributed"] = distributed_schema();
  properties["model"] = model_schema("what to train");
  add_properties(properties["model"], config::schema_of<BiEncoderSection>());
  const Json of_embeddings = config::schema_of<EmbeddingKeys>();
  for (const auto& [key, schema] : of_embeddings.at("properties").as_object()) {
    properties[key] = schema;
  }
  properties["tokenizer"] =
      tokenizer_schema("of a recipe for embeddings: that of its data sets which name none");
  properties["dataset"] = dataset_schema("what to train on");
  properties["validation_dataset"] = dataset_schema("what to validate on");
  properties["dataloader"] = loader_schema("how training batches are made");
  properties["validation_dataloader"] = loader_schema("how validation batches are made");
  properties["packed_sequence"] = section<PackedSequenceSection>("packing of short samples");
  properties["loss_fn"] = target_schema(loss_targets(), "the loss");
  properties["optimizer"] = target_schema(optimizer_targets(), "the optimizer");
  properties["lr_scheduler"] =
      section<optim::LrSchedulerConfig>("the learning rate over time; absent: constant");
  properties["lr_scheduler"]["properties"]["_target_"] = name_schema(lr_scheduler_targets());
  properties["clip_grad_norm"] = section<ClipSection>("gradient clipping; absent: at 1");
  properties["peft"] = section<peft::PeftConfig>(
      "low-rank adapters are trained, everything else is frozen; absent: all is trained");
  properties["peft"]["properties"]["_target_"] = name_schema(peft_targets());
  properties["quantization"] = section<QuantizationSection>(
      "frozen base weights in fewer bits (QLoRA), under adapters (peft); absent: floats");
  properties["quantization"]["properties"]["_target_"] =
      name_schema(section_targets("quantization"));
  properties["qat"] = qat_schema();
  properties["freeze_config"] = section<FreezeSection>(
      "parameters that are not trained, without adapters; absent: all are trained");
  properties["neftune"] = neftune_schema();
  properties["tool_call_eval"] = tool_call_schema();
  properties["early_stopping"] = section<training::EarlyStoppingConfig>(
      "the run ends once the validation loss that LOWEST_VAL follows falls no more; absent: never");
  properties["checkpoint"] = section<CheckpointSection>("saving, exporting and resuming");
  properties["checkpoint"]["properties"]["save_consolidated"]["type"] =
      Json(Json::Array{Json("string"), Json("boolean"), Json("null")});
  properties["mfu"] = section<MfuSection>("what model FLOPs utilisation is measured against");
  properties["benchmark"] = section<BenchmarkSection>("what the benchmark recipe measures");
  properties["dllm"] = section<DllmSection>("how a diffusion language model is trained");
  properties["moe_metrics"] = section<MoeMetricsSection>("how evenly experts are used");
  properties["tensorboard"] =
      section<trackers::TensorBoardConfig>("event files for TensorBoard; absent: none");
  properties["mlflow"] =
      section<trackers::MlflowConfig>("an MLflow server that metrics are sent to; absent: none");
  properties["mlflow"]["properties"]["_target_"] = name_schema(section_targets("mlflow"));
  properties["wandb"] = wandb_schema();
  add_distillation(properties);
  add_inactive_sections(properties);
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

std::string path_in_schema(const std::string& path) {
  static const std::regex part(R"(\.datasets\.[0-9]+(?=\.|$))");
  return std::regex_replace(path, part, "");
}

std::string explain(const std::string& dotted_key) {
  const std::string key = path_in_schema(dotted_key);
  const Json schema = recipe_schema();
  const std::string text = inactive_section_text(key);
  // Those with keys of their own are in the schema, which says it too.
  if (!text.empty() && !schema.at("properties").contains(key)) return cat(key, ": ", text);
  return config::explain(schema, key);
}

}  // namespace automodel::recipes
