#include "recipes/plan_command.h"

#include <algorithm>
#include <iostream>

#include "config/load.h"
#include "core/error.h"
#include "core/file.h"
#include "distributed/context_split.h"
#include "distributed/memory_plan.h"
#include "mesh/mesh.h"
#include "models/catalog.h"
#include "models/causal_lm.h"
#include "recipes/pipeline_plan.h"
#include "recipes/recipe.h"
#include "recipes/session_checkpoint.h"
#include "tensor/dtype.h"

namespace automodel::recipes {

namespace {

using distributed::MemoryOptions;
using distributed::MemoryPlan;
using distributed::Placement;
using distributed::UnitMemory;

/// Everything that is printed.
struct RecipePlan {
  std::string recipe;
  mesh::MeshSizes sizes;
  std::string strategy;
  std::string architecture;
  int64_t num_parameters = 0;
  int64_t num_trained = 0;
  at::ScalarType dtype = at::kFloat;
  nn::ActivationShape shape;  ///< of a rank's share
  int64_t whole_length = 0;   ///< tokens of a sequence on all context-parallel ranks
  nn::ParallelPlan parallel;
  MemoryOptions options;
  MemoryPlan memory;                     ///< of the whole model: not of a pipeline's stages
  std::optional<PipelinePlan> pipeline;  ///< above one pipeline rank

  at::ScalarType computed_dtype() const {
    return options.sharding ? options.sharding->param_dtype.value_or(dtype) : dtype;
  }
};

/// The dtype that a run stores parameters in; without weights here, the one config.json names.
at::ScalarType storage_dtype(const ModelPlan& model) {
  if (model.dtype) return *model.dtype;
  const bool has_weights = path_exists(path_join(model.folder, "model.safetensors")) ||
                           path_exists(path_join(model.folder, "model.safetensors.index.json"));
  if (has_weights) return checkpoint_dtype(model.folder).value_or(at::kFloat);
  for (const char* key : {"dtype", "torch_dtype"}) {
    if (const auto dtype = tensor::parse_dtype(model.hf_config.get(key, ""))) return *dtype;
  }
  return at::kFloat;
}

/// A whole number below the dataset section.
std::optional<int64_t> dataset_number(const Recipe& recipe, const char* key) {
  const config::Node* node = recipe.dataset.node.find(key);
  if (node == nullptr || !node->is_scalar()) return std::nullopt;
  return parse_int(node->text());
}

nn::ActivationShape batch_shape(const Recipe& recipe, const PlanRequest& request,
                                const models::ModelDims& dims) {
  constexpr int64_t kUsualLength = 2048;
  nn::ActivationShape shape;
  shape.num_sequences =
      dataset_number(recipe, "batch_size").value_or(recipe.step_scheduler.local_batch_size);
  shape.sequence_length = std::min(dims.max_positions, kUsualLength);
  for (const char* key : {"seq_len", "seq_length"}) {
    if (const auto length = dataset_number(recipe, key)) shape.sequence_length = *length;
  }
  if (request.sequence_length) shape.sequence_length = *request.sequence_length;
  return shape;
}

/// The keys and values of other context-parallel ranks while a block attends, and in backward their
/// gradients in float32.
void add_travelling_keys(const Recipe& recipe, const models::ModelDims& dims,
                         const nn::ActivationShape& shape, int cp_size,
                         nn::ActivationSizes& activations) {
  if (cp_size == 1) return;
  const bool is_ring =
      recipe.distributed.context.cp_rotate_method == distributed::CpRotateMethod::kAllToAll;
  const int64_t own = shape.tokens() * 2 * dims.num_kv_heads * dims.head_dim;
  const int64_t num_shares = is_ring ? 2 : cp_size + 1;  // the own ones as they are sent
  activations.block_forward += num_shares * own * shape.element_size;
  activations.block_backward += num_shares * own * (shape.element_size + 4);
}

RecipePlan make_plan(const Recipe& recipe, const PlanRequest& request, int64_t world_size) {
  RecipePlan plan;
  plan.recipe = request.recipe_path;
  plan.sizes = mesh::infer_sizes(distributed::size_request(recipe.distributed.sizes), world_size);
  plan.strategy = distributed::strategy_name(recipe.distributed.strategy);
  plan.dtype = storage_dtype(recipe.model);
  const auto model = models::build_causal_lm(recipe.model.hf_config, plan.dtype);
  plan.architecture = model->architecture();
  plan.parallel = model->parallel_plan();
  plan.options = distributed::memory_options(recipe.distributed, plan.sizes);
  plan.options.num_optimizer_states = recipe.optimizer.num_states;
  const int64_t per_micro_batch = recipe.step_scheduler.local_batch_size * plan.sizes.dp();
  plan.options.num_micro_batches =
      std::max<int64_t>(recipe.step_scheduler.global_batch_size / per_micro_batch, 1);
  plan.shape = batch_shape(recipe, request, model->dims());
  plan.shape.element_size = static_cast<int64_t>(c10::elementSize(plan.computed_dtype()));
  const distributed::SequenceShare share{0, plan.sizes.cp};
  plan.whole_length = plan.shape.sequence_length;
  if (share.size > 1) {
    plan.shape.is_part = true;
    plan.shape.sequence_length = distributed::padded_length(plan.whole_length, share) / share.size;
  }
  nn::ActivationSizes activations = model->activation_sizes(plan.shape);
  add_travelling_keys(recipe, model->dims(), plan.shape, share.size, activations);
  plan.memory = distributed::plan_memory(distributed::group_parameters(*model, plan.parallel),
                                         plan.options, activations);
  for (const UnitMemory& unit : plan.memory.units) {
    plan.num_parameters += unit.numel;
    plan.num_trained += unit.is_trained ? unit.numel : 0;
  }
  if (plan.sizes.pp > 1) {
    plan.pipeline = plan_pipeline(recipe, {plan.dtype, plan.shape, plan.options});
  }
  return plan;
}

/// Consecutive units that differ in nothing but their number.
struct UnitRun {
  const UnitMemory* first = nullptr;
  const UnitMemory* last = nullptr;
  int64_t count = 0;

