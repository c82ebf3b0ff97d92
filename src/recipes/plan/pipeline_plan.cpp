#include "recipes/plan/pipeline_plan.h"

#include <algorithm>
#include <numeric>

#include "core/text.h"
#include "distributed/pipeline/simulation.h"
#include "models/causal_lm.h"
#include "recipes/build/build_model.h"
#include "recipes/build/rank_model.h"
#include "recipes/plan/columns.h"
#include "recipes/plan/json_list.h"

namespace automodel::recipes {

namespace {

using distributed::PipelineSchedule;

/// The activation sizes of one stage: only of the modules that it has.
nn::ActivationSizes activations_of(const nn::ParallelPlan& parts, const models::CausalLM& model,
                                   const nn::ActivationShape& shape) {
  nn::ActivationSizes sizes = model.activation_sizes(shape);
  if (parts.embedding.empty()) sizes.embedding = 0;
  if (parts.final_norm.empty()) sizes.final_norm_kept = 0;
  if (parts.head.empty()) sizes.head_kept = sizes.logits = 0;
  return sizes;
}

StagePlan plan_stage(const Recipe& recipe, const PipelinePlanOptions& options,
                     std::vector<std::string> modules) {
  const auto model = build_model(recipe, options.dtype);
  model->keep_stage(modules);
  const nn::ParallelPlan parts = model->parallel_plan();
  const nn::ActivationSizes sizes = activations_of(parts, *model, options.shape);
  distributed::MemoryOptions own = options.memory;
  own.keys = split_for_a_rank(recipe, options.sizes, *model).keys;
  own.is_stage = true;
  if (!own.experts.modules.empty()) own.experts.modules = parts.expert_modules;
  const bool has_tables = !own.tables.embedding.empty() || !own.tables.head.empty();
  own.tables = has_tables ? distributed::untied_tables(*model, parts) : distributed::TableUnits{};
  const auto memory = distributed::plan_memory(
      distributed::flat_parameters(*model, parts, own.tables, own.experts.modules), own, sizes);
  StagePlan plan;
  plan.modules = std::move(modules);
  for (const distributed::UnitMemory& unit : memory.units) plan.num_parameters += unit.numel;
  plan.state = memory.state();
  const int64_t block = options.memory.recomputes ? sizes.block_input : sizes.block_kept;
  plan.kept = block * static_cast<int64_t>(parts.blocks.size());
  plan.kept += sizes.embedding + sizes.final_norm_kept;
  const distributed::MemoryMoment& peak = memory.peak;
  plan.unreduced = peak.whole_gradients;
  plan.working = std::max<int64_t>(peak.total() - peak.activations - plan.unreduced, 0);
  plan.host = memory.host;
  plan.building = memory.building;
  return plan;
}

/// "model.embed_tokens, model.layers.0 .. 3"
std::string modules_text(const std::vector<std::string>& modules) {
  std::vector<std::string> texts;
  std::string first_layer, last_layer;
  const auto end_layers = [&] {
    if (first_layer.empty()) return;
    const std::string last = last_layer.substr(last_layer.rfind('.') + 1);
    texts.push_back(first_layer == last_layer ? first_layer : cat(first_layer, " .. ", last));
    first_layer.clear();
  };
  for (const std::string& name : modules) {
    const bool is_layer = parse_int(name.substr(name.rfind('.') + 1)).has_value();
    if (!is_layer) {
      end_layers();
      texts.push_back(name);
      continue;
    }
    if (first_layer.empty()) first_layer = name;
    last_layer = name;
  }
  end_layers();
  return join(texts, ", ");
}

}  // namespace

PipelinePlan plan_pipeline(const Recipe& recipe, const PipelinePlanOptions& options) {
  const auto whole = build_model(recipe, options.dtype);
  PipelineRequest request = pipeline_request(recipe, *whole);
  PipelinePlan plan;
  plan.schedule = std::move(request.schedule);
  const PipelineSchedule& schedule = plan.schedule;
  plan.microbatch_size = options.shape.num_sequences / schedule.shape.num_microbatches;
  PipelinePlanOptions per_stage = options;
  per_stage.shape.num_sequences = plan.microbatch_size;
  per_stage.memory.num_micro_batches *= schedule.shape.num_microbatches;
  const distributed::Simulation simulation = distributed::simulate(schedule);
  plan.bubble = simulation.bubble_fraction();
  plan.num_sends = static_cast<int64_t>(simulation.messages.size());
  plan.sent_bytes = plan.num_sends * per_stage.shape.tokens() / per_stage.shape.num_sequence_parts *
                    whole->dims().hidden_size * options.shape.element_size;
  std::vector<int64_t> kept;
  for (size_t stage = 0; stage < request.stages.size(); ++stage) {
    plan.stages.push_back(plan_stage(recipe, per_stage, std::move(request.stages[stage])));
    plan.stages.back().stage = static_cast<int>(stage);
    plan.stages.back().pp_rank = schedule.rank_of_stage[stage];
    kept.push_back(plan.stages.back().kept);
  }
  for (int rank = 0; rank < schedule.shape.num_ranks; ++rank) {
    PipelineRankPlan own;
    for (const int index : schedule.stages_of(rank)) {
      const StagePlan& stage = plan.stages[static_cast<size_t>(index)];
      own.state += stage.state;
      own.unreduced += stage.unreduced;
      own.working = std::max(own.working, stage.working);
      own.host += stage.host;
      own.building = std::max(own.building, stage.building);
    }
    own.in_flight = simulation.peak_in_flight[static_cast<size_t>(rank)];
    own.kept = distributed::peak_kept(schedule, rank, kept);
    own.total = own.state + own.kept + own.unreduced + own.working;
    plan.ranks.push_back(own);
  }
  return plan;
}

std::string pipeline_text(const PipelinePlan& plan) {
  const distributed::ScheduleShape& shape = plan.schedule.shape;
  std::string text =
      cat("pipeline: ", distributed::schedule_name(plan.schedule.kind), ", ", shape.num_stages(),
          " stages on ", shape.num_ranks, " ranks, ", shape.num_microbatches, " micro-batches of ",
          plan.microbatch_size, plan.microbatch_size == 1 ? " sequence" : " sequences", "\n");
  text += cat("  bubble ", format_fixed(100 * plan.bubble, 1),
              " % of the ranks' time (stages of equal time, a backward twice a forward)\n  ",
              plan.num_sends, " messages a batch, ", bytes_text(plan.sent_bytes), "\n");
  Rows stages = {{"stage", "pp rank", "parameters", "state", "kept of a micro-batch", "modules"}};
  for (const StagePlan& stage : plan.stages) {
    stages.push_back({cat(stage.stage), cat(stage.pp_rank), cat(stage.num_parameters),
                      bytes_text(stage.state), bytes_text(stage.kept),
                      modules_text(stage.modules)});
  }
  Rows ranks = {{"pp rank", "in flight", "kept activations", "state", "total"}};
  for (size_t rank = 0; rank < plan.ranks.size(); ++rank) {
    const PipelineRankPlan& own = plan.ranks[rank];
    ranks.push_back({cat(rank), cat(own.in_flight), bytes_text(own.kept), bytes_text(own.state),
                     bytes_text(own.total)});
  }
  return cat(text, columns(stages, Alignment::kRight),
             "bytes on a rank of each stage, at the fullest moment of a step\n",
             columns(ranks, Alignment::kRight));
}

Json pipeline_json(const PipelinePlan& plan) {
  const distributed::ScheduleShape& shape = plan.schedule.shape;
  Json out = Json::object();
  out["schedule"] = distributed::schedule_name(plan.schedule.kind);
  out["num_stages"] = shape.num_stages();
  out["num_microbatches"] = shape.num_microbatches;
  out["microbatch_size"] = plan.microbatch_size;
  out["bubble"] = plan.bubble;
  out["num_sends"] = plan.num_sends;
  out["sent_bytes"] = plan.sent_bytes;
  out["stages"] = json_list(plan.stages, [](const StagePlan& stage) {
    return Json::Object{{"pp_rank", stage.pp_rank},
                        {"modules", json_list(stage.modules)},
                        {"num_parameters", stage.num_parameters},
                        {"state", stage.state},
                        {"kept", stage.kept}};
  });
  out["ranks"] = json_list(plan.ranks, [](const PipelineRankPlan& rank) {
    return Json::Object{{"in_flight", rank.in_flight},
                        {"kept", rank.kept},
                        {"state", rank.state},
                        {"total", rank.total}};
  });
  return out;
}

}  // namespace automodel::recipes
