#include "distributed/config.h"

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
  if (setup.megatron_fsdp.tp_plan) {
    findings.push_back({"tp_plan", "megatron_fsdp does not support tp_plan"});
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

}  // namespace

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
