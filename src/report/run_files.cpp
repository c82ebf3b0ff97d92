#include "report/run_files.h"

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <limits>
#include <nlohmann/json.hpp>
#include <thread>
#include <utility>

#include "core/error.h"
#include "core/file.h"
#include "core/text.h"

namespace automodel::report {

namespace {

constexpr double kNone = std::numeric_limits<double>::quiet_NaN();
constexpr std::array<std::string_view, kNumMetrics> kKeys = {"loss", "grad_norm", "lr", "tps",
                                                             "mem"};
constexpr std::array<std::string_view, kNumMetrics> kTitles = {
    "loss", "gradient norm", "learning rate", "tokens/s", "memory, GiB"};

/// What is read of one line of training.jsonl.
struct Record {
  double step = kNone;
  double seconds = kNone;
  double tokens = 0;
  std::array<double, kNumMetrics> metrics;

  Record() { metrics.fill(kNone); }

  void set(std::string_view key, double value) {
    if (key == "step") {
      step = value;
    } else if (key == "num_tokens_per_step") {
      tokens = value;
    } else {
      const auto found = std::ranges::find(kKeys, key);
      if (found != kKeys.end()) metrics[static_cast<size_t>(found - kKeys.begin())] = value;
    }
  }
};

/// Takes the members of a record from the parser without making values of them.
class RecordReader final : public nlohmann::json_sax<nlohmann::json> {
 public:
  Record record;

  bool null() override { return true; }
  bool boolean(bool) override { return true; }
  bool number_integer(int64_t value) override { return number(static_cast<double>(value)); }
  bool number_unsigned(uint64_t value) override { return number(static_cast<double>(value)); }
  bool number_float(double value, const std::string&) override { return number(value); }
  bool string(std::string& value) override {
    if (depth_ == 1 && key_ == "timestamp") record.seconds = seconds_of(value);
    return true;
  }
  bool binary(nlohmann::json::binary_t&) override { return true; }
  bool start_object(size_t) override { return enter(); }
  bool end_object() override { return leave(); }
  bool start_array(size_t) override { return enter(); }
  bool end_array() override { return leave(); }
  bool key(std::string& name) override {
    if (depth_ == 1) key_.swap(name);
    return true;
  }
  bool parse_error(size_t, const std::string&, const nlohmann::json::exception&) override {
    return false;
  }

 private:
  bool number(double value) {
    if (depth_ == 1) record.set(key_, value);
    return true;
  }
  bool enter() {
    ++depth_;
    return true;
  }
  bool leave() {
    --depth_;
    return true;
  }

  std::string key_;
  int depth_ = 0;
};

/// A line with NaN or Infinity, which JSON proper does not have.
std::optional<Record> read_extended(std::string_view line) {
  try {
    const Json json = Json::parse(line, "record");
    if (!json.is_object()) return std::nullopt;
    Record record;
    for (const auto& [key, value] : json.as_object()) {
      if (value.is_number()) record.set(key, value.as_double());
    }
    record.seconds = seconds_of(json.get("timestamp", ""));
    return record;
  } catch (const InputError&) {
    return std::nullopt;
  }
}

/// Whether a number is a step: one that an int64_t holds too.
bool is_step(double value) {
  constexpr double kMost = 9007199254740992.0;  // 2^53: whole numbers up to it are doubles
  return value >= 0 && value <= kMost;
}

std::optional<Record> read_record(std::string_view line) {
  RecordReader reader;
  std::optional<Record> record;
  if (nlohmann::json::sax_parse(line.begin(), line.end(), &reader)) {
    record = reader.record;
  } else {
    record = read_extended(line);
  }
  if (record && !is_step(record->step)) return std::nullopt;
  return record;
}

/// Calls `take` with every line that is not empty; the last one may lack its end.
template <typename Take>
void for_each_line(std::string_view lines, const Take& take) {
  while (!lines.empty()) {
    const size_t end = std::min(lines.find('\n'), lines.size());
    if (end > 0) take(lines.substr(0, end));
    lines.remove_prefix(std::min(end + 1, lines.size()));
  }
}

/// One thread's part of training.jsonl; its tokens are not summed yet.
struct Part {
  StepTable steps;
  int64_t num_unread = 0;

