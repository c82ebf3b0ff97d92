#include "serve/run_metrics.h"

#include <prometheus/text_serializer.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <vector>

#include "core/text.h"
#include "serve/access.h"

namespace automodel::serve {

namespace {

using report::Metric;

/// One number of every run.
struct Gauge {
  const char* name;
  const char* help;
  std::function<std::optional<double>(const RunSummary&)> value;
};

std::optional<double> number(const std::optional<int64_t>& count) {
  return count ? std::optional(static_cast<double>(*count)) : std::nullopt;
}

/// A metric of the last step; one that a run does not record has no sample.
std::function<std::optional<double>(const RunSummary&)> of_last_step(Metric metric) {
  return [metric](const RunSummary& run) -> std::optional<double> {
    const bool is_recorded = run.is_recorded[static_cast<size_t>(metric)];
    return run.step && is_recorded ? std::optional(run.last_of(metric)) : std::nullopt;
  };
}

const std::vector<Gauge>& gauges() {
  static const std::vector<Gauge> all = {
      {"trainer_step", "Last step, counted from 0.",
       [](const RunSummary& run) { return number(run.step); }},
      {"trainer_max_steps", "Steps of the whole run.",
       [](const RunSummary& run) { return number(run.max_steps); }},
      {"trainer_loss", "Training loss of the last step.", of_last_step(Metric::kLoss)},
      {"trainer_grad_norm", "Gradient norm of the last step.", of_last_step(Metric::kGradNorm)},
      {"trainer_learning_rate", "Learning rate of the last step.", of_last_step(Metric::kLr)},
      {"trainer_throughput_tokens_per_sec", "Tokens a second of the last step, over all ranks.",
       of_last_step(Metric::kTokensPerSecond)},
      {"trainer_peak_memory_gib", "Peak memory in GiB, as the last step tells it.",
       of_last_step(Metric::kMemory)},
      {"trainer_mfu_percent", "Model FLOPs utilization of the last step, in percent.",
       [](const RunSummary& run) -> std::optional<double> {
         return std::isfinite(run.mfu_percent) ? std::optional(run.mfu_percent) : std::nullopt;
       }},
      {"trainer_last_step_timestamp_seconds", "When the last step ended, in seconds since 1970.",
       [](const RunSummary& run) -> std::optional<double> {
         return std::isfinite(run.step_seconds) ? std::optional(run.step_seconds) : std::nullopt;
       }}};
  return all;
}

/// A run and the label of its samples.
struct LabelledRun {
  const RunSummary& run;
  std::string label;
};

/// A label that no two of the runs share: the run's path, which the list shows too. The folder
/// itself, whose path is "", and paths that are not UTF-8 are shown by names that others may have.
std::string label_of(const RunSummary& run, const std::vector<RunSummary>& runs) {
  if (run.id.empty()) {
    const bool is_path_of_another = std::ranges::any_of(
        runs, [&](const RunSummary& other) { return &other != &run && other.id == run.name; });
    return is_path_of_another ? "." : run.name;
  }
  // No path begins so.
  return run.name == run.id ? run.name : cat("./", percent_encoded(run.id));
}

std::vector<LabelledRun> labelled(const std::vector<RunSummary>& runs) {
  std::vector<LabelledRun> all;
  for (const RunSummary& run : runs) all.push_back({run, label_of(run, runs)});
  return all;
}

prometheus::ClientMetric sample(const LabelledRun& run, double value) {
  prometheus::ClientMetric metric;
  metric.label = {{"run", run.label}};
  metric.gauge.value = value;
  return metric;
}

/// One for what a run is doing, 0 for what it is not.
prometheus::MetricFamily status_family(const std::vector<LabelledRun>& runs) {
  prometheus::MetricFamily family{
      "trainer_run_status", "1 for what the run is doing.", prometheus::MetricType::Gauge, {}};
  for (const LabelledRun& labelled : runs) {
    for (const RunStatus status : kStatuses) {
      family.metric.push_back(sample(labelled, labelled.run.status == status ? 1 : 0));
      family.metric.back().label.push_back({"status", status_name(status)});
    }
  }
  return family;
}

using Value = nlohmann::ordered_json;

Value finite(double value) {
  return std::isfinite(value) ? Value(value) : Value(nullptr);
}

Value whole(const std::optional<int64_t>& value) {
  return value ? Value(*value) : Value(nullptr);
}

Value run_value(const RunSummary& run) {
  Value value = {{"name", run.name},
                 {"path", cat("runs/", percent_encoded(run.id))},
                 {"status", status_name(run.status)},
                 {"detail", run.detail},
                 {"task", run.task},
                 {"model", run.model},
                 {"step", whole(run.step)},
                 {"max_steps", whole(run.max_steps)}};
  for (const Metric metric : report::kMetrics) {
    value[std::string(report::metric_key(metric))] = finite(run.last_of(metric));
  }
  value["mfu"] = finite(run.mfu_percent);
  value["seconds_left"] = finite(run.seconds_left);
  value["alert"] = run.alert ? Value{{"event", run.alert->event},
                                     {"text", run.alert->text},
                                     {"time", finite(run.alert->seconds)}}
                             : Value(nullptr);
  value["step_time"] = finite(run.step_seconds);
  value["written_time"] = finite(run.written_seconds);
  return value;
}

}  // namespace

std::string metrics_text(const RunList& list) {
  const std::vector<LabelledRun> runs = labelled(list.runs);
  std::vector<prometheus::MetricFamily> families;
  for (const Gauge& gauge : gauges()) {
    prometheus::MetricFamily family{gauge.name, gauge.help, prometheus::MetricType::Gauge, {}};
    for (const LabelledRun& run : runs) {
      if (const auto value = gauge.value(run.run)) family.metric.push_back(sample(run, *value));
    }
    families.push_back(std::move(family));
  }
  families.push_back(status_family(runs));
  return prometheus::TextSerializer().Serialize(families);
}

std::string runs_json(const RunList& list) {
  Value runs = Value::array();
  for (const RunSummary& run : list.runs) runs.push_back(run_value(run));
  const Value all = {{"folder", list.root_name},
                     {"time", list.now},
                     {"num_left_out", list.num_linked},
                     {"is_complete", !list.has_reached_limit},
                     {"runs", std::move(runs)}};
  // Texts are UTF-8 but for bytes of a run.json that is not.
  return all.dump(-1, ' ', false, Value::error_handler_t::replace) + "\n";
}

}  // namespace automodel::serve