  std::string name() const {
    if (first->unit.empty()) return "(root)";
    if (count == 1) return first->unit;
    return cat(first->unit, " .. ", last->unit.substr(last->unit.rfind('.') + 1));
  }
};

bool is_alike(const UnitMemory& a, const UnitMemory& b) {
  return !a.unit.empty() && !b.unit.empty() && a.numel == b.numel && a.dtype == b.dtype &&
         a.is_trained == b.is_trained && a.state() == b.state();
}

std::vector<UnitRun> fold(const std::vector<UnitMemory>& units) {
  std::vector<UnitRun> runs;
  for (const UnitMemory& unit : units) {
    if (runs.empty() || !is_alike(*runs.back().first, unit)) runs.push_back({&unit, &unit, 0});
    runs.back().last = &unit;
    runs.back().count += 1;
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

/// Text lines of two columns, the first padded.
class Lines final {
 public:
  explicit Lines(size_t width) : width_(width) {}

  void add(std::string name, const std::string& value) {
    name.resize(std::max(name.size() + 1, width_), ' ');
    text_ += cat("  ", name, value, "\n");
  }
  const std::string& text() const { return text_; }

 private:
  size_t width_;
  std::string text_;
};

std::string padded(std::string text, int64_t width) {
  const auto missing = width - static_cast<int64_t>(text.size());
  if (missing > 0) text.insert(0, static_cast<size_t>(missing), ' ');
  return text;
}

std::string bytes_text(int64_t bytes) {
  return format_bytes(static_cast<uint64_t>(bytes));
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
  Lines lines(14);
  for (const char* name : kGroupNames) {
    const auto groups = mesh.groups(*mesh::axes_of(name));
    if (groups[0].size() == 1) continue;
    std::string value = cat(groups.size(), groups.size() == 1 ? " group of " : " groups of ",
                            groups[0].size(), ": ", ranks_text(groups[0]));
    if (groups.size() > 1) value += cat("; ", ranks_text(groups[1]));
    if (groups.size() > 2) value += "; ..";
    lines.add(name, value);
  }
  return text + lines.text();
}

std::string strategy_text(const RecipePlan& plan) {
  const MemoryOptions& options = plan.options;
  std::string parts = options.num_replicas > 1
                          ? cat(options.num_replicas, " replicas: everything whole on each")
                          : "one rank: everything whole";
  at::ScalarType reduced = plan.dtype;
  if (const auto& sharding = options.sharding) {
    parts =
        cat("over ", options.num_parts, " ranks: parameters ", placement_name(sharding->parameters),
            ", gradients ", placement_name(sharding->gradients), ", optimizer state sharded");
    if (options.num_replicas > 1) parts += cat("; ", options.num_replicas, " replicas");
    reduced = sharding->reduce_dtype.value_or(plan.computed_dtype());
  }
  Lines lines(26);
  lines.add("strategy", cat(plan.strategy, ", ", parts));
  lines.add(
      "dtypes",
      cat("stored ", tensor::dtype_name(plan.dtype), ", computed ",
          tensor::dtype_name(plan.computed_dtype()), ", reduced ", tensor::dtype_name(reduced),
          options.sharding && options.sharding->main_dtype ? ", float32 masters" : ""));
  lines.add("activation checkpointing",
            options.recomputes ? "full: blocks keep their input and are computed again" : "off");
  lines.add("tensor parallelism", "off (tp_size 1)");
  lines.add("a micro-batch on a rank",
            cat(plan.shape.num_sequences,
                plan.shape.num_sequences == 1 ? " sequence of " : " sequences of ",
                plan.shape.sequence_length, " tokens",
                plan.sizes.cp == 1 ? "" : cat(" (its share of ", plan.whole_length, ")")));
  lines.add("micro-batches a step", cat(options.num_micro_batches));
  return lines.text();
}

std::string units_text(const RecipePlan& plan) {
  std::vector<std::vector<std::string>> rows = {
      {"unit", "parameters", "dtype", "state on a rank", "gathered whole"}};
  for (const UnitRun& run : fold(plan.memory.units)) {
    const UnitMemory& unit = *run.first;
    const std::string each = run.count > 1 ? " each" : "";
    rows.push_back({run.name(), cat(unit.numel, each),
                    cat(tensor::dtype_name(unit.dtype), unit.is_trained ? "" : " (frozen)"),
                    bytes_text(unit.state()) + each,
                    unit.gathered == 0 ? "always" : bytes_text(unit.gathered) + each});
  }
  std::vector<size_t> widths(rows[0].size(), 0);
  for (const auto& row : rows) {
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  std::string text;
  for (const auto& row : rows) {
    std::string line = row[0] + std::string(widths[0] - row[0].size(), ' ');
    for (size_t i = 1; i < row.size(); ++i) {
      line += "  " + padded(row[i], static_cast<int64_t>(widths[i]));
    }
    text += cat("  ", line, "\n");
  }
  return text;
}

std::string memory_text(const RecipePlan& plan) {
  const MemoryPlan& memory = plan.memory;
  const distributed::MemoryMoment& peak = memory.peak;
  const UnitMemory& largest = memory.largest_unit();
  const std::pair<const char*, int64_t> parts[] = {
      {"parameters", memory.parameters},
      {"gradients", memory.gradients},
      {"optimizer state", memory.optimizer},
      {"gathered parameters", peak.gathered},
      {"gradients not yet reduced", peak.whole_gradients},
      {"buffers kept for reuse", peak.idle},
      {"copies for collectives", peak.casts},
      {"kept activations", peak.activations},
      {"other activations", peak.working},
      {"logits and their gradients", peak.logits},
      {"total", memory.total()}};
  std::string text =
      cat("bytes on every rank, at the fullest moment of a step (", peak.name, ")\n");
  for (const auto& [name, bytes] : parts) {
    if (bytes == 0) continue;
    std::string line = name;
    line.resize(30, ' ');
    text += cat("  ", line, padded(bytes_text(bytes), 10), "\n");
  }
  text += cat("  the program itself is not counted; the largest unit is ",
              largest.unit.empty() ? "the root" : largest.unit, " with ", largest.numel,
              " parameters\n");
  return text;
}

std::string collectives_text(const RecipePlan& plan) {
  const distributed::StepCollectives& step = plan.memory.per_step;
  Lines lines(26);
  if (step.num_gathers > 0) {
    lines.add("all-gathers", cat(step.num_gathers, ", ", bytes_text(step.gathered_bytes)));
  }
  if (step.num_reductions > 0) {
    lines.add(plan.options.sharding ? "reduce-scatters" : "all-reduces",
              cat(step.num_reductions, ", ", bytes_text(step.reduced_bytes)));
  }
  if (step.num_replica_reductions > 0) {
    lines.add("all-reduces over replicas",
              cat(step.num_replica_reductions, ", ", bytes_text(step.replica_reduced_bytes)));
  }
  if (lines.text().empty()) return "no collectives on parameters or gradients\n";
  return "collectives of a step, bytes of the whole tensors\n" + lines.text();
}

std::string plan_text(const RecipePlan& plan) {
  const std::string beginning =
      cat(plan.recipe, ": ", plan.architecture, ", ", plan.num_parameters, " parameters (",
          plan.num_trained, " trained)\n", mesh_text(plan), strategy_text(plan));
  if (plan.pipeline) return beginning + pipeline_text(*plan.pipeline);
  return cat(beginning, units_text(plan), memory_text(plan), collectives_text(plan));
}

Json units_json(const RecipePlan& plan) {
  Json units = Json::array();
  for (const UnitRun& run : fold(plan.memory.units)) {
    const UnitMemory& unit = *run.first;
    Json entry = Json::object();
    entry["first"] = unit.unit;
    entry["last"] = run.last->unit;
    entry["count"] = run.count;
    entry["num_parameters"] = unit.numel;
    entry["is_trained"] = unit.is_trained;
    entry["dtype"] = tensor::dtype_name(unit.dtype);
    entry["computed_dtype"] = tensor::dtype_name(unit.computed_dtype);
    entry["parameters"] = unit.parameters + unit.masters;
    entry["gradients"] = unit.gradients;
    entry["optimizer"] = unit.optimizer;
    entry["gathered"] = unit.gathered;
    entry["whole_gradients"] = unit.whole_gradients;
    entry["accumulated"] = unit.accumulated;
    entry["reduced"] = unit.sent;
    units.push_back(std::move(entry));
  }
  return units;
}

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
  out["strategy"] = plan.strategy;
  out["num_parts"] = plan.options.num_parts;
  out["num_replicas"] = plan.options.num_replicas;
  out["recomputes"] = plan.options.recomputes;
  out["num_sequences"] = plan.shape.num_sequences;
  out["sequence_length"] = plan.shape.sequence_length;
  out["num_micro_batches"] = plan.options.num_micro_batches;
  if (plan.pipeline) {
    out["pipeline"] = pipeline_json(*plan.pipeline);
    return out;
  }
  out["units"] = units_json(plan);
  Json& bytes = out["bytes"];
  bytes["parameters"] = memory.parameters;
  bytes["gradients"] = memory.gradients;
  bytes["optimizer"] = memory.optimizer;
  bytes["state"] = memory.state();
  bytes["moment"] = peak.name;
  bytes["gathered"] = peak.gathered;
  bytes["whole_gradients"] = peak.whole_gradients;
  bytes["idle"] = peak.idle;
  bytes["casts"] = peak.casts;
  bytes["activations"] = peak.activations;
  bytes["working"] = peak.working;
  bytes["logits"] = peak.logits;
  bytes["total"] = memory.total();
  const distributed::StepCollectives& step = memory.per_step;
  Json& collectives = out["collectives_of_a_step"];
  collectives["num_gathers"] = step.num_gathers;
  collectives["gathered_bytes"] = step.gathered_bytes;
  collectives["num_reductions"] = step.num_reductions;
  collectives["reduced_bytes"] = step.reduced_bytes;
  collectives["num_replica_reductions"] = step.num_replica_reductions;
  collectives["replica_reduced_bytes"] = step.replica_reduced_bytes;
  return out;
}

/// Axes whose bytes this version cannot tell.
void check_axes(const Recipe& recipe) {
  const auto& sizes = recipe.distributed.sizes;
  const std::pair<const char*, std::optional<int64_t>> axes[] = {{"tp_size", sizes.tp_size},
                                                                 {"ep_size", sizes.ep_size}};
  for (const auto& [key, size] : axes) {
    if (size.value_or(1) > 1) {
      throw UnsupportedError(cat("distributed.", key, " ", *size,
                                 ": plans of more than data, pipeline and context parallelism are "
                                 "not in this version"));
    }
  }
}

}  // namespace

int run_plan_command(const PlanRequest& request) {
  const config::Document document = config::load_recipe(request.recipe_path, request.overrides);
  config::Diagnostics diagnostics(document.sources);
  const Recipe recipe = read_recipe(document.root, diagnostics);
  const int64_t ranks = request.world_size.value_or(fitting_world_size(recipe));
  check_run(recipe, {.world_size = ranks, .loads_tokenizers = false, .looks_at_data = false},
            diagnostics);
  using config::Severity;
  if (diagnostics.count(Severity::kError) > 0) diagnostics.throw_if_errors();
  if (!recipe.model.hf_config.is_object()) {
    throw InputError(cat("model '", recipe.model.source,
                         "' is not on this machine: a plan needs "
                         "its config.json"));
  }
  check_axes(recipe);
  const RecipePlan plan = make_plan(recipe, request, ranks);
  std::cout << (request.is_json ? plan_json(plan).dump(2) + "\n" : plan_text(plan));
  const auto missing = diagnostics.render_all(Severity::kUnsupported);
  for (const std::string& text : missing) std::cerr << text << "\n";
  return missing.empty() ? 0 : static_cast<int>(ExitCode::kUnsupported);
}

}  // namespace automodel::recipes