  void read(std::string_view lines) {
    for_each_line(lines, [this](std::string_view line) {
      const auto record = read_record(line);
      if (!record) {
        ++num_unread;
        return;
      }
      steps.step.push_back(record->step);
      steps.seconds.push_back(record->seconds);
      steps.tokens.push_back(record->tokens);
      for (size_t i = 0; i < kNumMetrics; ++i) steps.metrics[i].push_back(record->metrics[i]);
    });
  }
};

/// Cuts lines into parts of about the same size, between lines.
std::vector<std::string_view> cut(std::string_view lines, size_t num_parts) {
  std::vector<std::string_view> parts;
  const size_t wanted = lines.size() / num_parts + 1;
  while (!lines.empty()) {
    const size_t end = lines.size() <= wanted ? lines.size() : lines.find('\n', wanted);
    const size_t size = std::min(end, lines.size() - 1) + 1;
    parts.push_back(lines.substr(0, size));
    lines.remove_prefix(size);
  }
  return parts;
}

void append(std::vector<double>& to, const std::vector<double>& more) {
  to.insert(to.end(), more.begin(), more.end());
}

/// Calls `take` with every object of JSON lines; counts lines that are none.
template <typename Take>
void parse_lines(std::string_view lines, int64_t& num_unread, const Take& take) {
  for_each_line(lines, [&](std::string_view line) {
    try {
      const Json record = Json::parse(line, "record");
      if (record.is_object()) return take(record);
    } catch (const InputError&) {
      // Cut or of another form: counted below.
    }
    ++num_unread;
  });
}

/// "" when there is no such file.
std::string text_of_file(const std::string& path) {
  return path_exists(path) ? read_file(path) : "";
}

double number_of(const Json& record, std::string_view key) {
  const Json* value = record.find(key);
  return value != nullptr && value->is_number() ? value->as_double() : kNone;
}

std::string text_of(const Json& record, std::string_view key) {
  const Json* value = record.find(key);
  return value != nullptr && value->is_string() ? value->as_string() : "";
}

/// "default" of validation.jsonl, "x" of validation_x.jsonl; absent for other files.
std::optional<std::string> set_of_file(std::string_view name) {
  constexpr std::string_view kBegin = "validation", kEnd = ".jsonl";
  if (!name.starts_with(kBegin) || !name.ends_with(kEnd)) return std::nullopt;
  name.remove_prefix(kBegin.size());
  name.remove_suffix(kEnd.size());
  if (name.empty()) return "default";
  if (name[0] != '_') return std::nullopt;
  return std::string(name.substr(1));
}

/// "; it holds the runs a, b", or "".
std::string runs_below(const std::string& folder) {
  constexpr size_t kMost = 5;
  std::vector<std::string> found;
  for (const std::string& name : list_directory(folder)) {
    if (holds_a_run(path_join(folder, name))) found.push_back(name);
  }
  return found.empty() ? "" : cat("; there are runs in it: ", join_first(found, kMost));
}

std::string name_of_folder(const std::string& folder) {
  std::filesystem::path path = std::filesystem::path(folder).lexically_normal();
  if (!path.has_filename()) path = path.parent_path();
  const std::string name = path.filename().string();
  if (name != "." && name != "..") return name;
  std::error_code error;
  const std::string whole = std::filesystem::canonical(folder, error).filename().string();
  return error ? folder : whole;
}

}  // namespace

std::string_view metric_key(Metric metric) {
  return kKeys[static_cast<size_t>(metric)];
}

std::string_view metric_title(Metric metric) {
  return kTitles[static_cast<size_t>(metric)];
}

double seconds_of(std::string_view timestamp) {
  // 2026-08-01T12:34:56.789Z
  constexpr size_t kSize = 24;
  if (timestamp.size() != kSize || timestamp.back() != 'Z') return kNone;
  const auto number = [&](size_t at, size_t size) {
    int value = -1;
    const char* begin = timestamp.data() + at;
    const auto [end, error] = std::from_chars(begin, begin + size, value);
    return error == std::errc() && end == begin + size ? value : -1;
  };
  const int year = number(0, 4), month = number(5, 2), day = number(8, 2);
  const int hour = number(11, 2), minute = number(14, 2), second = number(17, 2);
  const int millis = number(20, 3);
  if (std::min({year, month, day, hour, minute, second, millis}) < 0) return kNone;
  const std::chrono::year_month_day date{std::chrono::year(year),
                                         std::chrono::month(static_cast<unsigned>(month)),
                                         std::chrono::day(static_cast<unsigned>(day))};
  if (!date.ok()) return kNone;
  const auto days = std::chrono::sys_days(date).time_since_epoch().count();
  return static_cast<double>(days) * 86400.0 + hour * 3600.0 + minute * 60.0 + second +
         millis / 1000.0;
}

int64_t add_steps(std::string_view lines, StepTable& steps) {
  constexpr size_t kLeastOfAThread = 1 << 20, kMostThreads = 16;
  const size_t cores = std::clamp<size_t>(std::thread::hardware_concurrency(), 1, kMostThreads);
  const auto pieces = cut(lines, std::clamp<size_t>(lines.size() / kLeastOfAThread, 1, cores));
  std::vector<Part> parts(pieces.size());
  {
    std::vector<std::jthread> threads;
    for (size_t i = 1; i < pieces.size(); ++i) {
      threads.emplace_back([&, i] { parts[i].read(pieces[i]); });
    }
    if (!pieces.empty()) parts[0].read(pieces[0]);
  }
  int64_t num_unread = 0;
  for (const Part& part : parts) {
    append(steps.step, part.steps.step);
    append(steps.seconds, part.steps.seconds);
    double sum = steps.tokens.empty() ? 0 : steps.tokens.back();
    for (const double tokens : part.steps.tokens) steps.tokens.push_back(sum += tokens);
    for (size_t i = 0; i < kNumMetrics; ++i) append(steps.metrics[i], part.steps.metrics[i]);
    num_unread += part.num_unread;
  }
  return num_unread;
}

RunState RecordedRun::state() const {
  RunState state = RunState::kUnknown;
  for (const RunEvent& event : events) {
    if (event.name == "end") state = RunState::kDone;
    if (event.name == "preempted") state = RunState::kPreempted;
    if (event.name == "failure") state = RunState::kFailed;
    if (event.name == "start") state = RunState::kUnknown;
  }
  return state;
}

std::optional<int64_t> RecordedRun::max_steps() const {
  const double steps = number_of(description, "max_steps");
  return is_step(steps) ? std::optional(static_cast<int64_t>(steps)) : std::nullopt;
}

bool holds_a_run(const std::string& folder) {
  return path_exists(path_join(folder, "training.jsonl")) ||
         path_exists(path_join(folder, "run.json"));
}

void check_run_folder(const std::string& folder) {
  if (!path_exists(folder)) throw UserError(cat("no such folder: ", folder));
  if (!is_directory(folder)) throw UserError(cat(folder, " is not a folder"));
  if (holds_a_run(folder)) return;
  throw UserError(cat(folder,
                      " is not the folder of a run: it has neither training.jsonl nor "
                      "run.json; a run's folder is its checkpoint.checkpoint_dir",
                      runs_below(folder)));
}

std::vector<RunEvent> parse_run_events(std::string_view lines, int64_t* num_unread) {
  std::vector<RunEvent> events;
  int64_t num_lost = 0;
  parse_lines(lines, num_lost, [&](const Json& record) {
    RunEvent event;
    event.name = text_of(record, "event");
    event.seconds = seconds_of(text_of(record, "timestamp"));
    const double step = number_of(record, "step");
    if (is_step(step)) event.step = static_cast<int64_t>(step);
    event.fields = record;
    events.push_back(std::move(event));
  });
  if (num_unread != nullptr) *num_unread += num_lost;
  return events;
}

std::vector<RunEvent> read_run_events(const std::string& folder, int64_t* num_unread) {
  return parse_run_events(text_of_file(path_join(folder, "events.jsonl")), num_unread);
}

std::vector<std::string> validation_files(const std::string& folder) {
  std::vector<std::string> files = list_directory(folder);
  std::erase_if(files, [](const std::string& name) { return !set_of_file(name); });
  return files;
}

std::vector<ValidationPoint> read_validations(const std::string& folder, int64_t* num_unread) {
  std::vector<ValidationPoint> points;
  int64_t num_lost = 0;
  for (const std::string& name : validation_files(folder)) {
    const std::string set = *set_of_file(name);
    parse_lines(text_of_file(path_join(folder, name)), num_lost, [&](const Json& record) {
      points.push_back({set, number_of(record, "step"), number_of(record, "val_loss")});
    });
  }
  if (num_unread != nullptr) *num_unread += num_lost;
  return points;
}

Json read_run_description(const std::string& folder) {
  const std::string text = text_of_file(path_join(folder, "run.json"));
  try {
    Json description = Json::parse(text, "run.json");
    return description.is_object() ? description : Json();
  } catch (const InputError&) {
    return {};
  }
}

RecordedRun read_run(const std::string& folder) {
  check_run_folder(folder);
  RecordedRun run;
  run.folder = folder;
  run.name = name_of_folder(folder);
  run.description = read_run_description(folder);
  const std::string training = path_join(folder, "training.jsonl");
  if (path_exists(training)) run.num_unread_lines += add_steps(read_file(training), run.steps);
  run.validations = read_validations(folder, &run.num_unread_lines);
  run.events = read_run_events(folder, &run.num_unread_lines);
  return run;
}

std::vector<std::string> run_names(const std::vector<std::string>& folders) {
  std::vector<std::string> names, all;
  for (const std::string& folder : folders) names.push_back(name_of_folder(folder));
  for (size_t i = 0; i < folders.size(); ++i) {
    all.push_back(std::ranges::count(names, names[i]) > 1 ? folders[i] : names[i]);
  }
  return all;
}

std::vector<RecordedRun> read_runs(const std::vector<std::string>& folders) {
  const std::vector<std::string> names = run_names(folders);
  std::vector<RecordedRun> runs;
  for (size_t i = 0; i < folders.size(); ++i) {
    runs.push_back(read_run(folders[i]));
    runs.back().name = names[i];
  }
  return runs;
}

}  // namespace automodel::report
