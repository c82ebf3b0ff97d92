#include "recipes/plan/plan_text.h"

#include <algorithm>

#include "core/text.h"
#include "recipes/plan/columns.h"
#include "recipes/plan/json_list.h"
#include "tensor/dtype.h"

namespace automodel::recipes {

namespace {

using distributed::MemoryOptions;
using distributed::MemoryPlan;
using distributed::Placement;
using distributed::UnitMemory;

/// The layer's number in "model.layers.3.mlp.experts".
std::string number_of(const std::string& unit) {
  for (const std::string& part : split(unit, '.')) {
    if (parse_int(part)) return part;
  }
  return unit;
}

/// Consecutive units that differ only in their number.
struct UnitRun {
  const UnitMemory* first = nullptr;
  const UnitMemory* last = nullptr;
  int64_t count = 0;

  std::string name() const {
    if (first->unit.empty()) return "(root)";
    if (count == 1) return first->unit;
    return cat(first->unit, " .. ", number_of(last->unit));
  }
};

bool is_alike(const UnitMemory& a, const UnitMemory& b) {
  return !a.unit.empty() && !b.unit.empty() && a.is_expert == b.is_expert && a.numel == b.numel &&
         a.dtype == b.dtype && a.is_trained == b.is_trained && a.state() == b.state();
}

/// Experts come last: in `units` they alternate with the blocks.
std::vector<UnitRun> fold(const std::vector<UnitMemory>& units) {
  std::vector<UnitRun> runs;
  for (const bool is_expert : {false, true}) {
    for (const UnitMemory& unit : units) {
      if (unit.is_expert != is_expert) continue;
      if (runs.empty() || !is_alike(*runs.back().first, unit)) runs.push_back({&unit, &unit, 0});
      runs.back().last = &unit;
      runs.back().count += 1;
    }
  }
  return runs;
}

const char* placement_name(Placement placement) {
  return placement == Placement::kSharded ? "sharded" : "replicated";
}

/// "0-7", "0, 8, 16, 24, .. 56": ranks of a group, evenly spaced as a mesh's are.
std::string ranks_text(const std::vector<int>& ranks) {
  const size_t count = ranks.size();
  if (count == 1) return cat(ranks[0]);
  const int stride = ranks[1] - ranks[0];
  const bool is_even = ranks.back() - ranks.front() == stride * static_cast<int>(count - 1);
  if (is_even && stride == 1) return cat(ranks.front(), "-", ranks.back());
  std::vector<std::string> texts;
  for (size_t i = 0; i < std::min<size_t>(count, 4); ++i) texts.push_back(cat(ranks[i]));
  if (count > 5) texts.emplace_back("..");
  if (count > 4) texts.push_back(cat(ranks.back()));
  return replace_all(join(texts, ", "), "..,", "..");
}

constexpr const char* kGroupNames[] = {"pp", "dp_replicate", "dp_shard",   "cp",
                                       "tp", "dp",           "dp_shard_cp"};

constexpr size_t kNameWidth = 24;  // width of the sections' first columns

/// Adds a row with the groups along an axis.
void add_groups(const std::string& name, const std::vector<std::vector<int>>& groups, Rows& rows) {
  if (groups[0].size() == 1) return;
  std::string value = cat(groups.size(), groups.size() == 1 ? " group of " : " groups of ",
                          groups[0].size(), ": ", ranks_text(groups[0]));
  if (groups.size() > 1) value += cat("; ", ranks_text(groups[1]));
  if (groups.size() > 2) value += "; ..";
  rows.push_back({name, value});
}

std::string mesh_text(const RecipePlan& plan) {
  const mesh::Mesh mesh(plan.sizes);
  std::vector<std::string> axes;
  for (int i = 0; i < mesh::kNumAxes; ++i) {
    const auto axis = static_cast<mesh::Axis>(i);
    axes.push_back(cat(mesh::axis_name(axis), " ", plan.sizes.size(axis)));
  }
  std::string text = cat("mesh of ", plan.sizes.world_size(), " ranks: ", join(axes, ", "),
                         " (the last axis varies fastest)\n");
  Rows rows;
  for (const char* name : kGroupNames) {
    add_groups(name, mesh.groups(*mesh::axes_of(name)), rows);
  }
  if (plan.ep > 1) {
    using mesh::ExpertAxis;
    const int ep = static_cast<int>(plan.ep);
    add_groups("ep_shard", expert_groups(mesh, ep, ExpertAxis::kEpShard), rows);
    add_groups("ep", expert_groups(mesh, ep, ExpertAxis::kEp), rows);
  }
  return text + columns(rows, Alignment::kLeft, 12);
}

std::string experts_text(const RecipePlan& plan) {
  const int64_t parts = plan.options.experts.num_parts;
  return cat("over ", plan.ep, " ranks, experts ",
             parts == 1 ? "whole on theirs" : cat("sharded over ", parts, " (ep_shard)"),
             "; tokens planned as if all experts were chosen equally often");
}

/// Those options of a strategy that differ from their defaults.
template <typename Config>
std::string changed_options(const Config& config) {
  Config usual;
  usual.post_init();
  const distributed::ConfigDict plain = usual.to_dict();
  const distributed::ConfigDict dict = config.to_dict();
  std::vector<std::string> changed;
  for (size_t i = 0; i < dict.size(); ++i) {
    const std::string text = distributed::to_text({dict[i]});
    if (text != distributed::to_text({plain[i]})) changed.push_back(text);
  }
  return join(changed, ", ");
}

std::string strategy_text(const RecipePlan& plan) {
  const MemoryOptions& options = plan.options;
  std::string parts = options.num_replicas > 1
                          ? cat(options.num_replicas, " replicas: everything whole on each")
                      : plan.sizes.tp > 1 ? "one rank of every part: nothing sharded"
                                          : "one rank: everything whole";
  at::ScalarType reduced = plan.dtype;
  if (const auto& sharding = options.sharding) {
    if (options.num_parts > 1) {
      parts = cat("over ", options.num_parts, " ranks: parameters ",
                  placement_name(sharding->parameters), ", gradients ",
                  placement_name(sharding->gradients), ", optimizer state sharded");
    }
    if (options.num_parts > 1 && options.num_replicas > 1) {
      parts += cat("; ", options.num_replicas, " replicas");
    }
    reduced = sharding->reduce_dtype.value_or(plan.computed_dtype());
  }
  const char* const masters =
      options.sharding && options.sharding->main_dtype ? ", float32 masters" : "";
  const char* const sequences = plan.sequence_parallel ? ", sequences split between layers" : "";
  const nn::ActivationShape& shape = plan.shape;
  Rows rows = {
      {"strategy", cat(plan.strategy, ", ", parts)},
      {"dtypes", cat("stored ", tensor::dtype_name(plan.dtype), ", computed ",
                     tensor::dtype_name(plan.computed_dtype()), ", reduced ",
                     tensor::dtype_name(reduced), masters)},
      {"activation checkpointing",
       options.recomputes ? "full: blocks keep their input and are computed again" : "off"},
      {"tensor parallelism",
       plan.sizes.tp == 1 ? "off (tp_size 1)" : cat("over ", plan.sizes.tp, " ranks", sequences)}};
  const std::string changed = std::visit([](const auto& config) { return changed_options(config); },
                                         distributed::distributed_config(plan.setup));
  if (!changed.empty()) rows.push_back({"options", changed});
  if (plan.ep > 1) rows.push_back({"expert parallelism", experts_text(plan)});
  rows.push_back(
      {"a micro-batch on a rank",
       cat(shape.num_sequences, shape.num_sequences == 1 ? " sequence of " : " sequences of ",
           shape.sequence_length, " tokens",
           plan.sizes.cp == 1 ? "" : cat(" (its share of ", plan.whole_length, ")"))});
  rows.push_back({"micro-batches a step", cat(options.num_micro_batches)});
  if (const auto& teacher = plan.teacher) {
    rows.push_back({"teacher", cat(teacher->architecture, ", ", teacher->num_parameters,
                                   " parameters, stored ", tensor::dtype_name(teacher->dtype))});
  }
  return columns(rows, Alignment::kLeft, kNameWidth);
}

/// A style in the words of recipes, and how its input and output are split over the ranks.
std::string style_text(const distributed::ParallelStyle& style) {
  using distributed::StyleKind;
  using distributed::StyleLayout;
  const auto layout = [](StyleLayout of) {
    switch (of) {
      case StyleLayout::kReplicate:
        return "whole";
      case StyleLayout::kShardSequence:
        return "split by positions";
      case StyleLayout::kShardLast:
        return "split by features";
    }
    return "";
  };
  if (style.kind == StyleKind::kSequence) return "sequence_parallel";
  return cat(style.kind == StyleKind::kColwise ? "colwise" : "rowwise", ": input ",
             layout(style.input), ", output ", layout(style.output));
}

std::string tp_text(const RecipePlan& plan) {
  if (plan.tp_rules.empty()) return "";
  Rows rows;
  for (const auto& [module, style] : plan.tp_rules) rows.push_back({module, style_text(style)});
  return "tensor-parallel plan; what it does not name is whole on every rank\n" +
         columns(rows, Alignment::kLeft);
}

std::string units_text(const RecipePlan& plan) {
  Rows rows = {{"unit", "parameters", "dtype", "state on a rank", "gathered whole"}};
  for (const UnitRun& run : fold(plan.memory.units)) {
    const UnitMemory& unit = *run.first;
    const std::string each = run.count > 1 ? " each" : "";
    rows.push_back({run.name(), cat(unit.numel, each),
                    cat(tensor::dtype_name(unit.dtype), unit.is_trained ? "" : " (frozen)"),
                    bytes_text(unit.state()) + each,
                    unit.gathered == 0 ? "always" : bytes_text(unit.gathered) + each});
  }
  return columns(rows, Alignment::kRight);
}

std::string memory_text(const RecipePlan& plan) {
  const MemoryPlan& memory = plan.memory;
  const distributed::MemoryMoment& peak = memory.peak;
  const UnitMemory& largest = memory.largest_unit();
  Rows rows;
  for (const PlanPart& part : plan.parts()) {
    const bool is_counted = part.bytes != 0 && part.name != kActivationsAtMost;
    if (is_counted) rows.push_back({part.name, bytes_text(part.bytes)});
  }
  rows.push_back({plan.counts_activations ? "total" : "total but activations",
                  bytes_text(plan.step_bytes() - plan.activations_at_most)});
  return cat("bytes on every rank, at the fullest moment of a step",
             peak.name.empty() ? "" : cat(" (", peak.name, ")"), "\n",
             columns(rows, Alignment::kRight, kNameWidth),
             "  the program itself is not counted; the largest unit is ",
             largest.unit.empty() ? "the root" : largest.unit, " with ", largest.numel,
             " parameters\n");
}

/// What a rank holds while it loads, in a step and while it saves, and how much of it on the host.
std::string moments_text(const RecipePlan& plan) {
  const bool has_device = !plan.options.device.is_cpu();
  Rows rows = {{"bytes of the fullest rank"}};
  if (has_device) rows[0].insert(rows[0].end(), {"device", "host"});
  const auto add = [&](const char* name, int64_t bytes, int64_t host) {
    rows.push_back({name, bytes_text(has_device ? bytes : bytes + host)});
    if (has_device) rows.back().push_back(bytes_text(plan.host_bytes() + host));
  };
  add("loading weights", plan.loading_bytes(), plan.loading_host);
  add(plan.counts_activations ? "a step" : "a step, at most", plan.step_bytes(), 0);
  add("saving a checkpoint", plan.saving_bytes(), plan.saving_host);
  return columns(rows, Alignment::kRight, kNameWidth);
}

std::string collectives_text(const RecipePlan& plan) {
  const distributed::StepCollectives& step = plan.memory.per_step;
  Rows rows;
  if (step.num_gathers > 0) {
    rows.push_back({"all-gathers", cat(step.num_gathers, ", ", bytes_text(step.gathered_bytes))});
  }
  if (step.num_reductions > 0) {
    rows.push_back({plan.options.sharding ? "reduce-scatters" : "all-reduces",
                    cat(step.num_reductions, ", ", bytes_text(step.reduced_bytes))});
  }
  if (step.num_replica_reductions > 0) {
    rows.push_back({"all-reduces over replicas", cat(step.num_replica_reductions, ", ",
                                                     bytes_text(step.replica_reduced_bytes))});
  }
  const auto add = [&](const char* name, int64_t count, int64_t bytes) {
    if (count > 0) rows.push_back({name, cat(count, ", ", bytes_text(bytes))});
  };
  add("experts' all-gathers", step.num_expert_gathers, step.expert_gathered_bytes);
  add("experts' reduce-scatters", step.num_expert_reductions, step.expert_reduced_bytes);
  add("all-to-alls of tokens", step.num_exchanges, step.exchanged_bytes);
  if (rows.empty()) return "no collectives on parameters or gradients\n";
  return "collectives of a step, bytes of the whole tensors\n" +
         columns(rows, Alignment::kLeft, kNameWidth);
}

}  // namespace

std::string plan_text(const RecipePlan& plan) {
  const std::string beginning =
      cat(plan.recipe, ": ", plan.architecture, ", ", plan.num_parameters, " parameters (",
          plan.num_trained, " trained)\n", mesh_text(plan), strategy_text(plan), tp_text(plan));
  const std::string end =
      cat(moments_text(plan), plan.fit ? fit_text(*plan.fit) : "",
          plan.not_counted.empty() ? "" : cat("not counted: ", join(plan.not_counted, "; "), "\n"));
  if (plan.pipeline) return cat(beginning, pipeline_text(*plan.pipeline), end);
  return cat(beginning, units_text(plan), memory_text(plan), collectives_text(plan), end);
}

namespace {

Json units_json(const RecipePlan& plan) {
  return json_list(fold(plan.memory.units), [](const UnitRun& run) {
    const UnitMemory& unit = *run.first;
    return Json::Object{{"first", unit.unit},
                        {"last", run.last->unit},
                        {"count", run.count},
                        {"num_parameters", unit.numel},
                        {"is_trained", unit.is_trained},
                        {"dtype", tensor::dtype_name(unit.dtype)},
                        {"computed_dtype", tensor::dtype_name(unit.computed_dtype)},
                        {"parameters", unit.parameters + unit.masters},
                        {"gradients", unit.gradients},
                        {"optimizer", unit.optimizer},
                        {"gathered", unit.gathered},
                        {"whole_gradients", unit.whole_gradients},
                        {"accumulated", unit.accumulated},
                        {"reduced", unit.sent}};
  });
}

}  // namespace

Json plan_json(const RecipePlan& plan) {
  const MemoryPlan& memory = plan.memory;
  const distributed::MemoryMoment& peak = memory.peak;
  Json out = Json::object();
  out["recipe"] = plan.recipe;
  out["architecture"] = plan.architecture;
  out["num_parameters"] = plan.num_parameters;
  out["num_trained_parameters"] = plan.num_trained;
  out["world_size"] = plan.sizes.world_size();
  for (int i = 0; i < mesh::kNumAxes; ++i) {
    const auto axis = static_cast<mesh::Axis>(i);
    out["mesh"][mesh::axis_name(axis)] = plan.sizes.size(axis);
  }
  if (plan.ep > 1) {
    out["mesh"]["ep"] = plan.ep;
    out["mesh"]["ep_shard"] = plan.options.experts.num_parts;
  }
  out["strategy"] = plan.strategy;
  out["options"] =
      std::visit([](const auto& config) { return distributed::to_json(config.to_dict()); },
                 distributed::distributed_config(plan.setup));
  if (const auto& name = plan.setup.megatron_fsdp.data_parallel_sharding_strategy) {
    out["options"]["data_parallel_sharding_strategy"] = *name;
  }
  out["sequence_parallel"] = plan.sequence_parallel;
  out["tp_plan"] = Json::object();
  for (const auto& [module, style] : plan.tp_rules) out["tp_plan"][module] = style_text(style);
  out["num_parts"] = plan.options.num_parts;
  out["num_replicas"] = plan.options.num_replicas;
  out["recomputes"] = plan.options.recomputes;
  out["num_sequences"] = plan.shape.num_sequences;
  out["sequence_length"] = plan.shape.sequence_length;
  out["num_micro_batches"] = plan.options.num_micro_batches;
  out["device"] = plan.options.device.is_cpu() ? "cpu" : "cuda";
  Json& moments = out["moments"];
  moments["loading"] = plan.loading_bytes();
  moments["step"] = plan.step_bytes();
  moments["saving"] = plan.saving_bytes();
  Json& host = out["host"];
  host["resting"] = plan.host_bytes();
  host["loading"] = plan.loading_host;
  host["saving"] = plan.saving_host;
  if (!plan.counts_activations) out["activations_at_most"] = plan.activations_at_most;
  if (plan.fit) out["fit"] = fit_json(*plan.fit);
  out["not_counted"] = json_list(plan.not_counted);
  if (plan.pipeline) {
    out["pipeline"] = pipeline_json(*plan.pipeline);
    return out;
  }
  out["units"] = units_json(plan);
  Json& bytes = out["bytes"];
  if (plan.teacher) {
    bytes["teacher"] = plan.teacher->parameters;
    bytes["teacher_gathered"] = plan.teacher->gathered;
  }
  bytes["parameters"] = memory.parameters;
  bytes["gradients"] = memory.gradients;
  bytes["optimizer"] = memory.optimizer;
  bytes["state"] = memory.state();
  bytes["moment"] = peak.name;
  bytes["gathered"] = peak.gathered;
  bytes["gradients_then"] = memory.kept_gradients + peak.gradients;
  bytes["whole_gradients"] = peak.whole_gradients;
  bytes["casts"] = peak.casts;
  if (plan.counts_activations) {
    bytes["activations"] = peak.activations;
    bytes["working"] = peak.working;
    bytes["logits"] = peak.logits;
    bytes["total"] = plan.step_bytes();
  }
  const distributed::StepCollectives& step = memory.per_step;
  Json& collectives = out["collectives_of_a_step"];
  collectives["num_gathers"] = step.num_gathers;
  collectives["gathered_bytes"] = step.gathered_bytes;
  collectives["num_reductions"] = step.num_reductions;
  collectives["reduced_bytes"] = step.reduced_bytes;
  collectives["num_replica_reductions"] = step.num_replica_reductions;
  collectives["replica_reduced_bytes"] = step.replica_reduced_bytes;
  if (!plan.options.experts.modules.empty()) {
    collectives["num_expert_gathers"] = step.num_expert_gathers;
    collectives["expert_gathered_bytes"] = step.expert_gathered_bytes;
    collectives["num_expert_reductions"] = step.num_expert_reductions;
    collectives["expert_reduced_bytes"] = step.expert_reduced_bytes;
    collectives["num_token_exchanges"] = step.num_exchanges;
    collectives["exchanged_bytes"] = step.exchanged_bytes;
  }
  return out;
}

}  // namespace automodel::recipes
