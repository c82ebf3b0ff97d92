#include "recipes/run/run_recipe.h"

#include <ATen/Parallel.h>
#include <signal.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <numeric>
#include <optional>
#include <string>
#include <vector>

#include "comm/store/store_server.h"
#include "comm/world/world.h"
#include "config/load.h"
#include "config/print.h"
#include "core/clock.h"
#include "core/error.h"
#include "core/phase_times.h"
#include "core/system_limits.h"
#include "launcher/environment.h"
#include "launcher/local_ranks.h"
#include "loggers/chrome_trace.h"
#include "loggers/console.h"
#include "loggers/run_events.h"
#include "recipes/check/check_run.h"
#include "recipes/read/hub_inputs.h"
#include "recipes/read/read_distillation.h"
#include "recipes/read/recipe.h"
#include "recipes/read/recipe_paths.h"
#include "recipes/records/run_trackers.h"
#include "recipes/run/last_words.h"
#include "recipes/run/rank_device.h"
#include "recipes/run/run_record.h"
#include "recipes/run/teacher_link.h"
#include "recipes/run/train_session.h"
#include "tensor/memory.h"
#include "tensor/page_arena.h"
#include "training/signals.h"

namespace automodel::recipes {

namespace {

using loggers::ConsoleReporter;
using loggers::RecordedReporter;
using loggers::RunEvents;

/// A recipe that was read and passed its checks, ready for any rank.
struct PreparedRun {
  config::Document document;
  Recipe recipe;
  std::string shown_recipe;     ///< as written: values of the environment are never logged
  std::string resolved_recipe;  ///< with the values in use; saved in checkpoints
  std::string compared_recipe;  ///< the same with secrets, compared between ranks
  std::vector<std::string> warnings;
  std::string trace_path;
  std::string log_path;
  std::string device;  ///< "cpu", "cuda" or "": as the recipe says
  Json record;         ///< begin_run_record()'s; its id is that of rank 0's process
  PhaseTimes times;    ///< since the launching process started
  bool shows_timings = false;
};

/// When the program was started, in monotonic_seconds(). A script that replaced itself by the
/// program may be much older, so the program passes the time in AUTOMODEL_STARTED.
double start_seconds() {
  const char* text = std::getenv("AUTOMODEL_STARTED");
  const auto seconds = text == nullptr ? std::nullopt : parse_double(text);
  return seconds.value_or(monotonic_seconds() - seconds_since_process_start());
}

loggers::ConsoleOptions console_of(const PreparedRun& run, int rank, int world_size) {
  loggers::ConsoleOptions options = loggers::ConsoleOptions::from_environment(rank, world_size);
  options.file = run.log_path;
  return options;
}

/// What checkpoints keep of a recipe: with the values in use, and with the paths at which a recipe
/// of another folder has its files, so that it can be read where the run was started.
std::string kept_recipe(const config::Document& document) {
  config::Node root = document.root;
  config::Diagnostics notes(document.sources);
  find_paths(root, notes);
  return config::to_yaml(root, {.has_values = true});
}

PreparedRun prepare(const RunOptions& options, int world_size) {
  PreparedRun run{.times = PhaseTimes(start_seconds())};
  run.times.end("loading the program");
  run.shows_timings = options.shows_timings;
  run.trace_path = options.trace_path;
  run.log_path = options.log_path;
  ConsoleReporter reporter(console_of(run, 0, world_size));
  run.device = options.device;
  run.document = config::load_recipe(options.recipe_path, options.overrides);
  config::Diagnostics diagnostics(run.document.sources);
  run.recipe =
      read_with_hub(run.document, HubFetch::kDescriptions, /*is_run=*/true, reporter, diagnostics);
  run.times.end("reading the recipe");
  check_run(run.recipe, {.world_size = world_size, .loads_tokenizers = false}, diagnostics);
  diagnostics.throw_if_errors();
  run.times.end("checking it");
  run.warnings = run.document.warnings;
  for (std::string& text : diagnostics.render_all(config::Severity::kWarning)) {
    run.warnings.push_back(std::move(text));
  }
  run.shown_recipe = config::to_yaml(run.document.root);
  run.resolved_recipe = kept_recipe(run.document);
  run.compared_recipe =
      config::to_yaml(run.document.root, {.has_secrets_hidden = false, .has_values = true});
  run.record = begin_run_record(options, run.document, diagnostics);
  run.times.end("describing the run");
  return run;
}

/// A rank's worlds: of all ranks and, where student and teacher have ranks of their own, of those
/// that the rank is one of.
struct RankWorlds {
  comm::World all;
  std::optional<comm::World> own;
  bool is_teachers = false;

