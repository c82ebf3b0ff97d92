#include "recipes/run/train_session.h"

#include <algorithm>
#include <cmath>
#include <exception>
#include <iterator>
#include <utility>

#include "checkpoint/lifecycle.h"
#include "comm/groups/sums.h"
#include "core/clock.h"
#include "core/error.h"
#include "recipes/build/build_model.h"
#include "recipes/run/host_files.h"
#include "recipes/run/initial_weights.h"
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

/// The evaluation of tool calls that the recipe asks for; null for others.
std::unique_ptr<ToolCallEvaluation> build_tool_call_evaluation(
    const Recipe& recipe, const SessionModel& model, const distributed::DeviceMesh& mesh,
    const RunContext& context, const training::SignalWatch& signals) {
  if (!recipe.tool_calls || recipe.validation_datasets.empty()) return nullptr;
  return std::make_unique<ToolCallEvaluation>(
      recipe,
      EvaluatedModel{model.model(), model.engine(), mesh.group("dp"), context.device,
                     [&signals] { return signals.received() != 0; }},
      *context.reporter);
}

/// Beyond every signal's number.
constexpr int kDataFault = 1 << 20;

}  // namespace

TrainSession::TrainSession(const Recipe& recipe, const RunContext& context)
    : recipe_(recipe),
      context_(context),
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
      validation_(std::move(data_.validation), train_step_, model_.parts,
                  build_tool_call_evaluation(recipe, model_, mesh_, context, signals_)),
      checkpoint_(recipe, context.group, slow_work(), build_background(recipe, context),
                  *context.reporter, context.resolved_recipe),
      operations_(recipe, model_, mesh_.size("dp")),
      records_(
          context_,
          {recipe, model_, *data_.training, validation_, scheduler_, mesh_, train_step_, balance_},
          slow_work()),
      counters_(context_) {
  if (recipe.early_stopping && !validation_.is_empty()) {
    early_stopping_.emplace(*recipe.early_stopping);
  }
  context_.times->end("session");
  start();
  const auto lines = session_summary(recipe, model_, scheduler_, mesh_, context.group.size());
  for (const std::string& line : lines) context.reporter->info(line);
  const std::string early = early_end_text(recipe, scheduler_);
  if (!early.empty()) context.reporter->warning(early);
  if (teacher_) context.reporter->info(teacher_->describe());
  context_.times->end("logs");
}

void TrainSession::compare_hosts(const std::function<std::vector<SharedFile>()>& find) {
  if (!context_.world->spans_hosts()) return;
  std::vector<SharedFile> files;
  slow_work().run("looking at the files of all hosts", [&] { files = find(); });
  check_same_files(context_.group, files);
}

std::vector<SharedFile> TrainSession::all_data_files() const {
  std::vector<SharedFile> files = data_files(data_.training->state());
  for (const ValidationSet& set : validation_.sets()) {
    std::ranges::move(data_files(set.stream->state()), std::back_inserter(files));
  }
  return files;
}

void TrainSession::start() {
  compare_hosts([this] { return all_data_files(); });
  records_.start();
  context_.times->end("logs");
  double begin = monotonic_seconds();
  const std::string checkpoint = checkpoint_.restore(state());
  const bool is_resumed = !checkpoint.empty();
  if (is_resumed) {
    data_left_out_from_ = data_.training->state();
    context_.times->end("checkpoint");
    records_.resumed(checkpoint, std::exchange(begin, monotonic_seconds()));
  }
  // A checkpoint of adapters does not contain the base model.
  if (!is_resumed || recipe_.peft) {
    if (!recipe_.model.draws_weights()) {
      compare_hosts([this] { return weight_files(recipe_.model.folder); });
    }
    load_initial_weights(recipe_, model_, is_resumed, slow_work(), *context_.reporter);
    records_.loaded(recipe_.model.draws_weights() ? "random numbers" : recipe_.model.source, begin);
  }
  if (teacher_) {
    const ModelRecipe& teacher = recipe_.distillation->teacher;
    if (!context_.teacher_link && !teacher.draws_weights()) {
      compare_hosts([&] { return weight_files(teacher.folder); });
    }
    teacher_->load(slow_work(), *context_.reporter);
  }
  context_.times->end("weights");
  records_.open(is_resumed);
}

