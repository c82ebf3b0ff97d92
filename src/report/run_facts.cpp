#include "report/run_facts.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "core/text.h"
#include "report/curve.h"
#include "report/html.h"

namespace automodel::report {

namespace {

/// The text or number at "a.b"; "" when there is none.
std::string at(const Json& json, std::string_view dotted) {
  const Json* node = &json;
  for (const std::string& key : split(dotted, '.')) {
    node = node->find(key);
    if (node == nullptr) return "";
  }
  return node->is_null() ? "" : value_text(*node);
}

double number_at(const Json& json, std::string_view dotted) {
  return parse_double(at(json, dotted)).value_or(std::nan(""));
}

std::string number_text(double value) {
  return std::isfinite(value) ? short_number(value) : "";
}

/// The last value that is finite; NaN when there is none.
double last_of(const std::vector<double>& values) {
  const auto found = std::find_if(values.rbegin(), values.rend(),
                                  [](double value) { return std::isfinite(value); });
  return found == values.rend() ? std::nan("") : *found;
}

double median_of(std::vector<double> values) {
  std::erase_if(values, [](double value) { return !std::isfinite(value); });
  if (values.empty()) return std::nan("");
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

double highest_of(const std::vector<double>& values) {
  const Range range = range_of(values);
  return range.is_empty ? std::nan("") : range.high;
}

std::string best_validation(const RecordedRun& run) {
  const ValidationPoint* best = nullptr;
  for (const ValidationPoint& point : run.validations) {
    if (std::isfinite(point.loss) && (best == nullptr || point.loss < best->loss)) best = &point;
  }
  return best == nullptr ? ""
                         : cat(short_number(best->loss), " (step ", short_number(best->step), ")");
}

std::string steps_text(const RecordedRun& run) {
  if (run.steps.size() == 0) return "none";
  const std::string done = cat(static_cast<int64_t>(run.steps.step.back()) + 1);
  const auto most = run.max_steps();
  return most ? cat(done, " of ", *most) : done;
}

std::string mesh_text(const Json& description) {
  const Json* mesh = description.find("mesh");
  if (mesh == nullptr || !mesh->is_object()) return "";
  std::vector<std::string> axes;
  for (const auto& [axis, size] : mesh->as_object()) {
    if (size.is_int() && size.as_int() > 1) axes.push_back(cat(axis, " ", size.as_int()));
  }
  return axes.empty() ? "" : cat(" (", join(axes, ", "), ")");
}

std::string machine_text(const Json& description) {
  std::vector<std::string> parts;
  for (const char* key : {"machine.host", "machine.cpu"}) {
    if (const std::string text = at(description, key); !text.empty()) parts.push_back(text);
  }
  const double cores = number_at(description, "machine.cores");
  if (std::isfinite(cores)) parts.push_back(cat(cores, " cores"));
  const double bytes = number_at(description, "machine.memory_bytes");
  if (bytes > 0) parts.push_back(format_bytes(static_cast<uint64_t>(bytes)));
  return join(parts, ", ");
}

std::string command_text(const Json& description) {
  const Json* command = description.find("command");
  if (command == nullptr || !command->is_array()) return "";
  std::vector<std::string> words;
  for (const Json& word : command->as_array()) words.push_back(value_text(word));
  return join(words, " ");
}

std::string parameters_text(const Json& description) {
  const double all = number_at(description, "model.num_parameters");
  const double trained = number_at(description, "model.num_trained_parameters");
  if (!std::isfinite(all)) return "";
  return trained == all ? short_number(all)
                        : cat(short_number(all), ", ", short_number(trained), " trained");
}

double seconds_in(const RunEvent& event) {
  const double seconds = number_at(event.fields, "seconds");
  return std::isfinite(seconds) ? std::max(seconds, 0.0) : 0.0;
}

/// The time between a process's first and last sign of life, over all processes.
double time_of_processes(const RecordedRun& run) {
  std::vector<double> all = run.steps.seconds;
  std::vector<double> starts;
  for (const RunEvent& event : run.events) {
    all.push_back(event.seconds);
    if (event.name == "start" && std::isfinite(event.seconds)) starts.push_back(event.seconds);
  }
  std::erase_if(all, [](double time) { return !std::isfinite(time); });
  std::sort(all.begin(), all.end());
  std::sort(starts.begin(), starts.end());
  double sum = 0;
  for (size_t i = 0; i < starts.size(); ++i) {
    const auto end =
        i + 1 < starts.size() ? std::lower_bound(all.begin(), all.end(), starts[i + 1]) : all.end();
    if (end != all.begin()) sum += std::max(0.0, *(end - 1) - starts[i]);
  }
  return sum;
}

}  // namespace

std::string value_text(const Json& value) {
  return value.is_string() ? value.as_string() : value.dump();
}

std::string state_text(const RecordedRun& run) {
  const RunEvent* last = nullptr;
  for (const RunEvent& event : run.events) {
    const bool is_end = event.name == "end" || event.name == "preempted" || event.name == "failure";
    if (is_end) last = &event;
  }
  switch (run.state()) {
    case RunState::kDone:
      return "done";
    case RunState::kPreempted:
      return cat("stopped by ", at(last->fields, "signal"), " after saving");
    case RunState::kFailed:
      return cat("failed: ", at(last->fields, "text"));
    case RunState::kUnknown:
      break;
  }
  return run.events.empty() ? "not recorded" : "running, or killed";
}

std::vector<Fact> facts_of(const RecordedRun& run) {
  const Json& json = run.description;
  const StepTable& steps = run.steps;
  const std::string ranks = at(json, "num_ranks");
  return {{"state", state_text(run)},
          {"steps", steps_text(run)},
          {"tokens", steps.tokens.empty() ? "" : short_number(steps.tokens.back())},
          {"last loss", number_text(last_of(steps.of(Metric::kLoss)))},
          {"best validation loss", best_validation(run)},
          {"tokens/s (median)", number_text(median_of(steps.of(Metric::kTokensPerSecond)))},
          {"memory (most), GiB", number_text(highest_of(steps.of(Metric::kMemory)))},
          {"started", replace_all(at(json, "started").substr(0, 19), "T", " ")},
          {"model", at(json, "model.architecture")},
          {"parameters", parameters_text(json)},
          {"ranks", ranks.empty() ? "" : cat(ranks, mesh_text(json))},
          {"distributed", at(json, "distributed")},
          {"optimizer", at(json, "optimizer")},
          {"device", at(json, "device")},
          {"machine", machine_text(json)},
          {"version", at(json, "version")},
          {"command", command_text(json)},
          {"folder", run.folder}};
}

std::vector<TimeShare> time_shares(const RecordedRun& run) {
  if (run.events.empty()) return {};
  std::vector<TimeShare> shares = {
      {"steps"}, {"validation"}, {"saving"}, {"loading"}, {"resuming"}};
  const std::pair<std::string_view, size_t> kinds[] = {
      {"validation", 1}, {"save", 2}, {"load", 3}, {"resume", 4}, {"rollback", 4}};
  double others = 0;
  for (const RunEvent& event : run.events) {
    for (const auto& [name, share] : kinds) {
      if (event.name != name) continue;
      // Training goes on beside a save in the background, but for what it waits.
      const bool is_beside = event.fields.find("waited_seconds") != nullptr;
      const double seconds =
          is_beside ? number_at(event.fields, "waited_seconds") : seconds_in(event);
      shares[share].seconds += seconds;
      others += seconds;
    }
  }
  shares[0].seconds = std::max(0.0, time_of_processes(run) - others);
  return shares;
}

std::string detail_of(const RunEvent& event) {
  static constexpr std::string_view kShown[] = {"event", "timestamp", "step", "epoch"};
  std::vector<std::string> parts;
  if (!event.fields.is_object()) return "";
  for (const auto& [key, value] : event.fields.as_object()) {
    if (std::ranges::find(kShown, key) != std::end(kShown)) continue;
    if (key == "text") {
      parts.push_back(value_text(value));
    } else if (key == "seconds") {
      parts.push_back(value.is_number() ? format_duration(value.as_double()) : "");
    } else {
      parts.push_back(cat(key, " ", value_text(value)));
    }
  }
  return join(parts, ", ");
}

std::vector<Difference> differences(const std::vector<RecordedRun>& runs) {
  std::vector<std::string> keys;
  std::set<std::string> seen;
  for (const RecordedRun& run : runs) {
    const Json* values = run.description.find("values");
    if (values == nullptr || !values->is_object()) continue;
    for (const auto& [key, value] : values->as_object()) {
      if (seen.insert(key).second) keys.push_back(key);
    }
  }
  std::vector<Difference> all;
  for (const std::string& key : keys) {
    Difference difference{key, {}};
    for (const RecordedRun& run : runs) {
      const Json* values = run.description.find("values");
      const Json* entry = values == nullptr ? nullptr : values->find(key);
      const Json* value = entry == nullptr ? nullptr : entry->find("value");
      difference.values.push_back(value == nullptr ? "" : value_text(*value));
    }
    const auto& found = difference.values;
    if (std::ranges::adjacent_find(found, std::not_equal_to<>()) != found.end()) {
      all.push_back(std::move(difference));
    }
  }
  return all;
}

}  // namespace automodel::report
