#include "recipes/run/session_records.h"

#include <cmath>
#include <limits>
#include <utility>

#include "core/clock.h"
#include "core/error.h"
#include "core/text.h"
#include "recipes/records/run_plan.h"
#include "recipes/run/held_memory.h"
#include "training/signals.h"

namespace automodel::recipes {

namespace {

/// What the plan in a run's record expects of memory, in GiB; absent without one.
std::optional<double> planned_gib(const Json& record) {
  const Json* const plan = record.find("plan");
  const Json* const bytes = plan == nullptr ? nullptr : plan->find("most_bytes");
  if (bytes == nullptr) return std::nullopt;
  const Json* const program = plan->find("program_bytes");
  const double own = program == nullptr ? 0 : program->as_double();
  return (bytes->as_double() + own) / static_cast<double>(1 << 30);
}

Json facts_of_spike(const training::StepResult& result, DataRange data) {
  Json fields = Json::object();
  fields["grad_norm"] = result.grad_norm;
  fields["usual_norm"] = result.usual_norm;
  fields["loss"] = result.loss;
  fields["data_from"] = std::move(data.from);
  fields["data_until"] = std::move(data.until);
  return fields;
}

void add_times(const EndedStep& step, Json& record) {
  record["data_seconds"] = step.data_seconds;
  record["forward_backward_seconds"] = step.result.forward_backward_seconds;
  record["update_seconds"] = step.result.update_seconds;
  record["wait_seconds"] = step.wait_seconds;
}

}  // namespace

std::string spike_text(const training::StepResult& result, const ClipSection& clip) {
  const auto named = [](double value) { return std::isnan(value) ? "nan" : cat(value); };
  if (!std::isfinite(result.loss)) return cat("the loss is ", named(result.loss));
  if (!std::isfinite(result.grad_norm)) {
    return cat("the gradient norm is ", named(result.grad_norm));
  }
  return cat("the gradient norm ", format_fixed(result.grad_norm, 4), " is above ",
             clip.spike_multiple, " times the usual ", format_fixed(result.usual_norm, 4));
}

SessionRecords::SessionRecords(const RunContext& context, const RecordedParts& parts,
                               comm::SlowWork& slow_work)
    : context_(context),
      parts_(parts),
      recipe_(parts.recipe),
      scheduler_(parts.scheduler),
      slow_work_(slow_work),
      record_(context_.record),
      meter_(build_step_meter(recipe_, context_)),
      advice_(*context_.console, *context_.events, context_.group.rank() == 0),
      tally_(recipe_.loss.ignore_index) {}

void SessionRecords::start() {
  if (!recipe_.benchmark) {
    add_session(parts_, context_, record_);
    slow_work_.run("describing the run", [&] {
      if (context_.group.rank() != 0) return;
      check_log_places(recipe_.checkpoint.checkpoint_dir, validation_sets());
      // Building the session took longer than most plans; one that is not done yet is added later.
      constexpr double kPatience = 0.005;
      add_plan(kPatience);
      const std::string& folder = recipe_.checkpoint.checkpoint_dir;
      earlier_ = keep_earlier_record(folder, *context_.reporter);
      write_record();
    });
  }
  Json fields = Json::object();
  fields["num_ranks"] = context_.group.size();
  const Json facts = facts_of_start(record_);
  for (const auto& [key, value] : facts.as_object()) fields[key] = value;
  context_.events->add("start", std::move(fields));
}

bool SessionRecords::add_plan(double patience_seconds) {
  if (context_.plan == nullptr) return false;
  std::optional<Json> plan = context_.plan->take(patience_seconds);
  if (!plan) return false;
  if (context_.program_bytes > 0 && plan->contains("most_bytes")) {
    (*plan)["program_bytes"] = static_cast<int64_t>(context_.program_bytes);
  }
  record_["plan"] = std::move(*plan);
  return true;
}

void SessionRecords::write_record() {
  loggers::write_run_record(recipe_.checkpoint.checkpoint_dir, record_, *context_.reporter);
}

void SessionRecords::resumed(const std::string& checkpoint, double begin) {
  if (earlier_) {
    Json changed = Json::object();
    changed["changed"] = changed_values(*earlier_, record_);
    const std::string text = text_of_changes(changed.at("changed"));
    if (!text.empty()) context_.reporter->info(text);
    context_.events->amend("start", changed);
  }
  if (record_.at("max_steps").as_int() != scheduler_.max_steps() && !recipe_.benchmark) {
    record_["max_steps"] = scheduler_.max_steps();  // an epoch began anew with other data
    slow_work_.run("describing the run", [&] {
      if (context_.group.rank() == 0) write_record();
    });
  }
  Json fields = Json::object();
  fields["from"] = checkpoint;
  timed_event("resume", begin, std::move(fields));
}

void SessionRecords::loaded(const std::string& source, double begin) {
  Json fields = Json::object();
  fields["from"] = source;
  timed_event("load", begin, std::move(fields));
}

void SessionRecords::open(bool is_resumed) {
  if (recipe_.benchmark) return;
  const int64_t first_step = is_resumed ? scheduler_.step() : 0;
  const std::string& folder = recipe_.checkpoint.checkpoint_dir;
  slow_work_.run("opening the logs", [&] {
    open_log(first_step, is_resumed);
    context_.events->open(folder, !is_resumed);
    if (!is_resumed && context_.group.rank() == 0) {
      set_earlier_records_aside(folder, *context_.reporter);
    }
    context_.trackers->start(
        {recipe_, record_, context_.shown_recipe, validation_sets(), first_step, is_resumed});
  });
}

void SessionRecords::cut_log() {
  slow_work_.run("opening the logs", [&] { open_log(scheduler_.step(), /*is_resumed=*/true); });
}

std::vector<std::string> SessionRecords::validation_sets() const {
  std::vector<std::string> sets;
  for (const DatasetSection& set : recipe_.validation_datasets) sets.push_back(set.name);
  return sets;
}

void SessionRecords::open_log(int64_t first_step, bool is_resumed) {
  log_.emplace(RunLogOptions{.folder = recipe_.checkpoint.checkpoint_dir,
                             .is_writing = context_.group.rank() == 0,
                             .first_step = first_step,
                             .is_resumed = is_resumed,
                             .validation_sets = validation_sets()},
               *context_.reporter, *context_.events);
}

loggers::StepNumbers SessionRecords::train(const EndedStep& step) {
  const training::StepResult& result = step.result;
  Json record = meter_.record(result, scheduler_.step(), scheduler_.epoch(), step.flops);
  parts_.balance.describe(recipe_.moe_metrics, scheduler_.step(), record);
  parts_.train_step.describe(record);
  add_times(step, record);
  log_->train(record);
  context_.trackers->train(record);
  note_non_finite(result);
  const double tokens_per_second = record.at("tps").as_double();
  advise(step, tokens_per_second);
  note_expert_load();
  if (context_.group.rank() == 0) {
    for (const tensor::Batch& batch : step.batches) tally_.add(batch);
    if (!std::exchange(has_noted_memory_, true)) note_memory();
    if (add_plan(0)) write_record();
  }
  loggers::StepNumbers numbers{.loss = result.loss,
                               .tokens_per_second = tokens_per_second,
                               .memory_gib = record.at("mem").as_double(),
                               .planned_gib = planned_gib(record_)};
  if (!record.at("mfu").is_null()) numbers.mfu_percent = record.at("mfu").as_double();
  return numbers;
}

void SessionRecords::advise(const EndedStep& step, double tokens_per_second) {
  const auto tokens = static_cast<double>(step.result.counts.num_tokens);
  advice_.after_step({.step = scheduler_.step(),
                      .loss = step.result.loss,
                      .grad_norm = step.result.grad_norm,
                      .lr = step.result.lr,
                      .seconds = tokens_per_second > 0 ? tokens / tokens_per_second : 0,
                      .waited_seconds = step.data_seconds});
}

void SessionRecords::note_non_finite(const training::StepResult& result) {
  const bool is_finite = std::isfinite(result.loss) && std::isfinite(result.grad_norm);
  if (is_finite || result.is_skipped) return;
  Json values = Json::object();
  values["loss"] = result.loss;
  values["grad_norm"] = result.grad_norm;
  event("non_finite", std::move(values));
}

void SessionRecords::note_memory() {
  if (!is_writing()) return;
  event("memory", held_memory(parts_.model, context_.device, meter_.peak_bytes()));
}

void SessionRecords::note_data() {
  if (std::exchange(num_noted_sequences_, tally_.num_sequences()) == tally_.num_sequences()) return;
  event("data", tally_.record());
}

void SessionRecords::note_expert_load() {
  constexpr int64_t kMostOften = 100;
  if (!parts_.balance.has_experts()) return;
  const int64_t step = scheduler_.step();
  if (parts_.balance.has_all_layers()) advice_.after_routing(step, parts_.balance.loads(), 1);
  const int64_t every = (scheduler_.max_steps() - 1) / kMostOften + 1;
  if ((step + 1) % every != 0) return;
  const ExpertBalance::GatheredLoad load = parts_.balance.gather();
  if (!parts_.balance.has_all_layers()) advice_.after_routing(step, load.layers, load.num_steps);
  if (context_.group.rank() == 0) event("expert_load", expert_load(load.layers));
}

void SessionRecords::ranks_worked(std::vector<double> seconds) {
  if (seconds.size() < 2 || recipe_.benchmark) return;
  advice_.after_times({.step = scheduler_.step(),
                       .seconds = std::move(seconds),
                       .num_stages = parts_.mesh.size("pp")});
}

void SessionRecords::end_start(const training::StepResult& result) {
  PhaseTimes& times = *context_.times;
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

void SessionRecords::validation(const std::string& set,
                                const training::TrainStep::Evaluation& result) {
  Json record = meter_.validation_record(result, parts_.train_step.lr(), scheduler_.step(),
                                         scheduler_.epoch());
  parts_.train_step.describe_validation(result, record);
  for (const auto& [name, value] : parts_.validation.tool_call_metrics().as_object()) {
    record[name] = value;
  }
  log_->validation(set, record);
  context_.trackers->validation(set, record);
}

void SessionRecords::validated(const std::vector<std::pair<std::string, double>>& losses,
                               double begin) {
  Json of_sets = Json::object();
  for (const auto& [set, loss] : losses) of_sets[set] = loss;
  Json fields = Json::object();
  fields["losses"] = std::move(of_sets);
  timed_event("validation", begin, std::move(fields));
  note_data();
}

void SessionRecords::saved(const std::optional<FinishedSave>& save) {
  if (!save) return;
  Json fields = Json::object();
  fields["step"] = save->step;
  fields["epoch"] = save->epoch;
  fields["path"] = save->folder;
  if (save->is_in_background) fields["waited_seconds"] = save->waited_seconds;
  timed_event("save", save->begin_seconds, std::move(fields));
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

void SessionRecords::skipped(const training::StepResult& result, DataRange data) {
  if (context_.group.rank() != 0) return;
  context_.console->warning(cat("step ", scheduler_.step(), ": its update is left out, since ",
                                spike_text(result, recipe_.clip), " [clip_grad_norm.on_spike]"));
  event("skipped_update", facts_of_spike(result, std::move(data)));
}

void SessionRecords::rolled_back(const training::StepResult& result, const Rollback& rollback,
                                 DataRange data) {
  context_.console->warning(cat("step ", rollback.step, ": ", spike_text(result, recipe_.clip),
                                "; back to ", rollback.checkpoint, ", next step ",
                                scheduler_.step(), ", without the data since then (rollback ",
                                rollback.number, " of ", recipe_.clip.max_rollbacks,
                                ") [clip_grad_norm.on_spike]"));
  Json fields = facts_of_spike(result, std::move(data));
  fields["step"] = rollback.step;
  fields["next_step"] = scheduler_.step();
  fields["from"] = rollback.checkpoint;
  fields["rollback"] = rollback.number;
  timed_event("rollback", rollback.begin_seconds, std::move(fields));
}

void SessionRecords::stopped_early(const std::string& why) {
  context_.console->info(cat("early stopping: ", why, ": the run ends [early_stopping]"));
  Json fields = Json::object();
  fields["text"] = why;
  event("early_stop", std::move(fields));
}

void SessionRecords::close(int stopped_by) {
  if (recipe_.tensorboard || recipe_.mlflow || recipe_.wandb) {
    slow_work_.run("ending the trackers", [&] {
      context_.trackers->end(stopped_by == 0 ? trackers::RunEnd::kFinished
                                             : trackers::RunEnd::kStopped);
    });
  }
  if (log_) log_->end();
  advice_.finish();
  slow_work_.run("describing the run", [&] {
    if (add_plan(std::numeric_limits<int32_t>::max())) write_record();
  });
  if (!is_writing()) return;
  note_data();
  if (has_noted_memory_) note_memory();
}

void SessionRecords::end(int stopped_by, double begin) {
  Json fields = Json::object();
  if (stopped_by != 0) fields["signal"] = training::signal_name(stopped_by);
  fields["status"] = static_cast<int>(stopped_by == 0 ? ExitCode::kDone : ExitCode::kPreempted);
  timed_event(stopped_by == 0 ? "end" : "preempted", begin, std::move(fields));
}

void SessionRecords::timed_event(std::string_view name, double begin, Json fields) {
  Json timed = Json::object();
  timed["seconds"] = monotonic_seconds() - begin;
  for (auto& [key, value] : fields.as_object()) timed[key] = std::move(value);
  event(name, std::move(timed));
}

void SessionRecords::event(std::string_view name, Json fields) {
  Json record = Json::object();
  record["step"] = scheduler_.step();
  record["epoch"] = scheduler_.epoch();
  for (auto& [key, value] : fields.as_object()) record[key] = std::move(value);
  context_.events->add(name, std::move(record));
}

}  // namespace automodel::recipes