bool TrainSession::roll_back(const training::StepResult& result, const StepBatches& taken) {
  if (recipe_.clip.on_spike != OnSpike::kRollback) return false;
  records_.saved(checkpoint_.finish());
  if (checkpoint_.newest().empty()) return false;
  const int64_t step = scheduler_.step();
  if (num_rollbacks_ >= recipe_.clip.max_rollbacks) {
    throw UserError(cat("step ", step, ": ", spike_text(result, recipe_.clip), ", after ",
                        num_rollbacks_, num_rollbacks_ == 1 ? " rollback" : " rollbacks",
                        " already; nothing was updated. Lower the learning rate, look at the data, "
                        "or raise clip_grad_norm.max_rollbacks"),
                    ExitCode::kNonFinite);
  }
  const double begin = monotonic_seconds();
  const int64_t number = num_rollbacks_ + 1;
  checkpoint_.roll_back(state());
  num_rollbacks_ = number;
  records_.cut_log();
  const Json from = std::exchange(data_left_out_from_, taken.position);
  records_.rolled_back(result, {step, number, checkpoint_.newest(), begin}, {from, taken.position});
  records_.restart_clock();
  return true;
}

SessionState TrainSession::state() {
  return {model_.engine(), *model_.optimizer,
          train_step_,     scheduler_,
          *data_.training, model_.model(),
          num_rollbacks_,  early_stopping_ ? &*early_stopping_ : nullptr};
}

comm::SlowWork& TrainSession::slow_work() {
  return context_.world->slow_work(slow_work_options(recipe_, *context_.reporter));
}

TrainSession::StepBatches TrainSession::next_batches() {
  const double begin = monotonic_seconds();
  StepBatches taken;
  if (recipe_.clip.on_spike != OnSpike::kContinue) taken.begin = data_.training->state();
  const int64_t wanted = scheduler_.grad_accumulation_steps();
  while (static_cast<int64_t>(taken.batches.size()) < wanted) {
    auto batch = data_.training->next();
    if (!batch) break;
    taken.batches.push_back(std::move(*batch));
  }
  taken.position = data_.training->state();
  data_seconds_ += monotonic_seconds() - begin;
  trace("next batches", "data", begin);
  return taken;
}

int TrainSession::agreed_signal(bool has_fault) {
  constexpr double kNano = 1e9;
  const auto num_ranks = static_cast<size_t>(context_.group.size());
  std::vector<int64_t> values(1 + num_ranks);
  values[0] = has_fault ? kDataFault : signals_.received();
  values[1 + static_cast<size_t>(context_.group.rank())] = std::llround(own_seconds_ * kNano);
  values = comm::max_over(context_.group, std::move(values));
  std::vector<double> seconds;
  for (size_t rank = 0; rank < num_ranks; ++rank) {
    seconds.push_back(static_cast<double>(values[1 + rank]) / kNano);
  }
  records_.ranks_worked(std::move(seconds));
  return static_cast<int>(values[0]);
}

