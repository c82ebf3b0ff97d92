#include "recipes/read/targets_distributed.h"

#include "config/schema.h"
#include "recipes/read/dataset_recipe.h"
#include "recipes/read/section_targets.h"
#include "recipes/read/targets_optimizer.h"

namespace automodel::recipes {

namespace {

const std::string kDistributed = "nemo_automodel.components.distributed.";

/// The aliases of an upstream configuration class: the class in every module that has it, its short
/// name, and the same of the managers that came before it.
std::vector<std::string> config_aliases(
    const char* config, const char* config_module,
    const std::vector<std::pair<const char*, const char*>>& managers) {
  std::vector<std::string> aliases = {cat(kDistributed, config), config,
                                      cat(kDistributed, config_module, ".", config)};
  for (const auto& [module, manager] : managers) {
    aliases.push_back(cat(kDistributed, module, ".", manager));
    aliases.emplace_back(manager);
  }
  return aliases;
}

/// A policy's names in the modules of torch that have it, by version.
std::vector<std::string> policy_aliases(const char* name) {
  return {cat("torch.distributed._composable.fsdp.", name),
          cat("torch.distributed._composable.fsdp.fully_shard.", name),
          cat("torch.distributed.fsdp._fully_shard.", name),
          cat("torch.distributed.fsdp._fully_shard._fsdp_api.", name), name};
}

/// Adds the names of a registry to a table.
void add(const config::TargetNames& registry, distributed::ClassTable& table) {
  for (const config::TargetInfo& info : registry.infos()) {
    const std::string name = info.name.substr(info.name.rfind('.') + 1);
    table.add({info.name, name, registry.kind(), info.unsupported_reason}, info.aliases);
  }
}

}  // namespace

config::TargetRegistry<distributed::Strategy> distributed_targets() {
  using distributed::Strategy;
  config::TargetRegistry<Strategy> registry("distributed configuration");
  registry.add({.name = cat(kDistributed, "config.FSDP2Config"),
                .aliases = config_aliases("FSDP2Config", "fsdp2", {{"fsdp2", "FSDP2Manager"}}),
                .doc = "strategy: fsdp2"},
               Strategy::kFsdp2);
  registry.add({.name = cat(kDistributed, "config.MegatronFSDPConfig"),
                .aliases = config_aliases(
                    "MegatronFSDPConfig", "megatron_fsdp",
                    {{"megatron_fsdp", "MegatronFSDPManager"}, {"nvfsdp", "NVFSDPManager"}}),
                .doc = "strategy: megatron_fsdp"},
               Strategy::kMegatronFsdp);
  registry.add({.name = cat(kDistributed, "config.DDPConfig"),
                .aliases = config_aliases("DDPConfig", "ddp", {{"ddp", "DDPManager"}}),
                .doc = "strategy: ddp"},
               Strategy::kDdp);
  registry.add_unsupported(cat(kDistributed, "config.DistributedConfig"),
                           "it stands for FSDP2Config, MegatronFSDPConfig and DDPConfig, of which "
                           "a recipe names one",
                           {"DistributedConfig"});
  return registry;
}

config::TargetRegistry<AcceptedTarget> mp_policy_targets() {
  config::TargetRegistry<AcceptedTarget> registry("mixed-precision policy");
  registry.add({.name = "torch.distributed.fsdp.MixedPrecisionPolicy",
                .aliases = policy_aliases("MixedPrecisionPolicy"),
                .doc = "dtypes of parameters, reductions and outputs"},
               {});
  return registry;
}

config::TargetRegistry<OffloadTarget> offload_policy_targets() {
  config::TargetRegistry<OffloadTarget> registry("offload policy");
  registry.add({.name = "torch.distributed.fsdp.CPUOffloadPolicy",
                .aliases = policy_aliases("CPUOffloadPolicy"),
                .doc = "parameters and gradients rest on the CPU"},
               OffloadTarget::kCpu);
  registry.add({.name = "torch.distributed.fsdp.OffloadPolicy",
                .aliases = policy_aliases("OffloadPolicy"),
                .doc = "nothing is offloaded"},
               OffloadTarget::kNothing);
  return registry;
}

config::TargetRegistry<AcceptedTarget> pipeline_targets() {
  config::TargetRegistry<AcceptedTarget> registry("pipeline configuration");
  registry.add({.name = cat(kDistributed, "pipelining.config.PipelineConfig"),
                .aliases = {cat(kDistributed, "pipelining.PipelineConfig"),
                            cat(kDistributed, "PipelineConfig"), "PipelineConfig"},
                .doc = "options of pipeline parallelism"},
               {});
  return registry;
}

config::TargetRegistry<AcceptedTarget> moe_targets() {
  config::TargetRegistry<AcceptedTarget> registry("expert-parallel configuration");
  registry.add({.name = cat(kDistributed, "config.MoEParallelizerConfig"),
                .aliases = {cat(kDistributed, "MoEParallelizerConfig"),
                            "nemo_automodel.components.moe.config.MoEParallelizerConfig",
                            "MoEParallelizerConfig"},
                .doc = "options of expert parallelism"},
               {});
  return registry;
}

config::TargetRegistry<AcceptedTarget> lr_scheduler_targets() {
  config::TargetRegistry<AcceptedTarget> registry("learning-rate scheduler");
  const std::string optim = "nemo_automodel.components.optim.";
  registry.add({.name = cat(optim, "scheduler.OptimizerParamScheduler"),
                .aliases = {cat(optim, "OptimizerParamScheduler"), "OptimizerParamScheduler",
                            cat(optim, "optimizer.LRSchedulerConfig"),
                            cat(optim, "LRSchedulerConfig"), "LRSchedulerConfig"},
                .doc = "warm-up and decay of the learning rate"},
               {});
  return registry;
}

config::TargetRegistry<AcceptedTarget> peft_targets() {
  config::TargetRegistry<AcceptedTarget> registry("adapter configuration");
  const std::string peft = "nemo_automodel.components._peft.";
  registry.add({.name = cat(peft, "lora.PeftConfig"),
                .aliases = {cat(peft, "PeftConfig"), "PeftConfig"},
                .doc = "low-rank adapters of linear layers"},
               {});
  return registry;
}

distributed::ClassTable recipe_classes() {
  distributed::ClassTable table = distributed::module_classes();
  for (const models::FamilyFacts& family : models::family_facts()) {
    const std::string layer(family.layer_class);
    const std::string experts(family.experts_class);
    for (const auto& [name, kind] : {std::pair{layer, "layer"}, {experts, "experts"}}) {
      if (name.empty()) continue;
      const auto [in_file, in_module] = class_paths(family, "modeling", name);
      table.add({in_file, name, kind, ""}, {in_module});
    }
    table.add_model(std::string(family.architecture), {layer, experts});
    if (!family.classifier.empty()) {
      table.add_model(std::string(family.classifier), {layer, experts});
    }
  }
  add(optimizer_targets(), table);
  add(loss_targets(), table);
  add(dataset_targets(), table);
  add(model_targets(), table);
  add(model_config_targets(), table);
  add(collate_targets(), table);
  add(dataloader_targets(), table);
  add(tokenizer_targets(), table);
  add(recipe_targets(), table);
  add(distributed_targets(), table);
  add(mp_policy_targets(), table);
  add(offload_policy_targets(), table);
  add(pipeline_targets(), table);
  add(moe_targets(), table);
  add(lr_scheduler_targets(), table);
  add(peft_targets(), table);
  add(kd_loss_targets(), table);
  for (const std::string& section : sections_of_a_class()) add(section_targets(section), table);
  return table;
}

distributed::ImportedClass import_class_from_path(const std::string& path) {
  return distributed::import_class_from_path(path, recipe_classes());
}

}  // namespace automodel::recipes
