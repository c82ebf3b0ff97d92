#include "distributed/settings/distributed_config.h"

#include <algorithm>

#include "core/error.h"
#include "core/text.h"

namespace automodel::distributed {

namespace {

void check_megatron(const DistributedSetup& setup, const mesh::SizeRequest& sizes,
                    std::vector<SetupFinding>& findings) {
  if (sizes.pp > 1) {
    findings.push_back({"pp_size", "megatron_fsdp does not support pipeline parallelism"});
  }
  if (sizes.ep > 1) {
    findings.push_back({"ep_size", "megatron_fsdp does not support expert parallelism"});
  }
  if (setup.megatron_fsdp.sequence_parallel) {
    findings.push_back(
        {"sequence_parallel", "megatron_fsdp does not yet support sequence_parallel"});
  }
  if (setup.megatron_fsdp.activation_checkpointing == ActivationCheckpointingMode::kSelective) {
    findings.push_back(
        {"activation_checkpointing",
         "selective activation checkpointing is supported only for FSDP2 and DDP configs."});
  }
}

void check_ddp(const mesh::SizeRequest& sizes, std::vector<SetupFinding>& findings) {
  const std::pair<const char*, std::pair<int64_t, const char*>> axes[] = {
      {"tp_size", {sizes.tp, "tensor"}},
      {"pp_size", {sizes.pp, "pipeline"}},
      {"cp_size", {sizes.cp, "context"}},
      {"ep_size", {sizes.ep, "expert"}}};
  for (const auto& [key, axis] : axes) {
    if (axis.first > 1) {
      findings.push_back({key, cat("ddp does not support ", axis.second, " parallelism")});
    }
  }
}

/// One entry of a scope: "Vision+Audio" has two parts.
std::vector<std::string> scope_parts(const std::string& entry) {
  return split(replace_all(replace_all(to_lower(entry), "-", "_"), "+", ","), ',');
}

}  // namespace

MixedPrecisionPolicy default_mp_policy() {
  return {.param_dtype = "bfloat16", .reduce_dtype = "float32", .cast_forward_inputs = false};
}

std::string async_tp_warning(bool enable_async_tensor_parallel, bool sequence_parallel) {
  if (!enable_async_tensor_parallel || sequence_parallel) return "";
  return "enable_async_tensor_parallel needs sequence_parallel, which is turned on";
}

std::vector<SetupFinding> FSDP2Config::post_init() {
  if (!mp_policy) mp_policy = default_mp_policy();
  activation_checkpointing_scope =
      normalize_activation_checkpointing_scope(activation_checkpointing_scope);
  const std::string warning = async_tp_warning(enable_async_tensor_parallel, sequence_parallel);
  if (warning.empty()) return {};
  sequence_parallel = true;
  return {{"enable_async_tensor_parallel", warning}};
}

std::vector<SetupFinding> MegatronFSDPConfig::post_init(
    const std::optional<std::map<std::string, std::string>>& tp_plan) {
  if (tp_plan) {
    throw UserError(
        "MegatronFSDPConfig does not support custom TP plans. Use FSDP2Config instead.");
  }
  return {};
}

std::vector<SetupFinding> DDPConfig::post_init() {
  activation_checkpointing_scope =
      normalize_activation_checkpointing_scope(activation_checkpointing_scope);
  return {};
}

DistributedConfig distributed_config(const DistributedSetup& setup) {
  switch (setup.strategy) {
    case Strategy::kFsdp2:
      return setup.fsdp2;
    case Strategy::kMegatronFsdp:
      return setup.megatron_fsdp;
    case Strategy::kDdp:
      return setup.ddp;
  }
  AM_CHECK(false);
}

std::string describe(const DistributedSetup& setup) {
  const char* const names[] = {"FSDP2Config", "MegatronFSDPConfig", "DDPConfig"};
  const DistributedConfig config = distributed_config(setup);
  return cat(names[config.index()], "(",
             std::visit([](const auto& options) { return to_text(options.to_dict()); }, config),
             ")");
}

std::vector<std::string> normalize_activation_checkpointing_scope(
    const std::vector<std::string>& values) {
  const std::vector<std::string> known = {"all", "audio", "language", "multimodal", "vision"};
  const auto has = [](const std::vector<std::string>& list, const std::string& item) {
    return std::find(list.begin(), list.end(), item) != list.end();
  };
  std::vector<std::string> scopes;
  for (const std::string& value : values) {
    for (const std::string& part : scope_parts(value)) {
      std::string scope(trim(part));
      if (scope.empty()) continue;
      if (scope == "default" || scope == "auto") scope = "all";
      if (!has(known, scope)) {
        throw UserError(cat("activation_checkpointing_scope must use only: ", join(known, ", "),
                            ". Got '", part, "'."));
      }
      if (!has(scopes, scope)) scopes.push_back(scope);
    }
  }
  if (scopes.empty()) return {"all"};
  if (scopes.size() > 1 && has(scopes, "all")) {
    throw UserError("activation_checkpointing_scope='all' cannot be combined with other scopes.");
  }
  return scopes;
}

bool has_language_scope(const std::vector<std::string>& scopes) {
  return std::any_of(scopes.begin(), scopes.end(), [](const std::string& scope) {
    return scope == "all" || scope == "language";
  });
}

ActivationCheckpointingMode activation_checkpointing_mode(const DistributedSetup& setup) {
  switch (setup.strategy) {
    case Strategy::kFsdp2:
      return setup.fsdp2.activation_checkpointing;
    case Strategy::kMegatronFsdp:
      return setup.megatron_fsdp.activation_checkpointing;
    case Strategy::kDdp:
      return setup.ddp.activation_checkpointing;
  }
  AM_CHECK(false);
}

const std::vector<std::string>& activation_checkpointing_scope(const DistributedSetup& setup) {
  return setup.strategy == Strategy::kDdp ? setup.ddp.activation_checkpointing_scope
                                          : setup.fsdp2.activation_checkpointing_scope;
}

std::optional<std::string> autocast_dtype(const DistributedSetup& setup) {
  switch (setup.strategy) {
    case Strategy::kFsdp2:
      return setup.fsdp2.autocast_dtype;
    case Strategy::kMegatronFsdp:
      return std::nullopt;
    case Strategy::kDdp:
      return setup.ddp.autocast_dtype;
  }
  AM_CHECK(false);
}

std::optional<MixedPrecisionPolicy> mixed_precision_policy(const DistributedSetup& setup) {
  if (setup.strategy != Strategy::kFsdp2) return std::nullopt;
  if (setup.moe && setup.moe->mp_policy) return setup.moe->mp_policy;
  return setup.fsdp2.mp_policy.value_or(default_mp_policy());
}

std::string_view strategy_name(Strategy strategy) {
  return enum_name(strategy);
}

mesh::SizeRequest size_request(const ParallelismSizes& sizes) {
  return {sizes.dp_size,
          sizes.dp_replicate_size.value_or(1),
          sizes.pp_size.value_or(1),
          sizes.cp_size.value_or(1),
          sizes.tp_size.value_or(1),
          sizes.ep_size.value_or(1)};
}

int64_t data_parallel_size(const DistributedSetup& setup, int64_t world_size) {
  const mesh::SizeRequest sizes = size_request(setup.sizes);
  return world_size / (sizes.tp * sizes.cp * sizes.pp);
}

std::vector<SetupFinding> check_setup(const DistributedSetup& setup, int64_t world_size) {
  std::vector<SetupFinding> findings;
  mesh::SizeRequest sizes = size_request(setup.sizes);
  if (setup.strategy == Strategy::kMegatronFsdp) check_megatron(setup, sizes, findings);
  if (setup.strategy == Strategy::kDdp) check_ddp(sizes, findings);
  if (sizes.pp > 1 && !setup.pipeline) {
    findings.push_back({"pp_size", "pp_size > 1 requires a pipeline section"});
  }
  if (setup.strategy != Strategy::kFsdp2 && sizes.dp_replicate > 1) {
    findings.push_back(
        {"dp_replicate_size", "dp_replicate_size is only supported with FSDP2Config"});
    sizes.dp_replicate = 1;
  }
  for (const mesh::SizeFinding& finding : mesh::check_sizes(sizes, world_size)) {
    findings.push_back({finding.key, finding.text});
  }
  return findings;
}

}  // namespace automodel::distributed