  RankWorlds(const Recipe& recipe, const comm::WorldOptions& place) : all(place) {
    const RankShares shares = rank_shares(recipe, place.size);
    if (shares.teacher == 0) return;
    const auto first = static_cast<int>(shares.student);
    is_teachers = place.rank >= first;
    comm::WorldOptions part = place;
    part.hosts_store = false;  // `all` has it open
    part.outstays_others = place.hosts_store;
    part.first_rank = is_teachers ? first : 0;
    part.rank = place.rank - part.first_rank;
    part.size = static_cast<int>(is_teachers ? shares.teacher : shares.student);
    const std::string name = is_teachers ? "teacher" : "student";
    part.run_id = place.run_id.empty() ? name : cat(place.run_id, "/", name);
    own.emplace(part);
  }

  comm::World& session() { return own ? *own : all; }

  void close() {
    if (own) own->close();
    all.close();
  }

  void fail(const std::string& text) noexcept {
    if (own) own->fail(text);
    all.fail(text);
  }

  /// How long this rank has waited for others, whichever world they are in.
  double waited_seconds() const {
    return all.waited_seconds() + (own ? own->waited_seconds() : 0.0);
  }

  comm::Traffic traffic() const {
    comm::Traffic total = all.traffic();
    if (!own) return total;
    for (const auto& [name, moved] : own->traffic()) {
      total[name].num_operations += moved.num_operations;
      total[name].bytes += moved.bytes;
    }
    return total;
  }

