#include "distributed/config.h"

#include "core/text.h"

namespace automodel::distributed {

namespace {

struct Sizes {
  int64_t dp_replicate, tp, pp, cp, ep;
};

Sizes with_defaults(const ParallelismSizes& sizes) {
  return {sizes.dp_replicate_size.value_or(1), sizes.tp_size.value_or(1), sizes.pp_size.value_or(1),
          sizes.cp_size.value_or(1), sizes.ep_size.value_or(1)};
}

void check_megatron(const DistributedSetup& setup, const Sizes& sizes,
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

void check_ddp(const Sizes& sizes, std::vector<SetupFinding>& findings) {
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

void check_replicas(const DistributedSetup& setup, int64_t dp, int64_t replicas,
                    std::vector<SetupFinding>& findings) {
  if (replicas == 1) return;
  if (setup.strategy != Strategy::kFsdp2) {
    findings.push_back(
        {"dp_replicate_size", "dp_replicate_size is only supported with FSDP2Config"});
  } else if (dp % replicas != 0) {
    findings.push_back(
        {"dp_replicate_size", cat("dp_size must be a multiple of dp_replicate_size: dp_size is ",
                                  dp, ", dp_replicate_size ", replicas)});
  } else if (replicas >= dp) {
    findings.push_back(
        {"dp_replicate_size", cat("dp_replicate_size=", replicas, " must be less than dp_size=", dp,
                                  " since DDP usecase is not supported by FSDP2")});
  }
}

}  // namespace

std::string_view strategy_name(Strategy strategy) {
  return enum_name(strategy);
}

int64_t data_parallel_size(const DistributedSetup& setup, int64_t world_size) {
  const Sizes sizes = with_defaults(setup.sizes);
  return world_size / (sizes.tp * sizes.cp * sizes.pp);
}

std::vector<SetupFinding> check_setup(const DistributedSetup& setup, int64_t world_size) {
  std::vector<SetupFinding> findings;
  const Sizes sizes = with_defaults(setup.sizes);
  if (setup.strategy == Strategy::kMegatronFsdp) check_megatron(setup, sizes, findings);
  if (setup.strategy == Strategy::kDdp) check_ddp(sizes, findings);
  if (sizes.pp > 1 && !setup.pipeline) {
    findings.push_back({"pp_size", "pp_size > 1 requires a pipeline section"});
  }
  const int64_t model_ranks = sizes.tp * sizes.cp * sizes.pp;
  if (world_size % model_ranks != 0) {
    findings.push_back(
        {"tp_size",
         cat("world_size (", world_size, ") must be divisible by (tp_size * cp_size * pp_size) (",
             sizes.tp, " * ", sizes.cp, " * ", sizes.pp, " = ", model_ranks, ")")});
    return findings;
  }
  const int64_t dp = world_size / model_ranks;
  if (setup.sizes.dp_size && *setup.sizes.dp_size != dp) {
    findings.push_back(
        {"dp_size", cat("dp_size ", *setup.sizes.dp_size, " does not fit: ", world_size,
                        " ranks / (tp ", sizes.tp, " * cp ", sizes.cp, " * pp ", sizes.pp,
                        ") = ", dp, "; set it to that or to none")});
  }
  check_replicas(setup, dp, sizes.dp_replicate, findings);
  const int64_t non_pp = dp * sizes.cp * sizes.tp;
  if (non_pp % sizes.ep != 0) {
    findings.push_back({"ep_size", cat("ep_size ", sizes.ep, " does not divide the ", non_pp,
                                       " ranks of a pipeline stage (dp * cp * tp)")});
  }
  return findings;
}

}  // namespace automodel::distributed
