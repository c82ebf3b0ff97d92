#pragma once

#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/json.h"
#include "core/reporter.h"
#include "loggers/log_file.h"

namespace automodel::loggers {

/// The files that describe a run, in its folder: what it is, and what has happened to it.
inline constexpr const char* kRunFile = "run.json";
inline constexpr const char* kEventsFile = "events.jsonl";

/// The event of a log that is written again after lines of it were lost, or that is never again.
inline constexpr const char* kLostRecords = "lost_records";
/// Its fields.
Json lost_records(const LogFile& file, int64_t num_lost);

/// What happens to a run: a line of JSON each, `{"event": NAME, "timestamp": ..., ...}`, in
/// events.jsonl. Recording never ends or delays a run: a line that cannot be written is lost, which
/// the reporter hears once, and the file tells when it can be written again. Any thread may add
/// events. Only rank 0 records.
class RunEvents final {
 public:
  /// Keeps events until open(). `reporter` outlives this object.
  RunEvents(Reporter& reporter, bool is_recording)
      : reporter_(reporter), is_recording_(is_recording) {}

  /// Adds an event, now; `fields` follow its name and time.
  void add(std::string_view event, Json fields = Json::object());

  /// Adds fields to the latest event of that name that waits for open(); nothing if none does.
  void amend(std::string_view event, const Json& fields);

  /// Writes what was added so far, and every event from now on, to FOLDER/events.jsonl. A run that
  /// begins anew renames an earlier run's file to events.jsonl.old; others append to it. The caller
  /// has locked the folder.
  void open(const std::string& folder, bool begins_anew);

 private:
  void write(const std::string& line);
  void lose(const std::string& reason);

  Reporter& reporter_;
  bool is_recording_;
  std::mutex mutex_;
  std::vector<Json> pending_;  // until open()
  std::optional<LogFile> file_;
  bool is_open_ = false;
  bool has_warned_ = false;
};

/// Writes FOLDER/run.json, whole or not at all; what keeps it from being written is a warning.
void write_run_record(const std::string& folder, const Json& record, Reporter& reporter);

/// Adds an event to FOLDER/events.jsonl if run.json there has this `id`, that is if the run that
/// the caller speaks for has come to own the folder. For those without its RunEvents: the process
/// that started the ranks, or a rank that fails alone. Returns why it was not written, or "".
std::string append_run_event(const std::string& folder, std::string_view id, std::string_view event,
                             Json fields);

/// Sends what a run says to a reporter, and its warnings to its events too.
class RecordedReporter final : public Reporter {
 public:
  /// Both outlive this object.
  RecordedReporter(Reporter& reporter, RunEvents& events) : reporter_(reporter), events_(events) {}

  void info(std::string_view text) override { reporter_.info(text); }
  void warning(std::string_view text) override;
  void error(std::string_view text) override { reporter_.error(text); }
  void progress(std::string_view text) override { reporter_.progress(text); }
  bool shows_progress() const override { return reporter_.shows_progress(); }

 private:
  Reporter& reporter_;
  RunEvents& events_;
};

}  // namespace automodel::loggers
