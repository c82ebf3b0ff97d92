#include "report/facts/run_facts.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "core/text.h"
#include "core/utf8.h"
#include "report/facts/html.h"
#include "report/records/curve.h"

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

std::string number_text(double value) {
  return std::isfinite(value) ? short_number(value) : "";
}

std::string step_number(double step) {
  return is_step(step) ? cat(static_cast<int64_t>(step)) : "?";
}

/// "2.31", "nan (last finite 7.625, step 1)"; "" when no step was recorded.
std::string last_loss_text(const StepTable& steps) {
  const std::vector<double>& losses = steps.of(Metric::kLoss);
  if (losses.empty()) return "";
  const std::string last = short_number(losses.back());
  const auto found = std::find_if(losses.rbegin(), losses.rend(),
                                  [](double value) { return std::isfinite(value); });
  if (found == losses.rbegin() || found == losses.rend()) return last;
  const double step = steps.step[static_cast<size_t>(losses.rend() - found) - 1];
  return cat(last, " (last finite ", short_number(*found), ", step ", step_number(step), ")");
}

/// When a run was started first and, where that was another time, last: as run.json tells it.
std::pair<std::string, std::string> start_times(const RecordedRun& run) {
  const std::string last = replace_all(at(run.description, "started").substr(0, 19), "T", " ");
  for (const RunEvent& event : run.events) {
    const std::string first = event.name == "start" ? time_text(event.seconds) : "";
    if (!first.empty() && first < last) return {first, last};
    if (event.name == "start") break;
  }
  return {last, ""};
}

/// "2.31 (step 59)"; of several sets with their names in front.
std::string best_text(const RecordedRun& run) {
  const std::vector<BestValidation> all = best_validations(run);
  std::vector<std::string> texts;
  for (const BestValidation& best : all) {
    const bool has_name = all.size() > 1 || best.set != "default";
    texts.push_back(cat(has_name ? best.set + " " : "", short_number(best.loss), " (step ",
                        step_number(best.step), ")"));
  }
  return join(texts, ", ");
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

/// "FSDP2Config": its options are among the recipe's values.
std::string strategy_text(const Json& description) {
  const std::string text = at(description, "distributed");
  return text.substr(0, text.find('('));
}

std::string machine_text(const Json& description) {
  std::vector<std::string> parts;
  for (const char* key : {"machine.host", "machine.cpu"}) {
    if (const std::string text = at(description, key); !text.empty()) parts.push_back(text);
  }
  const double cores = number_at(description, "machine.cores");
  if (std::isfinite(cores)) parts.push_back(cat(cores, " cores"));
  const double bytes = number_at(description, "machine.memory_bytes");
  if (bytes > 0 && !bytes_text(bytes).empty()) parts.push_back(bytes_text(bytes));
  return join(parts, ", ");
}

std::string command_text(const Json& description) {
  const Json* command = description.find("command");
  if (command == nullptr || !command->is_array()) return "";
  std::vector<std::string> words;
  for (const Json& word : command->as_array()) words.push_back(shell_word(value_text(word)));
  return join(words, " ");
}

std::string parameters_text(const Json& description) {
  const double all = number_at(description, "model.num_parameters");
  const double trained = number_at(description, "model.num_trained_parameters");
  if (!std::isfinite(all)) return "";
  const bool is_whole = trained == all || !std::isfinite(trained);
  return is_whole ? short_number(all)
                  : cat(short_number(all), ", ", short_number(trained), " trained");
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

/// A list or a table in a few words; others whole.
std::string field_text(const std::string& key, const Json& value) {
  constexpr size_t kMost = 300;
  if (key == "peak_bytes" && value.is_number()) {
    const std::string peak = bytes_text(std::max(value.as_double(), 0.0));
    return peak.empty() ? "" : cat("peak ", peak);
  }
  const bool is_extreme = key == "most" || key == "least";
  if (is_extreme && value.is_number()) {
    return cat(key, " loaded expert ", format_fixed(value.as_double(), 2), " of an even share");
  }
  if (value.is_array() || value.is_object()) return "";
  return cat(key, " ", shortened(value_text(value), kMost));
}

}  // namespace

double number_at(const Json& json, std::string_view dotted) {
  return parse_double(at(json, dotted)).value_or(std::nan(""));
}

double median_of(std::vector<double> values) {
  std::erase_if(values, [](double value) { return !std::isfinite(value); });
  if (values.empty()) return std::nan("");
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  if (values.size() % 2 == 1) return *middle;
  return 0.5 * (*std::max_element(values.begin(), middle) + *middle);
}

double highest_of(const std::vector<double>& values) {
  const Range range = range_of(values);
  return range.is_empty ? std::nan("") : range.high;
}

std::vector<std::string> changes_of(const RunEvent& start) {
  constexpr size_t kMost = 100;
  std::vector<std::string> changes;
  const Json* changed = start.fields.find("changed");
  if (changed == nullptr || !changed->is_array()) return changes;
  for (const Json& change : changed->as_array()) {
    const Json *from = change.find("from"), *to = change.find("to");
    const auto text = [](const Json* value) {
      return value == nullptr || value->is_null() ? std::string("none")
                                                  : shortened(value_text(*value), kMost);
    };
    changes.push_back(cat(text_of(change, "key"), " ", text(from), " \xE2\x86\x92 ", text(to)));
  }
  return changes;
}

std::string format_note(const Json& description) {
  constexpr int64_t kKnown = 1;
  const Json* format = description.find("format");
  if (format == nullptr) return "";
  const std::string version = shortened(text_of(description, "version"), 40);
  const std::string writer = version.empty() ? "another automodel" : cat("automodel ", version);
  if (!format->is_number()) {
    return cat("written by ", writer,
               ", in a format that is no number: read as far as it is known");
  }
  if (format->as_double() <= kKnown) return "";
  return cat("written by ", writer, ", a newer format: read as far as it is known");
}

std::optional<Alert> latest_alert(const EventLog& events) {
  constexpr std::string_view kAlerts[] = {"advice",   "failure",    "skipped_update",
                                          "rollback", "non_finite", "early_stop"};
  std::optional<Alert> alert;
  for (const RunEvent& event : events) {
    if (event.name == "start") alert.reset();
    if (std::ranges::find(kAlerts, event.name) == std::end(kAlerts)) continue;
    alert =
        Alert{event.name, cat(event.step ? cat("step ", *event.step, ", ") : "", detail_of(event)),
              event.seconds};
  }
  return alert;
}

std::vector<BestValidation> best_validations(const RecordedRun& run) {
  std::map<std::string, BestValidation> best;
  for (const ValidationPoint& point : run.validations.losses) {
    if (!std::isfinite(point.value)) continue;
    const auto [found, is_new] = best.try_emplace(point.set);
    if (is_new || point.value < found->second.loss) {
      found->second = {point.set, point.value, point.step};
    }
  }
  std::vector<BestValidation> all;
  for (auto& [set, one] : best) all.push_back(std::move(one));
  return all;
}

std::string bytes_text(double bytes) {
  constexpr double kMost = 1e18;
  return bytes >= 0 && bytes < kMost ? format_bytes(static_cast<uint64_t>(bytes)) : "";
}

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
    case RunState::kInterrupted:
      return "stopped by Ctrl+C";
    case RunState::kFailed:
      return cat("failed: ", at(last->fields, "text"));
    case RunState::kUnknown:
      break;
  }
  if (run.events.empty()) return "not recorded";
  if (run.lock == LockState::kFree) return "ended without saying how: was it killed?";
  return run.lock == LockState::kHeld ? "running" : "running, or killed";
}

