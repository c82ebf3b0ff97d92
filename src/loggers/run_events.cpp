#include "loggers/run_events.h"

#include <utility>

#include "core/clock.h"
#include "core/error.h"

namespace automodel::loggers {

namespace {

std::string event_line(std::string_view event, Json fields) {
  Json record = Json::object();
  record["event"] = event;
  record["timestamp"] = utc_timestamp();
  for (auto& [key, value] : fields.as_object()) record[key] = std::move(value);
  return record.dump();
}

/// Whether the file is there and ends in the middle of a line, as a killed process leaves it.
bool ends_in_a_line(const std::string& path) {
  if (!path_exists(path)) return false;
  const DataFile file(path);
  return file.size() > 0 && file.read(file.size() - 1, 1) != "\n";
}

}  // namespace

void RunEvents::add(std::string_view event, Json fields) {
  if (!is_recording_) return;
  std::string line = event_line(event, std::move(fields));
  const std::lock_guard lock(mutex_);
  if (is_open_) {
    write(line);
  } else {
    pending_.push_back(std::move(line));
  }
}

void RunEvents::open(const std::string& folder, bool begins_anew) {
  if (!is_recording_) return;
  const std::lock_guard lock(mutex_);
  is_open_ = true;
  const std::string path = path_join(folder, kEventsFile);
  try {
    if (begins_anew && path_exists(path)) rename_path(path, path + ".old");
    is_line_open_ = ends_in_a_line(path);
    writer_ = std::make_unique<LineWriter>(path);
  } catch (const InputError& error) {
    lose(error.what());
  }
  for (const std::string& line : pending_) write(line);
  pending_.clear();
}

void RunEvents::write(const std::string& line) {
  if (writer_ == nullptr) return;
  try {
    writer_->append(is_line_open_ ? cat('\n', line) : line);
    is_line_open_ = false;
  } catch (const InputError& error) {
    is_line_open_ = true;  // a part of the line may have been written
    lose(error.what());
  }
}

void RunEvents::lose(const std::string& reason) {
  if (std::exchange(has_warned_, true)) return;
  reporter_.warning(cat("events of the run are lost: ", reason));
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
    const std::string events = path_join(folder, kEventsFile);
    const std::string line = event_line(event, std::move(fields));
    const bool is_line_open = ends_in_a_line(events);
    LineWriter(events).append(is_line_open ? cat('\n', line) : line);
    return "";
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
