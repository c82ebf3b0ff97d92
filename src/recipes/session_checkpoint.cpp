#include "recipes/session_checkpoint.h"

#include "checkpoint/hf_export.h"
#include "checkpoint/hf_folder.h"
#include "checkpoint/lifecycle.h"
#include "checkpoint/sharded.h"
#include "checkpoint/signature.h"
#include "checkpoint/state_files.h"
#include "core/clock.h"
#include "core/error.h"
#include "core/file.h"
#include "distributed/split_engine.h"

namespace automodel::recipes {

namespace {

using checkpoint::CheckpointName;
using checkpoint::ShardGroup;

checkpoint::LifecycleOptions lifecycle_options(const CheckpointSection& section,
                                               bool is_coordinator) {
  checkpoint::LifecycleOptions options;
  options.root = section.checkpoint_dir;
  options.best_metric_key = section.best_metric_key;
  options.max_recent_checkpoints = section.max_recent_checkpoints;
  options.is_coordinator = is_coordinator;
  return options;
}

checkpoint::ModelSignature signature_of(const Recipe& recipe) {
  const bool has_name = !recipe.model.is_from_config && !recipe.model.source.empty();
  return checkpoint::ModelSignature(
      has_name ? std::optional<std::string>(recipe.model.source) : std::nullopt,
      recipe.model.hf_config, false);
}

std::vector<ShardGroup> optimizer_groups(optim::Optimizer& optimizer) {
  std::vector<ShardGroup> groups;
  for (const optim::OptimizerState& state : optimizer.state()) {
    groups.push_back({state.name + ".", state.shards});
  }
  return groups;
}

}  // namespace

SessionCheckpoint::SessionCheckpoint(const Recipe& recipe, comm::ProcessGroup group,
                                     Reporter& reporter, std::string resolved_recipe)
    : recipe_(recipe),
      group_(std::move(group)),
      reporter_(reporter),
      resolved_recipe_(std::move(resolved_recipe)) {}

bool SessionCheckpoint::restore(const SessionState& state) {
  if (!recipe_.checkpoint.enabled && !recipe_.checkpoint.restore_from) return false;
  const bool is_coordinator = group_.rank() == 0;
  std::string chosen;
  if (is_coordinator) {
    checkpoint::Lifecycle lifecycle(lifecycle_options(recipe_.checkpoint, true), reporter_);
    chosen = lifecycle.choose(recipe_.checkpoint.restore_from, signature_of(recipe_)).value_or("");
  }
  chosen = group_.broadcast_text(chosen, 0);
  if (chosen.empty()) return false;
  const double begin = monotonic_seconds();
  load(state, chosen);
  reporter_.info(cat("resumed from ", chosen, " (",
                     recipe_.checkpoint.restore_from ? "restore_from" : "the newest checkpoint",
                     "), next step ", state.scheduler.step(), ", in ",
                     format_duration(monotonic_seconds() - begin)));
  return true;
}

void SessionCheckpoint::load(const SessionState& state, const std::string& folder) const {
  // choose() has read and verified every byte already.
  const checkpoint::ShardLoadOptions options{.verify_partial_pieces = false};
  const std::vector<ShardGroup> model = {{"", state.engine.parameters()}};
  checkpoint::load_shards(path_join(folder, "model"), model, options);
  const std::vector<ShardGroup> optimizer = optimizer_groups(state.optimizer);
  if (!optimizer.empty()) {
    checkpoint::load_shards(path_join(folder, "optim"), optimizer, options);
  }
  const Json scalars = checkpoint::read_state(checkpoint::optimizer_path(folder));
  state.optimizer.set_num_steps(scalars.at("num_steps").as_int());
  const bool takes_schedule =
      !recipe_.lr_scheduler || (recipe_.lr_scheduler->use_checkpoint_opt_param_scheduler &&
                                !recipe_.lr_scheduler->override_opt_param_scheduler);
  if (takes_schedule && recipe_.lr_scheduler) {
    state.train_step.set_schedule(optim::LrSchedule::from_state(scalars.at("schedule")));
  }
  state.scheduler.load_state(checkpoint::read_state(checkpoint::step_scheduler_path(folder)));
  state.stream.load_state(checkpoint::read_state(checkpoint::dataloader_path(folder, 0)));
}

void SessionCheckpoint::save(const SessionState& state, const SaveRequest& request) {
  const double begin = monotonic_seconds();
  const bool is_coordinator = group_.rank() == 0;
  checkpoint::Lifecycle lifecycle(lifecycle_options(recipe_.checkpoint, is_coordinator), reporter_);
  const CheckpointName name{state.scheduler.epoch(), state.scheduler.step()};
  const std::string folder = lifecycle.reserve(name);
  group_.barrier();
  try {
    write_rank_files(state, folder);
    group_.barrier();  // who finishes the folder looks at all ranks' files
    if (is_coordinator) write_shared_files(state, request, folder);
    group_.barrier();
    lifecycle.publish(name, request.train_loss, request.validation_losses, {});
  } catch (const InputError&) {
    // A failed save (disk full) leaves no half checkpoint behind; the error goes on.
    lifecycle.abandon(name);
    throw;
  }
  group_.barrier();
  reporter_.info(cat("saved ", folder, " in ", format_duration(monotonic_seconds() - begin)));
}

void SessionCheckpoint::write_rank_files(const SessionState& state,
                                         const std::string& folder) const {
  Json rng = Json::object();
  rng["seed"] = recipe_.seed;
  checkpoint::write_state(checkpoint::rng_path(folder, group_.rank()), rng);
  const distributed::HeldPart part = state.engine.held_part();
  if (!part.is_saved_here && !part.has_own_units) return;
  const auto parameters = distributed::saved_shards(state.engine.parameters(), state.engine);
  const std::vector<ShardGroup> model = {{"", parameters}};
  checkpoint::save_shards(path_join(folder, "model"), {"model", part.index, part.count}, model);
  std::vector<std::vector<tensor::FlatShard>> kept;
  std::vector<ShardGroup> optimizer;
  for (const optim::OptimizerState& moments : state.optimizer.state()) {
    kept.push_back(distributed::saved_shards(moments.shards, state.engine));
    optimizer.push_back({moments.name + ".", kept.back()});
  }
  checkpoint::save_shards(path_join(folder, "optim"), {"optim", part.index, part.count}, optimizer);
}

void SessionCheckpoint::write_shared_files(const SessionState& state, const SaveRequest& request,
                                           const std::string& folder) const {
  const int world = state.engine.held_part().count;
  checkpoint::finish_shards(path_join(folder, "model"), {"model", 0, world});
  checkpoint::finish_shards(path_join(folder, "optim"), {"optim", 0, world});
  Json scalars = Json::object();
  scalars["num_steps"] = state.optimizer.num_steps();
  scalars["optimizer"] = state.optimizer.describe();
  scalars["schedule"] = state.train_step.schedule().state();
  checkpoint::write_state(checkpoint::optimizer_path(folder), scalars);
  checkpoint::write_state(checkpoint::step_scheduler_path(folder), state.scheduler.state());
  checkpoint::write_state(checkpoint::dataloader_path(folder, 0), request.position);
  checkpoint::write_state(checkpoint::signature_path(folder), signature_of(recipe_).to_json());
  write_file_atomic(checkpoint::recipe_path(folder), resolved_recipe_);
  const std::string& when = recipe_.checkpoint.save_consolidated;
  if (when == "every" || (when == "final" && request.is_final)) export_model(state, folder);
}

void SessionCheckpoint::export_model(const SessionState& state, const std::string& folder) const {
  checkpoint::HfExport what;
  what.config = state.model.hf_config();
  const std::string& base = recipe_.model.folder;
  if (!recipe_.model.is_from_config && checkpoint::has_weights(base)) what.original_folder = base;
  what.kept_prefixes = state.model.kept_prefixes();
  what.tokenizer_folder = tokenizer_folder(recipe_, recipe_.dataset);
  const std::string target = path_join(folder, "model/consolidated");
  if (state.engine.held_part().count > 1) {
    const auto saved = checkpoint::ShardedFolder::open(path_join(folder, "model"));
    checkpoint::save_hf_folder(target, saved, what);
  } else {
    checkpoint::save_hf_folder(target, checkpoint::ShardSource(state.engine.parameters()), what);
  }
}

std::optional<at::ScalarType> checkpoint_dtype(const std::string& folder) {
  return checkpoint::HfFolder::open(folder).storage_dtype();
}

checkpoint::LoadOptions load_options(const models::CausalLM& model) {
  checkpoint::LoadOptions options;
  options.skipped_prefixes = model.kept_prefixes();
  options.stand_ins = model.stand_ins();
  return options;
}

namespace {

/// One line about tensors that are no part of the model here and are saved as they came.
void report_kept_tensors(const checkpoint::HfFolder& folder,
                         const std::vector<std::string>& prefixes, Reporter& reporter) {
  int64_t count = 0;
  for (const std::string& name : folder.names()) {
    count += checkpoint::has_prefix(name, prefixes) ? 1 : 0;
  }
  if (count == 0) return;
  reporter.info(cat("weights: ", count, " tensors of ", join(prefixes, " and "),
                    " are not trained; they are saved as they came"));
}

}  // namespace

void load_base_weights(const std::string& folder, const models::CausalLM& model,
                       const std::vector<tensor::FlatShard>& parameters,
                       const std::vector<std::string>& left_out, Reporter& reporter) {
  const double begin = monotonic_seconds();
  checkpoint::LoadOptions options = load_options(model);
  options.reporter = &reporter;
  const auto opened = checkpoint::HfFolder::open(folder);
  report_kept_tensors(opened, options.skipped_prefixes, reporter);
  options.skipped_prefixes.insert(options.skipped_prefixes.end(), left_out.begin(), left_out.end());
  const auto report = checkpoint::load_weights(opened, model.key_map(), parameters, options);
  reporter.info(cat("weights: ", report.num_tensors, " tensors, ", format_bytes(report.num_bytes),
                    " from ", folder, " in ", format_duration(monotonic_seconds() - begin)));
}

}  // namespace automodel::recipes
