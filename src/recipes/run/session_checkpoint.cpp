#include "recipes/run/session_checkpoint.h"

#include <omp.h>

#include <cmath>
#include <optional>
#include <regex>
#include <unordered_map>

#include "checkpoint/manifest.h"
#include "checkpoint/sharded.h"
#include "checkpoint/signature.h"
#include "checkpoint/state_files.h"
#include "core/clock.h"
#include "core/error.h"
#include "distributed/engine/split_engine.h"
#include "peft/adapter_folder.h"
#include "peft/adapter_keys.h"
#include "recipes/run/host_blocks.h"
#include "tensor/dtype.h"

namespace automodel::recipes {

namespace {

using checkpoint::NamedShards;

std::vector<NamedShards> optimizer_shards(optim::Optimizer& optimizer) {
  std::vector<NamedShards> groups;
  for (const optim::OptimizerState& state : optimizer.state()) {
    groups.push_back({state.name + ".", state.shards});
  }
  return groups;
}

/// The key of a recipe that a schedule's parameter comes from.
std::string key_of(std::string_view parameter,
                   const std::optional<optim::LrSchedulerConfig>& config) {
  if (parameter == "max_lr" && !(config && config->max_lr)) return "optimizer.lr";
  if (parameter == "end_wd" && !(config && config->end_wd)) return "optimizer.weight_decay";
  return cat("lr_scheduler.", parameter);
}

/// Whether a parameter is, in both schedules, the same share of max_lr, or of end_wd: the
/// difference of that one says this one's too.
bool follows_another(std::string_view parameter, const Json& recipes, const Json& continued) {
  const bool is_rate = parameter == "init_lr" || parameter == "min_lr";
  if (!is_rate && parameter != "start_wd") return false;
  const char* const other = is_rate ? "max_lr" : "end_wd";
  const auto share_in = [&](const Json& schedule) {
    return schedule.at(parameter).as_double() / schedule.at(other).as_double();
  };
  constexpr double kRounding = 1e-12;
  return std::abs(share_in(recipes) - share_in(continued)) < kRounding;
}

/// The parameters in which the recipe's schedule is another than the one that is continued:
/// "optimizer.lr 0.001 (the checkpoint's: 0.002)".
std::vector<std::string> differences(const Json& recipes, const Json& continued,
                                     const std::optional<optim::LrSchedulerConfig>& config) {
  std::vector<std::string> found;
  for (const auto& [parameter, value] : recipes.as_object()) {
    const Json& kept = continued.at(parameter);
    if (kept.dump() == value.dump()) continue;
    // By default the steps of the run; without effect where the decay stays what it is.
    const bool is_constant = recipes.at("start_wd").dump() == recipes.at("end_wd").dump();
    if (parameter == "wd_incr_steps" && is_constant) continue;
    if (follows_another(parameter, recipes, continued)) continue;
    const auto shown = [](const Json& json) {
      return json.is_string() ? json.as_string() : cat(json.as_double());
    };
    found.push_back(cat(key_of(parameter, config), " ", shown(value),
                        " (the checkpoint's: ", shown(kept), ")"));
  }
  return found;
}

/// Throws InputError unless a checkpoint's adapters are those that the recipe trains: what is
/// loaded by names alone would leave some out, or scale them anew.
void check_adapters(const std::string& folder, const peft::PeftConfig& config,
                    const models::CausalLM& model) {
  const std::string fault = peft::find_adapter_fault(folder, config, model);
  if (fault.empty()) return;
  throw InputError(cat(fault,
                       "\n  a run continues with the peft section that it began with; or "
                       "take another checkpoint.checkpoint_dir"));
}

/// A warning where parameters are kept in fewer bits than a checkpoint has of them.
std::optional<std::string> rounding_text(const checkpoint::ShardedFolder& weights,
                                         const std::vector<tensor::FlatShard>& parameters) {
  std::unordered_map<std::string, at::ScalarType> own;
  for (const tensor::FlatShard& shard : parameters) {
    for (const tensor::FlatSegment& segment : shard.segments) {
      own.emplace(segment.fqn, shard.buffer.scalar_type());
    }
  }
  for (const checkpoint::TensorInfo& saved : weights.tensors()) {
    const auto kept = own.find(saved.name);
    const bool is_rounded =
        kept != own.end() && c10::promoteTypes(saved.dtype, kept->second) != kept->second;
    if (!is_rounded) continue;
    return cat("the checkpoint has weights in ", tensor::dtype_name(saved.dtype), " (", saved.name,
               ") that this run keeps in ", tensor::dtype_name(kept->second),
               ": they are rounded, and losses do not go on as they were");
  }
  return std::nullopt;
}

}  // namespace

SessionCheckpoint::SessionCheckpoint(const Recipe& recipe, comm::ProcessGroup group,
                                     comm::SlowWork& slow_work,
                                     std::optional<Background> background, Reporter& reporter,
                                     std::string resolved_recipe)
    : recipe_(recipe),
      group_(std::move(group)),
      slow_work_(slow_work),
      background_(background),
      reporter_(reporter),
      resolved_recipe_(std::move(resolved_recipe)) {
  if (recipe_.benchmark) return;  // it writes nothing there
  lock_folder();
  if (group_.rank() == 0) signature_ = signature_of(recipe_);
}

void SessionCheckpoint::lock_folder() {
  const std::string& folder = recipe_.checkpoint.checkpoint_dir;
  const bool is_coordinator = group_.rank() == 0;
  const std::string name = "locking the checkpoint folder";
  slow_work_.run(name, [&] {
    if (!is_coordinator) return;
    lock_ =
        std::make_shared<checkpoint::FolderLock>(checkpoint::FolderLock::of_run(folder, reporter_));
  });
  // Hosts that save, and go on from what was saved, share the folder.
  const std::string shared =
      group_.broadcast_text(is_coordinator && recipe_.checkpoint.enabled ? lock_->owner() : "", 0);
  slow_work_.run(name, [&] {
    if (is_coordinator) return;
    lock_ =
        std::make_shared<checkpoint::FolderLock>(checkpoint::FolderLock::of_rank(folder, shared));
  });
}

std::string SessionCheckpoint::restore(const SessionState& state) {
  if (!recipe_.checkpoint.enabled && !recipe_.checkpoint.restore_from) return "";
  const double begin = monotonic_seconds();
  const std::string chosen = choose(recipe_.checkpoint.restore_from);
  if (chosen.empty()) return "";
  slow_work_.run("loading the checkpoint", [&] {
    const bool is_exporting = recipe_.checkpoint.enabled && !recipe_.peft &&
                              recipe_.checkpoint.save_consolidated != "false";
    if (is_exporting && group_.rank() == 0) check_base(recipe_);
    load(state, chosen);
    state.scheduler.load_state(checkpoint::read_state(checkpoint::step_scheduler_path(chosen)));
    const Json place = checkpoint::read_state(checkpoint::dataloader_path(chosen, 0));
    state.stream.load_state(place);
    if (state.stream.has_begun_anew()) {
      state.scheduler.begin_epoch_anew(place.at("is_exhausted").as_bool());
    }
  });
  newest_ = chosen;
  reporter_.info(cat("resumed from ", chosen, " (",
                     recipe_.checkpoint.restore_from ? "restore_from" : "the newest checkpoint",
                     "), next step ", state.scheduler.step(), ", in ",
                     format_duration(monotonic_seconds() - begin)));
  return chosen;
}

void SessionCheckpoint::roll_back(const SessionState& state) {
  AM_CHECK(!under_way_ && !newest_.empty());
  const std::string chosen = choose(newest_);
  slow_work_.run("going back to a checkpoint", [&] {
    load(state, chosen);
    const Json progress = checkpoint::read_state(checkpoint::step_scheduler_path(chosen));
    state.scheduler.go_back_to(progress.at("step").as_int());
  });
  state.engine.parameters_changed();
}

namespace {

constexpr std::string_view kVerify = "verify ";
constexpr std::string_view kTake = "take ";

}  // namespace

std::string SessionCheckpoint::choose(const std::optional<std::string>& wanted) {
  if (group_.rank() != 0) return verify_candidates();
  checkpoint::LifecycleOptions options = lifecycle_options(recipe_.checkpoint, true);
  options.passed_over = passed_over_;
  options.tidies = recipe_.checkpoint.enabled && lock_ != nullptr;
  options.find_damage = [this](const std::string& candidate) {
    broadcast_text(cat(kVerify, candidate));
    return verify(candidate);
  };
  checkpoint::Lifecycle lifecycle(options, reporter_);
  const std::string chosen = lifecycle.choose(wanted, signature_).value_or("");
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
  if (recipe_.peft) check_adapters(path_join(folder, "model"), *recipe_.peft, state.model);
  const std::vector<NamedShards> model = {{"", saved_parameters(state.engine)}};
  const auto weights = checkpoint::ShardedFolder::open(path_join(folder, "model"));
  if (const auto text = rounding_text(weights, saved_parameters(state.engine))) {
    reporter_.warning(*text);
  }
  weights.load(model, options);
  const std::vector<NamedShards> optimizer = optimizer_shards(state.optimizer);
  if (!optimizer.empty()) {
    checkpoint::load_shards(path_join(folder, "optim"), optimizer, options);
  }
  const Json scalars = checkpoint::read_state(checkpoint::optimizer_path(folder));
  state.optimizer.set_num_steps(scalars.at("num_steps").as_int());
  const bool takes_schedule =
      !recipe_.lr_scheduler || (recipe_.lr_scheduler->use_checkpoint_opt_param_scheduler &&
                                !recipe_.lr_scheduler->override_opt_param_scheduler);
  if (takes_schedule) take_schedule(state, scalars.at("schedule"));
  compare_optimizers(scalars.at("optimizer").as_string(), state.optimizer.describe());
  training::NormWatch* const norms = state.train_step.norms();
  if (const Json* saved = scalars.find("gradient_norms"); norms != nullptr && saved != nullptr) {
    norms->load_state(*saved);
  }
  state.num_rollbacks = scalars.get("num_rollbacks", int64_t{0});
  const Json* const stopping = scalars.find("early_stopping");
  if (state.early_stopping != nullptr) {
    state.early_stopping->restart();
    if (stopping != nullptr) state.early_stopping->load_state(*stopping);
  }
}

void SessionCheckpoint::take_schedule(const SessionState& state, const Json& saved) const {
  const std::vector<std::string> changed =
      differences(state.train_step.schedule().state(), saved, recipe_.lr_scheduler);
  if (!changed.empty()) {
    reporter_.warning(
        cat("the checkpoint's learning-rate schedule goes on, and the recipe's has no ",
            "effect: ", join(changed, ", "),
            recipe_.lr_scheduler
                ? "; lr_scheduler.override_opt_param_scheduler: true takes the recipe's"
                : "; lr_scheduler: {lr_decay_style: constant, lr_warmup_steps: 0, "
                  "override_opt_param_scheduler: true} takes the recipe's"));
  }
  state.train_step.set_schedule(optim::LrSchedule::from_state(saved));
}

/// Warns where a run goes on under other arguments than the checkpoint's optimizer had.
void SessionCheckpoint::compare_optimizers(const std::string& saved, const std::string& own) const {
  // These two are the schedule's.
  static const std::regex scheduled("(, )?(lr|weight_decay) [^,)]*");
  const auto rest = [](const std::string& text) { return std::regex_replace(text, scheduled, ""); };
  if (rest(saved) == rest(own)) return;
  reporter_.warning(cat("the checkpoint's optimizer was ", saved, ", the recipe's is ", own,
                        ": the run goes on from the state of the former by the arguments of the "
                        "latter"));
}

/// With adapters only these are saved; everything else is in the base model's folder.
const std::vector<tensor::FlatShard>& SessionCheckpoint::saved_parameters(
    const distributed::Engine& engine) const {
  return recipe_.peft ? engine.trained() : engine.parameters();
}

CheckpointContents SessionCheckpoint::contents(const SessionState& state,
                                               const SaveRequest& request) const {
  CheckpointContents contents;
  contents.name = {state.scheduler.epoch(), state.scheduler.step()};
  contents.part = state.engine.held_part();
  contents.parameters = distributed::saved_shards(saved_parameters(state.engine), state.engine);
  for (const optim::OptimizerState& moments : state.optimizer.state()) {
    contents.optimizer.emplace_back(moments.name + ".",
                                    distributed::saved_shards(moments.shards, state.engine));
  }
  contents.optimizer_scalars = Json::object();
  contents.optimizer_scalars["num_steps"] = state.optimizer.num_steps();
  contents.optimizer_scalars["optimizer"] = state.optimizer.describe();
  contents.optimizer_scalars["schedule"] = state.train_step.schedule().state();
  if (const training::NormWatch* norms = state.train_step.norms()) {
    contents.optimizer_scalars["gradient_norms"] = norms->state();
  }
  if (state.num_rollbacks > 0) contents.optimizer_scalars["num_rollbacks"] = state.num_rollbacks;
  if (state.early_stopping != nullptr) {
    contents.optimizer_scalars["early_stopping"] = state.early_stopping->state();
  }
  contents.step_scheduler = state.scheduler.state();
  contents.position = request.position;
  contents.train_loss = request.train_loss;
  contents.validation_losses = request.validation_losses;
  const std::string& when = recipe_.checkpoint.save_consolidated;
  contents.is_exported = when == "every" || (when == "final" && request.is_final);
  contents.architecture = state.model.architecture();
  contents.hf_config = state.model.hf_config();
  contents.kept_prefixes = state.model.kept_prefixes();
  contents.saved_modules = state.model.saved_modules();
  contents.tied_embedding = peft::tied_saved_embedding(state.model);
  return contents;
}

void SessionCheckpoint::prepare(const SessionState& state) {
  if (!background_ || std::exchange(is_prepared_, true) || !state.scheduler.saves_before_end())
    return;
  copies_ = memory_of_copies(contents(state, {}));
  if (copies_.defined()) reserving_.start([memory = copies_] { HostBlocks::touch(memory); });
}

std::optional<FinishedSave> SessionCheckpoint::save(const SessionState& state,
                                                    const SaveRequest& request) {
  AM_CHECK(!under_way_, "a save is under way");
  FinishedSave save;
  save.begin_seconds = monotonic_seconds();
  CheckpointContents what = contents(state, request);
  save.step = what.name.step;
  save.epoch = what.name.epoch;
  checkpoint::LifecycleOptions options = lifecycle_options(recipe_.checkpoint, group_.rank() == 0);
  options.passed_over = passed_over_;
  passed_over_.erase(what.name.text());
  save.folder = checkpoint::Lifecycle(options, reporter_).path(what.name);
  const CheckpointWriter writer(recipe_, resolved_recipe_, signature_, group_.rank(), reporter_);
  save.is_in_background = background_ && !request.ends_run;
  if (!save.is_in_background) {
    writer.write(what, std::move(options), slow_work_);
    save.seconds = monotonic_seconds() - save.begin_seconds;
    newest_ = save.folder;
    reporter_.info(cat("saved ", save.folder, " in ", format_duration(save.seconds)));
    return save;
  }
  if (reserving_.is_pending()) reserving_.wait();
  copy_tensors(what, copies_);
  save.waited_seconds = monotonic_seconds() - save.begin_seconds;
  background_->task.start([writer, lock = lock_, what = std::move(what),
                           options = std::move(options), &work = background_->work]() mutable {
    omp_set_num_threads(1);  // of this thread's loops: training has the cores
    writer.write(what, std::move(options), work);
    what = CheckpointContents();  // its memory is the next save's
  });
  under_way_ = std::move(save);
  return std::nullopt;
}

std::optional<FinishedSave> SessionCheckpoint::take_finished() {
  if (!under_way_ || !background_->task.has_ended()) return std::nullopt;
  return finish();
}

std::optional<FinishedSave> SessionCheckpoint::finish() {
  if (!under_way_) return std::nullopt;
  const double begin = monotonic_seconds();
  background_->task.wait();
  FinishedSave save = *std::exchange(under_way_, std::nullopt);
  const double end = monotonic_seconds();
  save.waited_seconds += end - begin;
  save.seconds = end - save.begin_seconds;
  newest_ = save.folder;
  reporter_.info(cat("saved ", save.folder, " in ", format_duration(save.seconds),
                     ", in the background; training waited ",
                     format_duration(save.waited_seconds)));
  return save;
}

}  // namespace automodel::recipes
