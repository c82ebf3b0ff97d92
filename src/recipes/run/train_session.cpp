#include "recipes/run/train_session.h"

#include <cmath>
#include <limits>
#include <utility>

#include "comm/sums.h"
#include "core/clock.h"
#include "core/error.h"
#include "recipes/build/build_model.h"
#include "recipes/run/held_memory.h"
#include "recipes/run/initial_weights.h"
#include "recipes/run/run_record.h"
#include "recipes/run/session_step.h"
#include "recipes/run/session_summary.h"
#include "recipes/run/teacher_link.h"

namespace automodel::recipes {

comm::SlowWorkOptions slow_work_options(const Recipe& recipe, Reporter& reporter) {
  return {.stall_seconds = recipe.checkpoint.consolidation_timeout_minutes * 60,
          .reporter = &reporter};
}

namespace {

/// What saves in the background need, where the recipe asks for them.
std::optional<Background> build_background(const Recipe& recipe, const RunContext& context) {
  if (!recipe.saves_beside_training()) return {};
  return Background{*context.background,
                    context.world->background_work(slow_work_options(recipe, *context.reporter))};
}

/// Makes a part of the session in a phase of its own.
template <typename Make>
auto made_in(PhaseTimes& times, std::string_view phase, const Make& make) {
  auto made = make();
  times.end(phase);
  return made;
}

/// The teacher that the recipe's student learns from; null for other recipes.
std::unique_ptr<Teacher> build_teacher(const Recipe& recipe, const SessionModel& student,
                                       const distributed::DeviceMesh& mesh,
                                       const RunContext& context) {
  if (!recipe.distillation) return nullptr;
  if (!context.teacher_link) return make_local_teacher(recipe, mesh, context.place());
  return make_remote_teacher(student, mesh, *context.teacher_link, context.device);
}

/// What the plan in a run's record expects of memory, in GiB; absent without one.
std::optional<double> planned_gib(const Json& record) {
  const Json* const plan = record.find("plan");
  const Json* const bytes = plan == nullptr ? nullptr : plan->find("most_bytes");
  if (bytes == nullptr) return std::nullopt;
  return bytes->as_double() / static_cast<double>(1 << 30);
}

/// Begins to plan the run, for run.json, on its first rank.
std::optional<RunPlan> begin_plan(const Recipe& recipe, const RunContext& context) {
  if (recipe.benchmark || context.group.rank() != 0) return std::nullopt;
  const auto& all_ranks = context.teacher_link ? *context.teacher_link : context.group;
  PlannedPlace place{.world_size = all_ranks.size(), .device = context.device};
  if (recipe.packing) place.sequence_length = recipe.packing->pack_size;
  return RunPlan(recipe, place);
}

/// What made a step's update be left out.
std::string spike_of(const training::StepResult& result, const ClipSection& clip) {
  const auto named = [](double value) { return std::isnan(value) ? "nan" : cat(value); };
  if (!std::isfinite(result.loss)) return cat("the loss is ", named(result.loss));
  if (!std::isfinite(result.grad_norm)) {
    return cat("the gradient norm is ", named(result.grad_norm));
  }
  return cat("the gradient norm ", format_fixed(result.grad_norm, 4), " is above ",
             clip.spike_multiple, " times the usual ", format_fixed(result.usual_norm, 4));
}

Json facts_of_spike(const training::StepResult& result) {
  Json fields = Json::object();
  fields["grad_norm"] = result.grad_norm;
  fields["usual_norm"] = result.usual_norm;
  fields["loss"] = result.loss;
  return fields;
}

}  // namespace

TrainSession::TrainSession(const Recipe& recipe, const RunContext& context)
    : recipe_(recipe),
      context_(context),
      plan_(begin_plan(recipe, context)),
      signals_(recipe.step_scheduler.preemption_signal),
      mesh_(made_in(*context.times, "mesh", [&] { return build_mesh(recipe, *context.world); })),
      model_(build_session_model(recipe, mesh_, context.place())),
      teacher_(build_teacher(recipe, model_, mesh_, context)),
      balance_(made_in(*context.times, "model",
                       [&] { return build_expert_balance(recipe, mesh_, model_.parts); })),
      data_(build_data(recipe, mesh_.group("dp"), model_.model().dims().vocab_size,
                       *context.reporter, *context.times)),
      scheduler_(recipe.step_scheduler, mesh_.size("dp"), data_.training->size()),
      train_step_(model_.engine(), *model_.optimizer,
                  build_schedule(recipe, scheduler_.max_steps()),
                  build_pass(recipe, {model_, mesh_, context.place(), balance_, teacher_.get(),
                                      scheduler_.grad_accumulation_steps()}),
                  step_options(recipe, model_, mesh_, context)),
      validation_(std::move(data_.validation), train_step_, model_.parts),
      checkpoint_(recipe, context.group, slow_work(), build_background(recipe, context),
                  *context.reporter, context.resolved_recipe),
      meter_(build_step_meter(recipe, context)),
      advice_(*context.console, *context.events, context.group.rank() == 0),
      tally_(recipe.loss.ignore_index),
      count_flops_(models::training_flops(model_.model().hf_config())) {
  context_.times->end("session");
  start();
  const auto lines = session_summary(recipe, model_, scheduler_, mesh_, context.group.size());
  for (const std::string& line : lines) context.reporter->info(line);
  if (teacher_) context.reporter->info(teacher_->describe());
  context_.times->end("logs");
}

void TrainSession::start() {
  if (!recipe_.benchmark) describe_run();
  context_.times->end("logs");
  Json start = Json::object();
  start["num_ranks"] = context_.group.size();
  const Json facts = facts_of_start(context_.record);
  for (const auto& [key, value] : facts.as_object()) start[key] = value;
  context_.events->add("start", std::move(start));
  double begin = monotonic_seconds();
  const std::string checkpoint = checkpoint_.restore(state());
  const bool is_resumed = !checkpoint.empty();
  if (is_resumed) data_left_out_from_ = data_.training->state();
  if (is_resumed && earlier_record_) {
    Json changed = Json::object();
    changed["changed"] = changed_values(*earlier_record_, context_.record);
    context_.events->amend("start", changed);
  }
  if (is_resumed) context_.times->end("checkpoint");
  Json from = Json::object();
  from["from"] = is_resumed ? checkpoint : recipe_.model.source;
  if (is_resumed) record("resume", std::exchange(begin, monotonic_seconds()), from);
  // A checkpoint of adapters does not contain the base model.
  if (!is_resumed || recipe_.peft) {
    load_initial_weights(recipe_, model_, is_resumed, slow_work(), *context_.reporter);
    from["from"] = recipe_.model.draws_weights() ? "" : recipe_.model.source;
    record("load", begin, std::move(from));
  }
  if (teacher_) teacher_->load(slow_work(), *context_.reporter);
  context_.times->end("weights");
  if (recipe_.benchmark) return;
  slow_work().run("opening the logs", [&] {
    open_log(is_resumed);
    context_.events->open(recipe_.checkpoint.checkpoint_dir, !is_resumed);
    if (!is_resumed && context_.group.rank() == 0) {
      set_earlier_records_aside(recipe_.checkpoint.checkpoint_dir, *context_.reporter);
    }
    context_.trackers->start({recipe_, context_.record, context_.shown_recipe,
                              is_resumed ? scheduler_.step() : 0, is_resumed});
  });
}

void TrainSession::open_log(bool is_resumed) {
  log_.emplace(RunLogOptions{.folder = recipe_.checkpoint.checkpoint_dir,
                             .is_writing = context_.group.rank() == 0,
                             .first_step = is_resumed ? scheduler_.step() : 0,
                             .is_resumed = is_resumed},
               *context_.reporter, *context_.events);
}

void TrainSession::describe_run() {
  const std::string device = context_.device.is_cpu() ? "cpu" : context_.device.str();
  add_session({recipe_, model_, *data_.training, validation_, scheduler_, mesh_,
               context_.group.size(), device, context_.cuda},
              context_.record);
  slow_work().run("describing the run", [&] {
    if (context_.group.rank() != 0) return;
    // Building the session took longer than most plans; one that is not done yet is added later.
    constexpr double kPatience = 0.005;
    add_plan(kPatience);
    const std::string& folder = recipe_.checkpoint.checkpoint_dir;
    earlier_record_ = keep_earlier_record(folder, *context_.reporter);
    write_record();
  });
}

bool TrainSession::add_plan(double patience_seconds) {
  if (!plan_) return false;
  std::optional<Json> plan = plan_->take(patience_seconds);
  if (!plan) return false;
  context_.record["plan"] = std::move(*plan);
  plan_.reset();
  return true;
}

void TrainSession::write_record() {
  loggers::write_run_record(recipe_.checkpoint.checkpoint_dir, context_.record, *context_.reporter);
}

void TrainSession::record(std::string_view event, double begin, Json fields) {
  Json timed = Json::object();
  timed["seconds"] = monotonic_seconds() - begin;
  for (auto& [key, value] : fields.as_object()) timed[key] = std::move(value);
  note(event, std::move(timed));
}

void TrainSession::note(std::string_view event, Json fields) {
  Json record = Json::object();
  record["step"] = scheduler_.step();
  record["epoch"] = scheduler_.epoch();
  for (auto& [key, value] : fields.as_object()) record[key] = std::move(value);
  context_.events->add(event, std::move(record));
}

void TrainSession::note_memory() {
  if (context_.group.rank() != 0 || recipe_.benchmark) return;
  note("memory", held_memory(model_, context_.device, meter_.peak_bytes()));
}

void TrainSession::note_data() {
  if (std::exchange(num_noted_sequences_, tally_.num_sequences()) == tally_.num_sequences()) return;
  note("data", tally_.record());
}

void TrainSession::note_expert_load() {
  constexpr int64_t kMostOften = 100;
  if (!balance_.has_experts() || recipe_.benchmark) return;
  const int64_t step = scheduler_.step();
  if (balance_.has_all_layers()) advice_.after_routing(step, balance_.loads(), 1);
  const int64_t every = (scheduler_.max_steps() - 1) / kMostOften + 1;
  if ((step + 1) % every != 0) return;
  const ExpertBalance::GatheredLoad load = balance_.gather();
  if (!balance_.has_all_layers()) advice_.after_routing(step, load.layers, load.num_steps);
  if (context_.group.rank() == 0) note("expert_load", expert_load(load.layers));
}

void TrainSession::add_times(const training::StepResult& result, double waited_seconds,
                             Json& record) const {
  record["data_seconds"] = data_seconds_;
  record["forward_backward_seconds"] = result.forward_backward_seconds;
  record["update_seconds"] = result.update_seconds;
  record["wait_seconds"] = waited_seconds;
}

void TrainSession::record_non_finite(const training::StepResult& result) {
  const bool is_finite = std::isfinite(result.loss) && std::isfinite(result.grad_norm);
  if (is_finite || result.is_skipped) return;
  Json values = Json::object();
  values["loss"] = result.loss;
  values["grad_norm"] = result.grad_norm;
  record("non_finite", monotonic_seconds(), std::move(values));
}

void TrainSession::say_timings(const training::StepResult& result) {
  PhaseTimes& times = *std::exchange(context_.times, nullptr);
  times.add("first step: forward and backward", result.forward_backward_seconds);
  times.add("first step: optimizer", result.update_seconds);
  times.end("first step: counts, records");
  if (!context_.shows_timings) return;
  context_.reporter->info(cat("timings: ", format_fixed(1e3 * times.total_seconds(), 1),
                              " ms from the start to the end of the first step"));
  for (const std::string& line : table_of(times)) context_.reporter->info(cat("timings: ", line));
  Json phases = Json::object();
  for (const PhaseTimes::Phase& phase : times.phases()) phases[phase.name] = phase.seconds;
  Json fields = Json::object();
  fields["step"] = scheduler_.step();
  fields["seconds"] = times.total_seconds();
  fields["phases"] = std::move(phases);
  context_.events->add("timings", std::move(fields));
}

void TrainSession::advise(const training::StepResult& result, double tokens_per_second) {
  const auto tokens = static_cast<double>(result.counts.num_tokens);
  advice_.after_step({.step = scheduler_.step(),
                      .loss = result.loss,
                      .grad_norm = result.grad_norm,
                      .lr = result.lr,
                      .seconds = tokens_per_second > 0 ? tokens / tokens_per_second : 0,
                      .waited_seconds = data_seconds_});
}

void TrainSession::record_skipped(const training::StepResult& result, const Group& group) {
  if (context_.group.rank() != 0) return;
  context_.console->warning(cat("step ", scheduler_.step(), ": its update is left out, since ",
                                spike_of(result, recipe_.clip), " [clip_grad_norm.on_spike]"));
  Json fields = facts_of_spike(result);
  fields["data_from"] = group.begin;
  fields["data_until"] = group.position;
  record("skipped_update", monotonic_seconds(), std::move(fields));
}

bool TrainSession::roll_back(const training::StepResult& result, const Group& group) {
  if (recipe_.clip.on_spike != OnSpike::kRollback) return false;
  record_save(checkpoint_.finish());
  if (checkpoint_.newest().empty()) return false;
  const std::string spike = spike_of(result, recipe_.clip);
  const int64_t step = scheduler_.step();
  if (num_rollbacks_ >= recipe_.clip.max_rollbacks) {
    throw UserError(cat("step ", step, ": ", spike, ", after ", num_rollbacks_,
                        num_rollbacks_ == 1 ? " rollback" : " rollbacks",
                        " already; nothing was updated. Lower the learning rate, look at the data, "
                        "or raise clip_grad_norm.max_rollbacks"),
                    ExitCode::kNonFinite);
  }
  const double begin = monotonic_seconds();
  const int64_t num_rollbacks = num_rollbacks_ + 1;
  checkpoint_.roll_back(state());
  num_rollbacks_ = num_rollbacks;
  slow_work().run("opening the logs", [&] { open_log(/*is_resumed=*/true); });
  context_.console->warning(cat("step ", step, ": ", spike, "; back to ", checkpoint_.newest(),
                                ", next step ", scheduler_.step(),
                                ", without the data since then (rollback ", num_rollbacks, " of ",
                                recipe_.clip.max_rollbacks, ") [clip_grad_norm.on_spike]"));
  Json fields = facts_of_spike(result);
  fields["data_from"] = std::exchange(data_left_out_from_, group.position);
  fields["data_until"] = group.position;
  fields["step"] = step;
  fields["next_step"] = scheduler_.step();
  fields["from"] = checkpoint_.newest();
  fields["rollback"] = num_rollbacks;
  record("rollback", begin, std::move(fields));
  meter_.restart();
  return true;
}

SessionState TrainSession::state() {
  return {model_.engine(), *model_.optimizer, train_step_,   scheduler_,
          *data_.training, model_.model(),    num_rollbacks_};
}

comm::SlowWork& TrainSession::slow_work() {
  return context_.world->slow_work(slow_work_options(recipe_, *context_.reporter));
}

TrainSession::Group TrainSession::next_group() {
  const double begin = monotonic_seconds();
  Group group;
  if (recipe_.clip.on_spike != OnSpike::kContinue) group.begin = data_.training->state();
  const int64_t wanted = scheduler_.grad_accumulation_steps();
  while (static_cast<int64_t>(group.batches.size()) < wanted) {
    auto batch = data_.training->next();
    if (!batch) break;
    group.batches.push_back(std::move(*batch));
  }
  group.position = data_.training->state();
  data_seconds_ += monotonic_seconds() - begin;
  trace("next batches", "data", begin);
  return group;
}

int TrainSession::agreed_signal() {
  constexpr double kNano = 1e9;
  const auto num_ranks = static_cast<size_t>(context_.group.size());
  std::vector<int64_t> values(1 + num_ranks);
  values[0] = signals_.received();
  values[1 + static_cast<size_t>(context_.group.rank())] = std::llround(own_seconds_ * kNano);
  values = comm::max_over(context_.group, std::move(values));
  if (num_ranks > 1 && !recipe_.benchmark) {
    loggers::RankTimes times{.step = scheduler_.step(), .num_stages = mesh_.size("pp")};
    for (size_t rank = 0; rank < num_ranks; ++rank) {
      times.seconds.push_back(static_cast<double>(values[1 + rank]) / kNano);
    }
    advice_.after_times(times);
  }
  return static_cast<int>(values[0]);
}

ExitCode TrainSession::run() {
  try {
    return run_to_end();
  } catch (const training::NonFiniteError&) {
    // Every rank ends so, and the save that is under way is of a step before.
    record_save(checkpoint_.finish());
    throw;
  }
}

ExitCode TrainSession::run_to_end() {
  progress_.emplace(scheduler_.step(), scheduler_.max_steps());
  if (recipe_.benchmark) {
    benchmark_.emplace(
        recipe_, BenchmarkPlace{context_.group, context_.reporter, peak_of(recipe_, context_)},
        seconds_since_process_start());
  }
  begin_seconds_ = monotonic_seconds();
  meter_.restart();
  bool is_stopped = false;
  const int64_t first_step = scheduler_.step();
  while (!scheduler_.is_done() && !is_stopped) {
    data_.training->set_epoch(scheduler_.epoch());
    Group group = next_group();
    while (!group.batches.empty() && !is_stopped) {
      // The next group is taken first: only then is it known whether this one ends the epoch.
      Group next = next_group();
      if (context_.times != nullptr) context_.times->end("first batches");
      is_stopped = run_step(group, next.batches.empty());
      group = std::move(next);
    }
    if (!is_stopped) scheduler_.advance_epoch();
  }
  if (scheduler_.step() == first_step && !is_stopped) say_it_is_finished();
  context_.reporter->progress("");
  record_save(checkpoint_.finish());
  if (benchmark_) benchmark_->finish();
  end_trackers();
  end_records();
  if (teacher_) teacher_->dismiss();
  Json end = Json::object();
  if (stopped_by_ != 0) end["signal"] = training::signal_name(stopped_by_);
  end["status"] = static_cast<int>(stopped_by_ == 0 ? ExitCode::kDone : ExitCode::kPreempted);
  record(stopped_by_ == 0 ? "end" : "preempted", begin_seconds_, std::move(end));
  if (stopped_by_ != 0) {
    context_.reporter->info(cat("stopped by ", training::signal_name(stopped_by_),
                                " after saving; start again to continue"));
    return ExitCode::kPreempted;
  }
  return ExitCode::kDone;
}

void TrainSession::end_records() {
  if (log_) log_->end();
  advice_.finish();
  if (add_plan(std::numeric_limits<int32_t>::max())) write_record();
  if (context_.group.rank() != 0 || recipe_.benchmark) return;
  note_data();
  if (has_noted_memory_) note_memory();
}

void TrainSession::say_it_is_finished() {
  const bool ends_by_steps = scheduler_.step() >= scheduler_.max_steps();
  const std::string done =
      ends_by_steps ? cat(scheduler_.step(), " of ", scheduler_.max_steps(), " steps")
                    : cat(scheduler_.epoch(), " of ", scheduler_.num_epochs(), " epochs");
  // More steps or more epochs help, whichever of the two ended the run.
  const bool is_bounded_by_steps =
      ends_by_steps && scheduler_.max_steps() == recipe_.step_scheduler.max_steps;
  context_.reporter->info(cat("already finished: ", done,
                              " are done; to train on, raise step_scheduler.",
                              is_bounded_by_steps ? "max_steps" : "num_epochs",
                              ", to train anew, give another checkpoint.checkpoint_dir"));
}

void TrainSession::end_trackers() {
  if (!recipe_.tensorboard && !recipe_.mlflow) return;
  slow_work().run("ending the trackers", [&] {
    context_.trackers->end(stopped_by_ == 0 ? trackers::RunEnd::kFinished
                                            : trackers::RunEnd::kStopped);
  });
}

bool TrainSession::run_step(const Group& group, bool ends_epoch) {
  const training::StepResult result = train(group);
  record_save(checkpoint_.take_finished());
  const bool is_last = scheduler_.is_last_step(ends_epoch);
  if (result.is_skipped) {
    // After the last step there are no data to go on with.
    if (!is_last && roll_back(result, group)) return false;
    record_skipped(result, group);
  }
  // A signal in the last step changes nothing: no later run would validate and export.
  if (!is_last) stopped_by_ = agreed_signal();
  const bool is_preempted = stopped_by_ != 0;
  std::vector<std::pair<std::string, double>> validation;
  if (scheduler_.is_validation_step(ends_epoch, is_preempted)) validation = validate();
  if (recipe_.checkpoint.enabled && scheduler_.is_checkpoint_step(ends_epoch, is_preempted)) {
    save({.position = group.position,
          .train_loss = result.loss,
          .validation_losses = validation,
          .is_final = is_last,
          .ends_run = is_last || is_preempted});
  }
  scheduler_.advance_step();
  meter_.restart();
  return is_last || is_preempted;
}

training::StepResult TrainSession::train(const Group& group) {
  const int64_t step = scheduler_.step();
  const double begin = monotonic_seconds();
  const double waited = context_.waited_seconds();
  balance_.begin_step(static_cast<int64_t>(group.batches.size()));
  const training::StepResult result = train_step_.run(group.batches, step);
  balance_.end_step(model_.engine());
  const double waited_in_step = context_.waited_seconds() - waited;
  own_seconds_ = data_seconds_ + (monotonic_seconds() - begin) - waited_in_step;
  loggers::StepNumbers numbers{.loss = result.loss};
  trace(cat("step ", step), "step", begin);
  if (benchmark_) {
    benchmark_->record(result, flops_of(group), group.batches[0].sequence_length());
  } else {
    Json record = meter_.record(result, step, scheduler_.epoch(), flops_of(group));
    balance_.describe(recipe_.moe_metrics, step, record);
    train_step_.describe(record);
    add_times(result, waited_in_step, record);
    log_->train(record);
    context_.trackers->train(record);
    record_non_finite(result);
    advise(result, record.at("tps").as_double());
    note_step(group);
    numbers.tokens_per_second = record.at("tps").as_double();
    numbers.memory_gib = record.at("mem").as_double();
    numbers.planned_gib = planned_gib(context_.record);
    if (!record.at("mfu").is_null()) numbers.mfu_percent = record.at("mfu").as_double();
  }
  if (context_.times != nullptr) say_timings(result);
  data_seconds_ = 0;
  context_.reporter->progress(
      progress_->line(step + 1, monotonic_seconds() - begin_seconds_, numbers));
  return result;
}

void TrainSession::note_step(const Group& group) {
  note_expert_load();
  if (context_.group.rank() != 0) return;
  for (const tensor::Batch& batch : group.batches) tally_.add(batch);
  if (!std::exchange(has_noted_memory_, true)) note_memory();
  if (add_plan(0)) write_record();
}

std::vector<std::pair<std::string, double>> TrainSession::validate() {
  if (validation_.is_empty()) return {};
  const double begin = monotonic_seconds();
  const auto listen = [this](const auto& set, const auto& result) {
    Json record =
        meter_.validation_record(result, train_step_.lr(), scheduler_.step(), scheduler_.epoch());
    train_step_.describe_validation(result, record);
    log_->validation(set, record);
    context_.trackers->validation(set, record);
  };
  auto losses = validation_.run(scheduler_.step(), listen, *context_.reporter);
  trace("validation", "step", begin);
  Json of_sets = Json::object();
  for (const auto& [set, loss] : losses) of_sets[set] = loss;
  Json fields = Json::object();
  fields["losses"] = std::move(of_sets);
  record("validation", begin, std::move(fields));
  note_data();
  return losses;
}

void TrainSession::save(const SaveRequest& request) {
  const double begin = monotonic_seconds();
  record_save(checkpoint_.finish());
  data_left_out_from_ = request.position;
  record_save(checkpoint_.save(state(), request));
  trace("save", "checkpoint", begin);
}

void TrainSession::record_save(const std::optional<FinishedSave>& save) {
  if (!save) return;
  Json fields = Json::object();
  fields["step"] = save->step;
  fields["epoch"] = save->epoch;
  fields["path"] = save->folder;
  if (save->is_in_background) fields["waited_seconds"] = save->waited_seconds;
  record("save", save->begin_seconds, std::move(fields));
  note_memory();
  note_data();
  const auto epoch_length =
      recipe_.step_scheduler.save_checkpoint_every_epoch ? scheduler_.epoch_length() : std::nullopt;
  advice_.after_save(save->folder, save->step,
                     {.max_steps = scheduler_.max_steps(),
                      .interval = scheduler_.checkpoint_interval(),
                      .epoch_length = epoch_length,
                      .most_kept = recipe_.checkpoint.max_recent_checkpoints});
}

double TrainSession::flops_of(const Group& group) const {
  double flops = 0;
  for (const tensor::Batch& batch : group.batches) {
    flops += count_flops_(batch.num_sequences(), batch.sequence_length());
  }
  return flops * mesh_.size("dp") * share_of_operations();
}

double TrainSession::share_of_operations() const {
  if (!recipe_.benchmark || !recipe_.peft) return 1;
  const auto trained = static_cast<double>(model_.engine().num_trained_parameters());
  const int64_t all =
      recipe_.quantization ? num_elements(model_.model()) : model_.engine().num_parameters();
  const double frozen = static_cast<double>(all) - trained;
  return (2 + trained / frozen) / 3;
}

void TrainSession::trace(const std::string& name, std::string_view category, double begin) {
  if (context_.trace == nullptr) return;
  context_.trace->record({name, category, begin, monotonic_seconds(), context_.group.rank()});
}

}  // namespace automodel::recipes
