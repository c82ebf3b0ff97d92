#include <wandb/wandb_records.pb.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <ctime>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "core/error.h"
#include "core/file.h"
#include "core/process.h"
#include "core/timestamp.h"
#include "trackers/wandb.h"
#include "trackers/wandb_file.h"
#include "trackers/wandb_rows.h"
#include "trackers/wandb_run_id.h"

namespace automodel::trackers {

namespace {

using Outcome = Delivery::Outcome;

constexpr const char* kFolderStart = "offline-run-";

// What a file begins with: who wrote it, and the oldest package that can read it.
constexpr const char* kProducer = "0.31.0";
constexpr const char* kMinConsumer = "0.16.0";

std::string file_of(const std::string& folder, const std::string& id) {
  return path_join(folder, cat("run-", id, ".wandb"));
}

/// The last row that the files of earlier starts of a run have: its step and runtime.
std::optional<std::pair<int64_t, double>> last_row_of(const std::string& root,
                                                      const std::string& id, Reporter& reporter) {
  std::optional<std::pair<int64_t, double>> last;
  if (!is_directory(root)) return last;
  for (const std::string& name : list_directory(root)) {
    const std::string path = file_of(path_join(root, name), id);
    if (!name.starts_with(kFolderStart) || !name.ends_with("-" + id) || !path_exists(path))
      continue;
    std::vector<std::string> records;
    try {
      records = read_wandb_file(path);
    } catch (const InputError& error) {
      reporter.warning(cat("W&B: ", error.what(), "; what it has may be sent again"));
    }
    for (const std::string& bytes : records) {
      wandb::Record record;
      if (!record.ParseFromString(bytes) || !record.has_history()) continue;
      const int64_t step = record.history().step().num();
      if (last && step <= last->first) continue;
      last = {step, 0};
      for (const wandb::Item& item : record.history().item()) {
        if (item.nested_key_size() != 1 || item.nested_key(0) != "_runtime") continue;
        last->second = parse_double(item.value_json()).value_or(0);
      }
    }
  }
  return last;
}

/// "20260131_120000", of this place's clock.
std::string time_in_name(std::time_t seconds) {
  std::tm local{};
  ::localtime_r(&seconds, &local);
  std::array<char, 32> text{};
  const size_t size = std::strftime(text.data(), text.size(), "%Y%m%d_%H%M%S", &local);
  return {text.data(), size};
}

/// Makes the folder of a start of a run, of a name that no other has.
std::string make_folder(const std::string& root, const std::string& id) {
  create_directories(root);
  for (std::time_t seconds = std::time(nullptr);; ++seconds) {
    std::string folder = path_join(root, cat(kFolderStart, time_in_name(seconds), "-", id));
    if (path_exists(folder)) continue;
    create_directories(folder);
    return folder;
  }
}

class OfflineWandb final : public Tracker {
 public:
  OfflineWandb(const WandbRun& run, std::shared_ptr<Reporter> reporter)
      : run_(run), reporter_(std::move(reporter)), started_(unix_seconds()), rows_(started_) {
    const WandbRunId id = wandb_run_id(run, *reporter_);
    const std::string& place = run.settings.dir.empty() ? run.folder : run.settings.dir;
    const std::string root = path_join(place, "wandb");
    const auto last = id.may_be_there ? last_row_of(root, id.id, *reporter_) : std::nullopt;
    if (last) rows_.go_on_behind(last->first, last->second);
    folder_ = make_folder(root, id.id);
    file_.emplace(file_of(folder_, id.id));
    keep_wandb_run_id(run, id.id, *reporter_);
    wandb::Record head;
    head.mutable_header()->mutable_version_info()->set_producer(kProducer);
    head.mutable_header()->mutable_version_info()->set_min_consumer(kMinConsumer);
    write({head, record_of_run(run, id)});
  }

  const std::string& folder() const { return folder_; }

  const char* name() const override { return "W&B"; }
  size_t num_held() const override { return rows_.num_held(); }

  /// Writes what the run's log has behind the last row of its files: a start that was killed may
  /// not have written all of its own.
  Delivery start() override {
    if (!rows_.last_step()) return {};
    const auto records = earlier_records(run_, *rows_.last_step(), *reporter_);
    if (const Delivery written = deliver(records); written.outcome != Outcome::kDone) {
      reporter_->warning(cat("W&B: steps before this start are missing: ", written.problem));
    }
    return {};
  }