ExitCode TrainSession::run() {
  try {
    return run_to_end();
  } catch (const training::NonFiniteError&) {
    // Every rank ends so, and the save that is under way is of a step before.
    records_.saved(checkpoint_.finish());
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
  records_.restart_clock();
  const bool has_stopped_early =
      early_stopping_ && early_stopping_->is_due() && !scheduler_.is_done();
  bool is_stopped = has_stopped_early;
  const int64_t first_step = scheduler_.step();
  while (!scheduler_.is_done() && !is_stopped) {
    data_.training->set_epoch(scheduler_.epoch());
    StepBatches taken = next_batches();
    while (!taken.batches.empty() && !is_stopped) {
      // The next batches are taken first: only then is it known whether these end the epoch. A row
      // that cannot be read ends the run when it is due, after the step before it was saved.
      StepBatches next;
      std::exception_ptr fault;
      try {
        next = next_batches();
      } catch (const UserError&) {
        fault = std::current_exception();
      }
      if (is_starting_) context_.times->end("first batches");
      is_stopped = run_step(taken, !fault && next.batches.empty(), fault != nullptr);
      if (fault && !is_stopped) std::rethrow_exception(fault);
      taken = std::move(next);
    }
    if (!is_stopped) scheduler_.advance_epoch();
  }
  if (has_stopped_early) {
    context_.reporter->info(cat("already finished: ", early_stopping_->text(),
                                "; to train on, raise early_stopping.patience"));
  } else if (scheduler_.step() == first_step && !is_stopped) {
    context_.reporter->info(finished_text(recipe_, scheduler_));
  }
  context_.reporter->progress("");
  records_.saved(checkpoint_.finish());
  if (benchmark_) benchmark_->finish();
  records_.close(stopped_by_);
  if (teacher_) teacher_->dismiss();
  records_.end(stopped_by_, begin_seconds_);
  if (stopped_by_ == 0 && scheduler_.step() > first_step) {
    context_.reporter->info(done_text(recipe_, scheduler_.step() - first_step,
                                      monotonic_seconds() - begin_seconds_, checkpoint_.newest()));
  }
  if (stopped_by_ != 0) {
    context_.reporter->info(cat("stopped by ", training::signal_name(stopped_by_),
                                " after saving; start again to continue"));
    return ExitCode::kPreempted;
  }
  return ExitCode::kDone;
}

bool TrainSession::run_step(const StepBatches& taken, bool ends_epoch, bool has_fault) {
  const training::StepResult result = train(taken);
  records_.saved(checkpoint_.take_finished());
  if (!result.is_skipped) checkpoint_.prepare(state());
  const bool is_last = scheduler_.is_last_step(ends_epoch);
  if (result.is_skipped) {
    // After the last step there are no data to go on with.
    if (!is_last && roll_back(result, taken)) return false;
    records_.skipped(result, {taken.begin, taken.position});
  }
  // A signal in the last step changes nothing: no later run would validate and export.
  const int agreed = is_last ? 0 : agreed_signal(has_fault);
  stopped_by_ = agreed == kDataFault ? 0 : agreed;
  const bool is_preempted = stopped_by_ != 0;
  std::vector<std::pair<std::string, double>> validation;
  if (scheduler_.is_validation_step(ends_epoch, is_preempted)) validation = validate();
  const bool is_early = stops_early(validation);
  if (is_early) records_.stopped_early(early_stopping_->text());
  const bool is_end = is_last || is_early;
  const bool is_saved = is_early || scheduler_.is_checkpoint_step(ends_epoch, agreed != 0);
  if (recipe_.checkpoint.enabled && is_saved) {
    save({.position = taken.position,
          .train_loss = result.loss,
          .validation_losses = validation,
          .is_final = is_end,
          .ends_run = is_end || agreed != 0});
  }
  scheduler_.advance_step();
  records_.restart_clock();
  // Where another rank's data have a fault, that rank ends the run.
  return is_end || is_preempted;
}

training::StepResult TrainSession::train(const StepBatches& taken) {
  const int64_t step = scheduler_.step();
  const double begin = monotonic_seconds();
  const double waited = context_.waited_seconds();
  for (const auto& part : model_.parts) {
    if (nn::FakeQuantizer* const quantizer = part->fake_quantizer()) quantizer->begin_step(step);
  }
  balance_.begin_step(static_cast<int64_t>(taken.batches.size()));
  counters_.begin_step();
  const training::StepResult result = train_step_.run(taken.batches, step);
  counters_.end_step(step);
  balance_.end_step(model_.engine());
  const double waited_in_step = context_.waited_seconds() - waited;
  own_seconds_ = data_seconds_ + (monotonic_seconds() - begin) - waited_in_step;
  trace(cat("step ", step), "step", begin);
  const double flops = operations_.of(taken.batches);
  loggers::StepNumbers numbers{.loss = result.loss};
  if (benchmark_) {
    benchmark_->record(result, flops, taken.batches[0].sequence_length());
  } else {
    numbers = records_.train({result, taken.batches, flops, data_seconds_, waited_in_step});
  }
  if (std::exchange(is_starting_, false)) records_.end_start(result);
  data_seconds_ = 0;
  context_.reporter->progress(
      progress_->line(step + 1, monotonic_seconds() - begin_seconds_, numbers));
  return result;
}

std::vector<std::pair<std::string, double>> TrainSession::validate() {
  if (validation_.is_empty()) return {};
  const double begin = monotonic_seconds();
  const auto listen = [this](const auto& set, const auto& result) {
    records_.validation(set, result);
  };
  auto losses = validation_.run(scheduler_.step(), listen, *context_.reporter);
  trace("validation", "step", begin);
  records_.validated(losses, begin);
  return losses;
}

bool TrainSession::stops_early(const std::vector<std::pair<std::string, double>>& losses) {
  if (!early_stopping_ || losses.empty()) return false;
  const auto loss = checkpoint::followed_loss(losses, recipe_.checkpoint.best_metric_key);
  AM_CHECK(loss, "early stopping follows a validation set");
  early_stopping_->see(loss->second, scheduler_.step());
  return comm::max_over(context_.group, {early_stopping_->is_due() ? 1 : 0})[0] != 0;
}

void TrainSession::save(const SaveRequest& request) {
  const double begin = monotonic_seconds();
  records_.saved(checkpoint_.finish());
  data_left_out_from_ = request.position;
  records_.saved(checkpoint_.save(state(), request));
  trace("save", "checkpoint", begin);
}

void TrainSession::trace(const std::string& name, std::string_view category, double begin) {
  if (context_.trace == nullptr) return;
  context_.trace->record({name, category, begin, monotonic_seconds(), context_.group.rank()});
}

}  // namespace automodel::recipes