  /// The ranks of student and teacher, who wait for each other as long as both live.
  std::optional<comm::ProcessGroup> link() {
    if (!own) return std::nullopt;
    constexpr double kNever = 365 * 24 * 3600.0;
    std::vector<int> everybody(static_cast<size_t>(all.group().size()));
    std::iota(everybody.begin(), everybody.end(), 0);
    return all.split("student and teacher", {everybody}, kNever);
  }
};

/// The device of this rank.
RankDevice find_device(const PreparedRun& run, int local_rank, RankWorlds& worlds,
                       Reporter& reporter) {
  DeviceRequest request;
  request.is_demanded = run.device == "cuda";
  request.is_wanted =
      request.is_demanded || (run.device.empty() && run.recipe.dist_env.names_nccl());
  request.local_rank = local_rank;
  RankDevice place = agree_on_device(request, worlds.all.group(), tensor::open_cuda, reporter);
  if (place.device.is_cpu()) return place;
  if (run.recipe.optimizer.is_paged) {
    throw UnsupportedError(
        "optimizer: state in memory that a CUDA device pages is not in this version; "
        "bitsandbytes.optim.AdamW8bit keeps the same state on the device");
  }
  worlds.all.use_cuda_device(place.device.index());
  if (worlds.own) worlds.own->use_cuda_device(place.device.index());
  return place;
}

/// Fetches what is not on this machine yet: one of the machine's ranks fetches, the others wait.
void fetch_for_machine(const PreparedRun& run, int local_rank, comm::World& world,
                       Reporter& reporter) {
  comm::SlowWork& slow_work = world.slow_work(slow_work_options(run.recipe, reporter));
  slow_work.run("fetching model and data", [&] {
    if (local_rank == 0) fetch_inputs(run.recipe, reporter, slow_work.progress());
  });
}

/// What a rank says, and what is recorded of that.
struct RankVoice {
  Reporter& reporter;
  Reporter& console;  ///< records nothing
  RunEvents& events;
  RunTrackers& trackers;
};

int run_session(PreparedRun& run, int local_rank, RankWorlds& worlds, const RankVoice& voice,
                BackgroundTask& background) {
  Reporter& reporter = voice.reporter;
  comm::World& world = worlds.all;
  world.group().check_same("recipe or overrides", run.compared_recipe);
  run.record["id"] = world.group().broadcast_text(run.record.at("id").as_string(), 0);
  run.times.end("ranks");
  fetch_for_machine(run, local_rank, world, reporter);
  run.times.end("fetching model and data");
  const RankDevice place = find_device(run, local_rank, worlds, reporter);
  if (place.device.is_cpu()) tensor::use_page_arena_for_tensors();
  set_matmul_precision(run.recipe.matmul_precision, place.device, reporter);
  const comm::ProcessGroup group = worlds.session().group();
  const int rank = world.group().rank();
  std::optional<loggers::ChromeTrace> trace;
  if (!run.trace_path.empty()) {
    trace.emplace(loggers::trace_path_of_rank(run.trace_path, rank), rank, reporter);
  }
  // Made on a thread while the session is built.
  const auto plan =
      rank == 0 ? begin_plan(run.recipe, world.group().size(), place.device) : nullptr;
  RunContext context{.world = &worlds.session(),
                     .group = group,
                     .teacher_link = worlds.link(),
                     .waited_seconds = [&worlds] { return worlds.waited_seconds(); },
                     .traffic = [&worlds] { return worlds.traffic(); },
                     .reporter = &reporter,
                     .console = &voice.console,
                     .trace = trace ? &*trace : nullptr,
                     .device = place.device,
                     .cuda = place.cuda.get(),
                     .resolved_recipe = run.resolved_recipe,
                     .shown_recipe = run.shown_recipe,
                     .events = &voice.events,
                     .background = &background,
                     .trackers = &voice.trackers,
                     .record = run.record,
                     .plan = plan.get(),
                     .program_bytes = place.device.is_cpu() ? tensor::peak_resident_bytes() : 0,
                     .times = &run.times,
                     .shows_timings = run.shows_timings};
  if (worlds.is_teachers) {
    loggers::ConsoleOptions console = console_of(run, group.rank(), group.size());
    console.has_progress = false;  // the student's first rank shows its own
    loggers::ConsoleReporter teachers(console);
    context.reporter = &teachers;
    serve_student(run.recipe, context, *context.teacher_link);
    return static_cast<int>(ExitCode::kDone);
  }
  TrainSession session(run.recipe, context);
  reporter.info(
      cat("ready after ", format_duration(monotonic_seconds() - run.times.begin_seconds())));
  return static_cast<int>(session.run());
}

/// Waits for the save that was under way when the run failed.
void await_save(BackgroundTask& background, const std::string& failure, Reporter& reporter) {
  reporter.info(cat("the run has failed (", failure, "); a save is under way, and is waited for"));
  try {
    background.wait();
    reporter.info("the save that was under way is done");
  } catch (const std::exception& error) {
    reporter.warning(cat("the save that was under way has failed too: ", error.what()));
  }
}

/// The threads that a rank computes with, one of so many ranks of this machine. LibTorch would wait
/// for ever for a thread that the system refuses, so whether it starts them is tried first.
void set_num_threads(int num_threads, int num_local_ranks, Reporter& reporter) {
  constexpr int kOthers = 12;  // of the network, the log, the data and the like
  check_threads(2 * num_threads + kOthers);
  const int num_cores = launcher::num_usable_cores();
  const char* asked = std::getenv("OMP_NUM_THREADS");
  if (asked != nullptr && int64_t{num_threads} * num_local_ranks > 2 * int64_t{num_cores}) {
    reporter.warning(cat("OMP_NUM_THREADS is ", asked, ": ", num_threads, " threads on each of ",
                         num_local_ranks, num_local_ranks == 1 ? " rank" : " ranks",
                         " will wait for each other on ", num_cores,
                         num_cores == 1 ? " core" : " cores"));
  }
  at::set_num_threads(num_threads);
}

/// How many threads each of the ranks of this machine computes with.
struct RankThreads {
  int per_rank = 1;
  int num_local_ranks = 1;
};

/// Runs one rank from start to end. Every error is caught here and its text left for the peers.
launcher::RankOutcome be_rank(PreparedRun& run, comm::WorldOptions place, int local_rank,
                              const RankThreads& threads) {
  ConsoleReporter console(console_of(run, place.rank, place.size));
  RunEvents events(console, place.rank == 0);
  RecordedReporter reporter(console, events);
  RunTrackers run_trackers(reporter, events, place.rank == 0);
  place.reporter = &reporter;
  std::optional<RankWorlds> worlds;
  // A save that goes on there when a rank fails is waited for after the others have been told why.
  BackgroundTask background;
  launcher::RankOutcome outcome(0);
  try {
    set_num_threads(threads.per_rank, threads.num_local_ranks, reporter);
    worlds.emplace(run.recipe, place);
    for (const std::string& warning : run.warnings) reporter.warning(warning);
    reporter.info(cat("recipe:\n", run.shown_recipe));
    const int status = run_session(run, local_rank, *worlds,
                                   {reporter, console, events, run_trackers}, background);
    worlds->close();
    return status;
  } catch (const std::exception& error) {
    outcome = outcome_of(error);
  }
  if (background.has_ended()) {
    // A save that failed here may have ended the other ranks before this one noticed.
    try {
      background.wait();
    } catch (const comm::PeerFailure&) {
    } catch (const std::exception& error) {
      outcome = outcome_of(error);
    }
  }
  if (worlds) worlds->fail(outcome.failure);
  run_trackers.end(trackers::RunEnd::kFailed);
  if (background.is_pending()) await_save(background, outcome.failure, reporter);
  return outcome;
}

/// The rank that failed first; -1 when none is to blame. A rank that only lost a peer names it:
/// "rank 0: rank 1 vanished during ...".
int64_t first_failed_rank(const launcher::RunFailure& failure) {
  if (failure.status != static_cast<int>(ExitCode::kRankFailed)) return failure.rank;
  std::string_view text = failure.text;
  const std::string own = cat("rank ", failure.rank, ": ");
  if (text.starts_with(own)) text.remove_prefix(own.size());
  constexpr std::string_view kRank = "rank ";
  if (!text.starts_with(kRank)) return failure.rank;
  text.remove_prefix(kRank.size());
  return parse_int(text.substr(0, text.find(' '))).value_or(failure.rank);
}

/// Records why the run failed, if it has come to own its folder.
void record_failure(const PreparedRun& run, const launcher::RunFailure& failure) {
  Json fields = Json::object();
  if (const int64_t rank = first_failed_rank(failure); rank >= 0) fields["rank"] = rank;
  fields["status"] = failure.status;
  fields["text"] = failure.text;
  // Nobody is left to tell why it was not recorded; why the run failed has been said.
  loggers::append_run_event(run.recipe.checkpoint.checkpoint_dir, run.record.at("id").as_string(),
                            "failure", std::move(fields));
}

/// Logs why a rank failed that another program started; returns its exit status.
int report_outcome(const PreparedRun& run, const launcher::RankOutcome& outcome, int rank,
                   int world_size) {
  if (!outcome.failure.empty()) {
    ConsoleReporter(console_of(run, rank, world_size)).error(outcome.failure);
    // A rank that was lost cannot say so itself: rank 0 does.
    const bool is_echo = outcome.status == static_cast<int>(ExitCode::kRankFailed);
    if (rank == 0 || !is_echo) record_failure(run, {rank, outcome.status, outcome.failure});
  }
  return outcome.status;
}

/// What a signal that nothing handles leaves of the run.
std::string left_by_signal(const PreparedRun& run, int signal) {
  const auto saving = training::parse_signals(run.recipe.step_scheduler.preemption_signal);
  if (std::ranges::find(saving, signal) != saving.end()) return " before training began";
  if (!run.recipe.checkpoint.enabled) return "; nothing was saved (checkpoint.enabled: false)";
  return "; the same command goes on from the last checkpoint, if there is one "
         "(step_scheduler.preemption_signal names signals after which a run saves)";
}

/// Tells what has stopped this process, which others see as an end without a reason: signals that
/// end it, and until it trains also those after which it saves. Of a run's ranks the first speaks.
class ToldSignals final {
 public:
  ToldSignals(const PreparedRun& run, int rank, int world_size)
      : words_(signals_of(run), [&run, rank, world_size](int signal) {
          if (rank != 0) return;
          const std::string text = cat("stopped by signal ", signal, " (", ::strsignal(signal), ")",
                                       left_by_signal(run, signal));
          ConsoleReporter(console_of(run, rank, world_size)).error(text);
          record_failure(run, {-1, 128 + signal, text});
        }) {}

