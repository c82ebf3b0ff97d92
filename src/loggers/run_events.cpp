#include "loggers/run_events.h"

#include <algorithm>
#include <utility>

#include "core/clock.h"
#include "core/error.h"

namespace automodel::loggers {

namespace {

Json event_record(std::string_view event, Json fields) {
  Json record = Json::object();
  record["event"] = event;
  record["timestamp"] = utc_timestamp();
  for (auto& [key, value] : fields.as_object()) record[key] = std::move(value);
  return record;
}

}  // namespace

void RunEvents::add(std::string_view event, Json fields) {
  if (!is_recording_) return;
  Json record = event_record(event, std::move(fields));
  const std::lock_guard lock(mutex_);
  if (is_open_) {
    write(record.dump());
  } else {
    pending_.push_back(std::move(record));
  }
}

void RunEvents::amend(std::string_view event, const Json& fields) {
  const std::lock_guard lock(mutex_);
  const auto latest = std::find_if(pending_.rbegin(), pending_.rend(), [&](const Json& record) {
    return record.at("event").as_string() == event;
  });
  if (latest == pending_.rend()) return;
  for (const auto& [key, value] : fields.as_object()) (*latest)[key] = value;
}

void RunEvents::open(const std::string& folder, bool begins_anew) {
  if (!is_recording_) return;
  const std::lock_guard lock(mutex_);
  is_open_ = true;
  const std::string path = path_join(folder, kEventsFile);
  try {
    if (begins_anew && path_exists(path)) rename_path(path, path + ".old");
    file_.emplace(path);
    file_->open();
  } catch (const InputError& error) {
    lose(error.what());
  }
  for (const Json& record : pending_) write(record.dump());
  pending_.clear();
}

void RunEvents::write(const std::string& line) {
  if (!file_) return;
  // Told first, since a run's last event says how it ended; in its place the line is lost.
  const int64_t num_lost = file_->num_lost();
  std::string problem;
  if (num_lost > 0) {
    problem =
        file_->append(event_record(kLostRecords, lost_records(*file_, num_lost)).dump()).problem;
  }
  if (problem.empty()) problem = file_->append(line).problem;
  if (!problem.empty()) lose(problem);
}

void RunEvents::lose(const std::string& reason) {
  if (std::exchange(has_warned_, true)) return;
  reporter_.warning(cat("events of the run are lost: ", reason));
}

Json lost_records(const LogFile& file, int64_t num_lost) {
  Json fields = Json::object();
  fields["file"] = file_name(file.path());
  fields["num_lost"] = num_lost;
  return fields;
}

void write_run_record(const std::string& folder, const Json& record, Reporter& reporter) {
  try {
    write_file_atomic(path_join(folder, kRunFile), record.dump(1) + "\n");
  } catch (const InputError& error) {
    reporter.warning(cat("the run is not described: ", error.what()));
  }
}

std::string append_run_event(const std::string& folder, std::string_view id, std::string_view event,
                             Json fields) {
  const std::string path = path_join(folder, kRunFile);
  try {
    if (!path_exists(path)) return cat(path, " does not exist");
    if (Json::parse_file(path).get("id", "") != id) return cat(path, " is another run's");
    return LogFile(path_join(folder, kEventsFile))
        .append(event_record(event, std::move(fields)).dump())
        .problem;
  } catch (const InputError& error) {
    return error.what();
  }
}

void RecordedReporter::warning(std::string_view text) {
  reporter_.warning(text);
  Json fields = Json::object();
  fields["text"] = text;
  events_.add("warning", std::move(fields));
}

}  // namespace automodel::loggers
