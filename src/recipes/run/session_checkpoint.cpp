#include "recipes/run/session_checkpoint.h"

#include "checkpoint/hf_export.h"
#include "checkpoint/hf_folder.h"
#include "checkpoint/manifest.h"
#include "checkpoint/sharded.h"
#include "checkpoint/signature.h"
#include "checkpoint/state_files.h"
#include "core/clock.h"
#include "core/error.h"
#include "core/file.h"
#include "distributed/engine/split_engine.h"
#include "recipes/read/read_distillation.h"
#include "recipes/read/read_recipe.h"
#include "recipes/run/session_adapters.h"
#include "tensor/dtype.h"

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

checkpoint::ModelSignature signature_of_model(const Recipe& recipe) {
  const bool has_name = !recipe.model.is_from_config && !recipe.model.source.empty();
  // The name as written does not depend on the folder in which the run is started.
  const config::Node* written = recipe.root.find_path("model.pretrained_model_name_or_path");
  const bool is_text = written != nullptr && written->is_string();
  const std::string name = is_text ? *written->string_value() : recipe.model.source;
  const auto& four_bits = recipe.quantization;
  const std::string quantization = four_bits
                                       ? cat(four_bits->bnb_4bit_quant_type,
                                             four_bits->bnb_4bit_use_double_quant ? ", double" : "")
                                       : "";
  return checkpoint::ModelSignature(has_name ? std::optional(name) : std::nullopt,
                                    recipe.model.hf_config, recipe.peft.has_value(), quantization);
}

/// A distilled model's has its teacher's too.
checkpoint::ModelSignature signature_of(const Recipe& recipe) {
  checkpoint::ModelSignature signature = signature_of_model(recipe);
  if (recipe.distillation) {
    signature.add_teacher(signature_of_model(teacher_recipe(recipe)));
  }
  return signature;
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
                                     comm::SlowWork& slow_work, Reporter& reporter,
                                     std::string resolved_recipe)
    : recipe_(recipe),
      group_(std::move(group)),
      slow_work_(slow_work),
      reporter_(reporter),
      resolved_recipe_(std::move(resolved_recipe)) {
  if (!recipe_.benchmark) lock_folder();  // a benchmark writes nothing there
}

void SessionCheckpoint::lock_folder() {
  const std::string& folder = recipe_.checkpoint.checkpoint_dir;
  const bool is_coordinator = group_.rank() == 0;
  const std::string name = "locking the checkpoint folder";
  slow_work_.run(name, [&] {
    if (is_coordinator) lock_.emplace(checkpoint::FolderLock::of_run(folder, reporter_));
  });
  slow_work_.run(name, [&] {
    if (!is_coordinator) lock_.emplace(checkpoint::FolderLock::of_rank(folder));
  });
}

std::string SessionCheckpoint::restore(const SessionState& state) {
  if (!recipe_.checkpoint.enabled && !recipe_.checkpoint.restore_from) return "";
  const double begin = monotonic_seconds();
  const std::string chosen = choose();
  if (chosen.empty()) return "";
  slow_work_.run("loading the checkpoint", [&] { load(state, chosen); });
  reporter_.info(cat("resumed from ", chosen, " (",
                     recipe_.checkpoint.restore_from ? "restore_from" : "the newest checkpoint",
                     "), next step ", state.scheduler.step(), ", in ",
                     format_duration(monotonic_seconds() - begin)));
  return chosen;
}

namespace {

constexpr std::string_view kVerify = "verify ";
constexpr std::string_view kTake = "take ";

}  // namespace

std::string SessionCheckpoint::choose() {
  if (group_.rank() != 0) return verify_candidates();
  checkpoint::LifecycleOptions options = lifecycle_options(recipe_.checkpoint, true);
  options.find_damage = [this](const std::string& candidate) {
    broadcast_text(cat(kVerify, candidate));
    return verify(candidate);
  };
  checkpoint::Lifecycle lifecycle(options, reporter_);
  const std::string chosen =
      lifecycle.choose(recipe_.checkpoint.restore_from, signature_of(recipe_)).value_or("");
  passed_over_ = lifecycle.passed_over();
  broadcast_text(cat(kTake, chosen));
  return chosen;
}

std::string SessionCheckpoint::verify_candidates() {
  std::string told = broadcast_text("");
  while (told.starts_with(kVerify)) {
    verify(told.substr(kVerify.size()));
    told = broadcast_text("");
  }
  return told.substr(kTake.size());
}

std::string SessionCheckpoint::broadcast_text(const std::string& text) {
  slow_work_.run("choosing a checkpoint", [] {});
  return group_.broadcast_text(text, 0);
}

std::optional<std::string> SessionCheckpoint::verify(const std::string& checkpoint) {
  std::string damage;
  slow_work_.run(cat("verifying ", checkpoint), [&] {
    const checkpoint::VerifyShare share{group_.rank(), group_.size(), &slow_work_.progress()};
    damage = checkpoint::find_damage(checkpoint, share).value_or("");
  });
  for (const std::string& found : group_.all_gather_text(damage)) {
    if (!found.empty()) return found;
  }
  return std::nullopt;
}