 private:
  static std::vector<int> signals_of(const PreparedRun& run) {
    std::vector<int> signals = {SIGINT, SIGTERM, SIGHUP};
    for (const int saving : training::parse_signals(run.recipe.step_scheduler.preemption_signal)) {
      const bool is_new = std::ranges::find(signals, saving) == signals.end();
      if (is_new && saving != SIGCONT) signals.push_back(saving);  // which ends no process
    }
    return signals;
  }

  LastWords words_;
};

double timeout_of(const PreparedRun& run) {
  return run.recipe.dist_env.timeout_minutes * 60.0;
}

/// Where a rank that another program started meets the others.
comm::WorldOptions world_of(const launcher::RankPlace& place) {
  comm::WorldOptions world;
  world.rank = place.rank;
  world.size = place.world_size;
  world.host = place.host;
  world.port = place.port;
  world.hosts_store = place.rank == 0 && !place.store_is_served;
  world.is_agents_store = place.store_is_served;
  world.is_one_machine = place.local_world_size == place.world_size;
  world.secret = place.secret;
  world.run_id = place.run_id;
  world.network_interface = place.network_interface;
  world.store_place = place.store_is_served ? place.source : "rank 0";
  return world;
}

int run_started_rank(PreparedRun& run, const launcher::RankPlace& place) {
  comm::WorldOptions world = world_of(place);
  world.timeout_seconds = timeout_of(run);
  const int threads =
      launcher::threads_per_rank(launcher::process_environment(), place.local_world_size);
  const ToldSignals told(run, place.rank, place.world_size);
  const int status =
      report_outcome(run, be_rank(run, world, place.local_rank, {threads, place.local_world_size}),
                     place.rank, place.world_size);
  if (status == static_cast<int>(ExitCode::kRankFailed)) {
    // Threads of libraries may be in calls that never return, so nothing can be destroyed here.
    std::fflush(nullptr);
    ::_exit(status);
  }
  return status;
}

int run_here(PreparedRun& run, int num_ranks) {
  if (num_ranks == 1) {
    const int threads = launcher::threads_per_rank(launcher::process_environment(), 1);
    const ToldSignals told(run, 0, 1);
    return report_outcome(run, be_rank(run, {}, 0, {threads, 1}), 0, 1);
  }
  launcher::LocalRun local;
  const std::string secret = launcher::make_run_secret();
  local.rank_main = [&](const launcher::LocalRank& place) {
    comm::WorldOptions world;
    world.rank = place.rank;
    world.size = place.num_ranks;
    world.port = place.port;
    world.secret = secret;
    world.timeout_seconds = timeout_of(run);
    return be_rank(run, world, place.rank, {place.num_threads, place.num_ranks});
  };
  check_open_files(comm::files_of_store(num_ranks), cat("the store of ", num_ranks, " ranks"));
  local.serve_store = [&secret](int listening_fd, int, int) -> std::shared_ptr<void> {
    return std::make_shared<comm::StoreServer>(listening_fd, secret);
  };
  local.report = [&](launcher::RunFailure failure) {
    if (failure.rank < 0 && failure.status > 128) {
      failure.text += left_by_signal(run, failure.status - 128);
    }
    ConsoleReporter(console_of(run, 0, 1)).error(failure.text);
    record_failure(run, failure);
  };
  return launcher::run_local_ranks(num_ranks, local);
}

}  // namespace

int run_recipe(const RunOptions& options) {
  const auto place = launcher::find_place(launcher::process_environment());
  const int num_local_ranks = options.num_local_ranks.value_or(1);
  if (num_local_ranks < 1) {
    throw UserError(cat("--nproc-per-node must be at least 1, found ", num_local_ranks));
  }
  if (place && options.num_local_ranks) {
    throw UserError(cat("--nproc-per-node starts ranks on this machine, but ", place->source,
                        " has started this process as rank ", place->rank, " of ",
                        place->world_size, " already; leave it out"));
  }
  const int num_ranks = place ? place->world_size : num_local_ranks;
  if (!place) {
    PreparedRun run = prepare(options, num_ranks);
    return run_here(run, num_ranks);
  }
  std::optional<PreparedRun> run;
  try {
    run.emplace(prepare(options, num_ranks));
  } catch (const UserError& error) {
    comm::tell_failed_start(world_of(*place), error.what());
    throw;
  }
  return run_started_rank(*run, *place);
}

}  // namespace automodel::recipes