std::vector<Fact> facts_of(const RecordedRun& run) {
  const Json& json = run.description;
  const StepTable& steps = run.steps;
  const std::string ranks = at(json, "num_ranks");
  const std::vector<double>* mfu = steps.extra("mfu");
  const auto [started, continued] = start_times(run);
  return {{"state", state_text(run)},
          {"note", format_note(json)},
          {"steps", steps_text(run)},
          {"tokens", steps.tokens.empty() ? "" : short_number(steps.tokens.back())},
          {"last loss", last_loss_text(steps)},
          {"best validation loss", best_text(run)},
          {"tokens/s (median)", number_text(median_of(steps.of(Metric::kTokensPerSecond)))},
          {"MFU (median), %", mfu == nullptr ? "" : number_text(median_of(*mfu))},
          {"memory (most), GiB", number_text(highest_of(steps.of(Metric::kMemory)))},
          {"started", started},
          {"continued", continued},
          {"model", at(json, "model.architecture")},
          {"parameters", parameters_text(json)},
          {"ranks", ranks.empty() ? "" : cat(ranks, mesh_text(json))},
          {"distributed", strategy_text(json)},
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
  for (const auto& [name, share] : kinds) {
    const auto total = run.events.totals().find(name);
    if (total == run.events.totals().end()) continue;
    shares[share].seconds += total->second.seconds;
    others += total->second.seconds;
  }
  shares[0].seconds = std::max(0.0, time_of_processes(run) - others);
  return shares;
}

std::string detail_of(const RunEvent& event) {
  static constexpr std::string_view kShown[] = {"event", "timestamp", "step", "epoch"};
  constexpr size_t kMostChanges = 8;
  std::vector<std::string> parts;
  if (!event.fields.is_object()) return "";
  for (const auto& [key, value] : event.fields.as_object()) {
    if (std::ranges::find(kShown, key) != std::end(kShown)) continue;
    if (key == "text") {
      parts.push_back(value_text(value));
    } else if (key == "seconds") {
      if (value.is_number()) parts.push_back(format_duration(value.as_double()));
    } else if (std::string text = field_text(key, value); !text.empty()) {
      parts.push_back(std::move(text));
    }
  }
  const std::vector<std::string> changes = changes_of(event);
  if (!changes.empty()) parts.push_back(cat("changed: ", join_first(changes, kMostChanges)));
  return join(parts, ", ");
}

std::vector<Difference> differences(const RunViews& runs) {
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