void SessionCheckpoint::load(const SessionState& state, const std::string& folder) const {
  // choose() has already read and verified every byte.
  const checkpoint::ShardLoadOptions options{.verify_partial_pieces = false,
                                             .progress = &slow_work_.progress()};
  const std::vector<ShardGroup> model = {{"", saved_parameters(state.engine)}};
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

/// With adapters only these are saved; everything else is in the base model's folder.
const std::vector<tensor::FlatShard>& SessionCheckpoint::saved_parameters(
    const distributed::Engine& engine) const {
  return recipe_.peft ? engine.trained() : engine.parameters();
}

std::string SessionCheckpoint::save(const SessionState& state, const SaveRequest& request) {
  const double begin = monotonic_seconds();
  const bool is_coordinator = group_.rank() == 0;
  checkpoint::LifecycleOptions options = lifecycle_options(recipe_.checkpoint, is_coordinator);
  options.passed_over = passed_over_;
  checkpoint::Lifecycle lifecycle(std::move(options), reporter_);
  const CheckpointName name{state.scheduler.epoch(), state.scheduler.step()};
  const std::string folder = lifecycle.path(name);
  try {
    slow_work_.run(cat("reserving ", folder), [&] { lifecycle.reserve(name); });
    passed_over_.erase(name.text());
    slow_work_.run(cat("saving ", folder), [&] { write_rank_files(state, folder); });
    // The rank that finishes the folder needs all ranks' files.
    slow_work_.run(cat("finishing ", folder), [&] {
      if (!is_coordinator) return;
      const auto known = write_shared_files(state, request, folder);
      lifecycle.publish(name, request.train_loss, request.validation_losses, known);
    });
  } catch (const std::exception&) {
    // A failed save (e.g. a full disk) removes its half checkpoint, and the error is thrown on.
    // When a rank was lost, others may still be writing; the next save replaces what they leave.
    if (slow_work_.has_met()) abandon(lifecycle, name);
    throw;
  }
  reporter_.info(cat("saved ", folder, " in ", format_duration(monotonic_seconds() - begin)));
  return folder;
}

void SessionCheckpoint::abandon(checkpoint::Lifecycle& lifecycle,
                                const CheckpointName& name) const {
  try {
    lifecycle.abandon(name);
  } catch (const UserError& error) {
    reporter_.warning(cat("the unfinished ", lifecycle.path(name), " stays there: ", error.what()));
  }
}

void SessionCheckpoint::write_rank_files(const SessionState& state,
                                         const std::string& folder) const {
  Json rng = Json::object();
  rng["seed"] = recipe_.seed;
  checkpoint::write_state(checkpoint::rng_path(folder, group_.rank()), rng);
  const distributed::HeldPart part = state.engine.held_part();
  if (!part.is_saved_here && !part.has_own_units) return;
  const auto parameters = distributed::saved_shards(saved_parameters(state.engine), state.engine);
  const std::vector<ShardGroup> model = {{"", parameters}};
  checkpoint::save_shards(path_join(folder, "model"), {"model", part.index, part.count}, model,
                          &slow_work_.progress());
  std::vector<std::vector<tensor::FlatShard>> kept;
  std::vector<ShardGroup> optimizer;
  for (const optim::OptimizerState& moments : state.optimizer.state()) {
    kept.push_back(distributed::saved_shards(moments.shards, state.engine));
    optimizer.push_back({moments.name + ".", kept.back()});
  }
  checkpoint::save_shards(path_join(folder, "optim"), {"optim", part.index, part.count}, optimizer,
                          &slow_work_.progress());
}

std::vector<FileRecord> SessionCheckpoint::write_shared_files(const SessionState& state,
                                                              const SaveRequest& request,
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
  if (recipe_.peft) {
    const std::string target = path_join(folder, "model");
    return export_adapters(recipe_, state.model, checkpoint::ShardedFolder::open(target), target);
  }
  const std::string& when = recipe_.checkpoint.save_consolidated;
  if (when == "every" || (when == "final" && request.is_final)) return export_model(state, folder);
  return {};
}

std::vector<FileRecord> SessionCheckpoint::export_model(const SessionState& state,
                                                        const std::string& folder) const {
  checkpoint::HfExport what;
  what.config = state.model.hf_config();
  const std::string& base = recipe_.model.folder;
  if (!recipe_.model.is_from_config && checkpoint::has_weights(base)) what.original_folder = base;
  what.kept_prefixes = state.model.kept_prefixes();
  what.tokenizer_folder = tokenizer_folder(recipe_, recipe_.dataset);
  what.chat_template = recipe_.dataset.plan->named_template();
  what.progress = &slow_work_.progress();
  const std::string target = path_join(folder, "model/consolidated");
  if (state.engine.held_part().count > 1) {
    const auto saved = checkpoint::ShardedFolder::open(path_join(folder, "model"));
    return checkpoint::save_hf_folder(target, saved, what);
  }
  return checkpoint::save_hf_folder(target, checkpoint::ShardSource(state.engine.parameters()),
                                    what);
}

}  // namespace automodel::recipes