  Delivery deliver(Records records) override {
    std::vector<wandb::Record> written;
    for (const auto& record : records) {
      if (const auto row = rows_.add(*record)) written.push_back(record_of_row(*row));
    }
    if (!written.empty()) written.push_back(record_of_summary());
    if (rows_.has_left_out() && !std::exchange(has_told_of_left_out_, true)) {
      reporter_->info(kWandbLeftOut);
    }
    const std::string problem = try_to_write(written);
    if (problem.empty()) return {Outcome::kDone, records.size(), ""};
    return {Outcome::kRefused, records.size(), problem};
  }

  Delivery finish(RunEnd end) override {
    std::vector<wandb::Record> written;
    if (const auto row = rows_.end()) written = {record_of_row(*row), record_of_summary()};
    if (end == RunEnd::kStopped) written.emplace_back().mutable_preempting();
    wandb::RunExitRecord& exit = *written.emplace_back().mutable_exit();
    exit.set_exit_code(wandb_exit_code(end));
    exit.set_runtime(static_cast<int32_t>(std::min(rows_.runtime(), 2e9)));
    const std::string problem = try_to_write(written);
    return {problem.empty() ? Outcome::kDone : Outcome::kRefused, 0, problem};
  }

 private:
  wandb::Record record_of_run(const WandbRun& run, const WandbRunId& id) const {
    wandb::Record record;
    wandb::RunRecord& made = *record.mutable_run();
    made.set_run_id(id.id);
    made.set_entity(run.settings.entity);
    made.set_project(run.settings.project);
    const Json values = wandb_values(run.values);
    for (const auto& [key, value] : values.as_object()) {
      wandb::Item& item = *made.mutable_config()->add_update();
      item.set_key(key);
      item.set_value_json(value.dump());
    }
    made.set_run_group(run.settings.group);
    made.set_job_type(run.settings.job_type);
    made.set_display_name(wandb_run_name(run));
    made.set_notes(run.settings.notes);
    for (const std::string& tag : run.settings.tags) made.add_tags(tag);
    made.set_host(host_name());
    const double whole = std::floor(started_);
    made.mutable_start_time()->set_seconds(static_cast<int64_t>(whole));
    made.mutable_start_time()->set_nanos(static_cast<int32_t>((started_ - whole) * 1e9));
    made.set_resume(id.may_be_there && run.settings.resume != WandbResume::kNever);
    return record;
  }

  static void add_value(wandb::Item& item, const std::string& name, const Json& value) {
    item.add_nested_key(name);
    item.set_value_json(value.dump());
  }

  static wandb::Record record_of_row(const WandbRow& row) {
    wandb::Record record;
    wandb::HistoryRecord& history = *record.mutable_history();
    for (const auto& [name, value] : row.values.as_object()) {
      add_value(*history.add_item(), name, value);
    }
    history.mutable_step()->set_num(row.step);
    return record;
  }

  wandb::Record record_of_summary() const {
    wandb::Record record;
    for (const auto& [name, value] : rows_.summary().as_object()) {
      add_value(*record.mutable_summary()->add_update(), name, value);
    }
    return record;
  }

  void write(std::vector<wandb::Record> records) {
    std::vector<std::string> texts;
    int64_t number = num_records_;
    for (wandb::Record& record : records) {
      record.set_num(++number);
      texts.push_back(record.SerializeAsString());
    }
    file_->append(texts);
    num_records_ = number;
  }

  /// What was in the way; "" for nothing.
  std::string try_to_write(const std::vector<wandb::Record>& records) {
    if (records.empty()) return "";
    try {
      write(records);
    } catch (const InputError& error) {
      return error.what();
    }
    return "";
  }

  WandbRun run_;
  std::shared_ptr<Reporter> reporter_;
  double started_;  // seconds since 1970
  WandbRows rows_;
  std::string folder_;
  std::optional<WandbFile> file_;
  int64_t num_records_ = 0;
  bool has_told_of_left_out_ = false;
};

}  // namespace

std::unique_ptr<Tracker> make_offline_wandb(const WandbRun& run,
                                            const std::shared_ptr<Reporter>& reporter) {
  auto tracker = std::make_unique<OfflineWandb>(run, reporter);
  reporter->info(
      cat("W&B: offline, `wandb sync ", shell_word(tracker->folder()), "` sends the run"));
  return tracker;
}

}  // namespace automodel::trackers
