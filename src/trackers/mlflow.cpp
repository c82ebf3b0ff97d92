#include "trackers/mlflow.h"

#include <algorithm>
#include <atomic>
#include <cctype>
#include <chrono>
#include <cmath>
#include <set>

#include "core/error.h"
#include "core/file.h"
#include "core/utf8.h"
#include "trackers/mlflow_api.h"
#include "trackers/recipe_values.h"

namespace automodel::trackers {

namespace {

using Outcome = Delivery::Outcome;

// MLflow's limits of one request and of its texts.
constexpr size_t kMostMetrics = 1000;
constexpr size_t kMostParameters = 100;
constexpr size_t kLongestName = 250;
constexpr size_t kLongestValue = 6000;

int64_t unix_milliseconds() {
  return std::chrono::duration_cast<std::chrono::milliseconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

/// A name of the characters that MLflow takes.
std::string allowed_name(std::string name) {
  for (char& c : name) {
    const bool is_allowed = std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' ||
                            c == '-' || c == '.' || c == ' ' || c == '/';
    if (!is_allowed) c = '_';
  }
  return name.substr(0, kLongestName);
}

/// A real number as protobuf's JSON has it.
Json number(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "Infinity" : "-Infinity";
  return value;
}

Json pair_of(const std::string& key, const std::string& value) {
  Json pair = Json::object();
  pair["key"] = key;
  pair["value"] = value;
  return pair;
}

const char* status_of(RunEnd end) {
  switch (end) {
    case RunEnd::kFinished:
      return "FINISHED";
    case RunEnd::kFailed:
      return "FAILED";
    case RunEnd::kStopped:
      return "KILLED";
  }
  return "";
}

/// A text at a path of keys; "" when there is none.
std::string text_at(const Json& object, std::initializer_list<const char*> keys) {
  const Json* value = &object;
  for (const char* key : keys) {
    value = value->find(key);
    if (value == nullptr) return "";
  }
  return value->is_string() ? value->as_string() : "";
}

class Mlflow final : public Tracker {
 public:
  Mlflow(MlflowRun run, std::shared_ptr<Reporter> reporter)
      : run_(std::move(run)), reporter_(std::move(reporter)), api_(run_.settings, &is_cancelled_) {}

  const char* name() const override { return "MLflow"; }
  Delivery start() override;
  Delivery deliver(Records records) override;
  Delivery finish(RunEnd end) override;
  void cancel() override { is_cancelled_ = true; }

 private:
  ServerAnswer find_experiment();
  ServerAnswer go_on();
  ServerAnswer make_run();
  /// Tags and description of the recipe; of a run that was made before, they become these.
  ServerAnswer send_tags();
  ServerAnswer send_parameters();
  void keep_run_id();
  std::string file() const { return path_join(run_.folder, kMlflowRunFile); }
  std::string kept_run_id() const;
  /// An answer of the server's that lacks what it should have.
  ServerAnswer nonsense(const char* what) const;

  MlflowRun run_;
  std::shared_ptr<Reporter> reporter_;
  std::atomic<bool> is_cancelled_{false};
  MlflowApi api_;
  // how far start() has come
  bool has_looked_ = false;  // for a run to go on in
  std::string experiment_id_;
  std::string run_id_;
  bool has_sent_tags_ = false;
  size_t num_parameters_ = 0;  // sent
  size_t num_values_ = 0;      // sent of the record that is sent in parts
};

ServerAnswer Mlflow::nonsense(const char* what) const {
  return {Outcome::kLater, nullptr, "",
          cat(run_.settings.tracking_uri, " does not answer as an MLflow server: ", what)};
}

std::string Mlflow::kept_run_id() const {
  if (!run_.settings.run_id.empty()) return run_.settings.run_id;
  if (!run_.is_resumed || !run_.config.resume || !path_exists(file())) return "";
  try {
    return std::string(trim(read_file(file())));
  } catch (const InputError& error) {
    reporter_->warning(cat("MLflow: ", error.what(), "; a new run is made"));
    return "";
  }
}

/// Goes on in the run that was begun, if the server has it.
ServerAnswer Mlflow::go_on() {
  const std::string kept = kept_run_id();
  if (kept.empty()) return {};
  Json body = Json::object();
  body["run_id"] = kept;
  body["status"] = "RUNNING";
  ServerAnswer answer = api_.post("runs/update", body);
  if (answer.is_done()) {
    run_id_ = kept;
    if (run_.settings.run_id.empty()) {
      num_parameters_ = run_.parameters.size();  // they are there, and may not change
    } else {
      keep_run_id();  // somebody else has made the run
    }
    reporter_->info(cat("MLflow: going on in run ", run_id_, " at ", run_.settings.tracking_uri));
  } else if (answer.code == "RESOURCE_DOES_NOT_EXIST" || answer.code == "INVALID_PARAMETER_VALUE" ||
             answer.code == "INVALID_STATE") {
    reporter_->warning(
        cat("MLflow: cannot go on in run ", kept, ": ", answer.problem, "; a new run is made"));
    return {};
  }
  return answer;
}

ServerAnswer Mlflow::find_experiment() {
  const std::string& name = run_.config.experiment_name;
  ServerAnswer answer = api_.get("experiments/get-by-name", {{"experiment_name", name}});
  if (answer.code != "RESOURCE_DOES_NOT_EXIST") {
    if (!answer.is_done()) return answer;
    if (text_at(answer.body, {"experiment", "lifecycle_stage"}) == "deleted") {
      return {Outcome::kRefused, nullptr, "",
              cat("the experiment '", name, "' of ", run_.settings.tracking_uri,
                  " is deleted: restore it, or set mlflow.experiment_name")};
    }
    experiment_id_ = text_at(answer.body, {"experiment", "experiment_id"});
    return experiment_id_.empty() ? nonsense("no experiment_id") : std::move(answer);
  }
  Json body = Json::object();
  body["name"] = name;
  if (run_.config.artifact_location) body["artifact_location"] = *run_.config.artifact_location;
  answer = api_.post("experiments/create", body);
  if (answer.code == "RESOURCE_ALREADY_EXISTS") {  // another run was faster
    answer.outcome = Outcome::kLater;
  }
  if (!answer.is_done()) return answer;
  experiment_id_ = text_at(answer.body, {"experiment_id"});
  return experiment_id_.empty() ? nonsense("no experiment_id") : std::move(answer);
}

/// The tags of a section, its description among them.
Json tags_of(const MlflowConfig& config) {
  Json tags = Json::array();
  for (const auto& [key, value] : config.tags) tags.push_back(pair_of(key, value));
  if (config.description) tags.push_back(pair_of("mlflow.note.content", *config.description));
  return tags;
}

ServerAnswer Mlflow::make_run() {
  Json tags = tags_of(run_.config);
  tags.push_back(pair_of("mlflow.source.name", run_.source));
  tags.push_back(pair_of("mlflow.source.type", "LOCAL"));
  if (!run_.settings.user_name.empty()) {
    tags.push_back(pair_of("mlflow.user", run_.settings.user_name));
  }
  Json body = Json::object();
  body["experiment_id"] = experiment_id_;
  body["start_time"] = unix_milliseconds();
  if (!run_.config.run_name.empty()) body["run_name"] = run_.config.run_name;
  body["tags"] = std::move(tags);
  ServerAnswer answer = api_.post("runs/create", body);
  if (!answer.is_done()) return answer;
  run_id_ = text_at(answer.body, {"run", "info", "run_id"});
  if (run_id_.empty()) return nonsense("no run_id");
  has_sent_tags_ = true;
  keep_run_id();
  reporter_->info(cat("MLflow: run ", run_id_, " of experiment '", run_.config.experiment_name,
                      "' at ", run_.settings.tracking_uri));
  return answer;
}

void Mlflow::keep_run_id() {
  try {
    write_file_atomic(file(), run_id_ + "\n");
  } catch (const InputError& error) {
    reporter_->warning(
        cat("MLflow: a run that continues this one will not find its run: ", error.what()));
  }
}

ServerAnswer Mlflow::send_tags() {
  Json tags = tags_of(run_.config);
  if (has_sent_tags_ || tags.size() == 0) return {};
  Json body = Json::object();
  body["run_id"] = run_id_;
  body["tags"] = std::move(tags);
  const ServerAnswer answer = api_.post("runs/log-batch", body);
  if (answer.outcome == Outcome::kLater) return answer;
  if (!answer.is_done()) {
    reporter_->warning(cat("MLflow: tags of the recipe are not shown: ", answer.problem));
  }
  has_sent_tags_ = true;
  return {};
}

ServerAnswer Mlflow::send_parameters() {
  while (num_parameters_ < run_.parameters.size()) {
    const size_t end = std::min(num_parameters_ + kMostParameters, run_.parameters.size());
    Json list = Json::array();
    for (size_t i = num_parameters_; i < end; ++i) {
      const auto& [key, value] = run_.parameters[i];
      list.push_back(pair_of(key, value));
    }
    Json body = Json::object();
    body["run_id"] = run_id_;
    body["params"] = std::move(list);
    const ServerAnswer answer = api_.post("runs/log-batch", body);
    if (answer.outcome == Outcome::kLater) return answer;
    if (!answer.is_done()) {
      reporter_->warning(cat("MLflow: parameters of the recipe are not shown: ", answer.problem));
    }
    num_parameters_ = end;
  }
  return {};
}

Delivery Mlflow::start() {
  if (run_id_.empty() && !has_looked_) {
    const ServerAnswer answer = go_on();
    if (!answer.is_done()) return answer.delivery();
    has_looked_ = true;
  }
  if (run_id_.empty() && experiment_id_.empty()) {
    const ServerAnswer answer = find_experiment();
    if (!answer.is_done()) return answer.delivery();
  }
  if (run_id_.empty()) {
    const ServerAnswer answer = make_run();
    if (!answer.is_done()) return answer.delivery();
  }
  if (const ServerAnswer answer = send_tags(); !answer.is_done()) return answer.delivery();
  return send_parameters().delivery();
}

Delivery Mlflow::deliver(Records records) {
  Json metrics = Json::array();
  size_t num_whole = 0;
  size_t first = num_values_;  // of the first record
  for (const auto& record : records) {
    const size_t num_left = record->values.size() - first;
    const size_t num_taken = std::min(num_left, kMostMetrics - metrics.size());
    for (size_t i = first; i < first + num_taken; ++i) {
      const auto& [name, value] = record->values[i];
      Json metric = Json::object();
      metric["key"] = mlflow_metric(*record, name);
      metric["value"] = number(value);
      metric["timestamp"] = static_cast<int64_t>(record->unix_seconds * 1000);
      metric["step"] = record->step;
      metrics.push_back(std::move(metric));
    }
    if (num_taken < num_left) {
      first += num_taken;
      break;
    }
    first = 0;
    ++num_whole;
  }
  Json body = Json::object();
  body["run_id"] = run_id_;
  body["metrics"] = std::move(metrics);
  const ServerAnswer answer = api_.post("runs/log-batch", body);
  if (answer.is_done()) {
    num_values_ = first;
    return {Outcome::kDone, num_whole, ""};
  }
  if (answer.outcome == Outcome::kLater) return answer.delivery();
  num_values_ = 0;
  return {Outcome::kRefused, std::max<size_t>(num_whole, 1), answer.problem};
}

Delivery Mlflow::finish(RunEnd end) {
  Json body = Json::object();
  body["run_id"] = run_id_;
  body["status"] = status_of(end);
  body["end_time"] = unix_milliseconds();
  return api_.post("runs/update", body).delivery();
}

/// A value as a parameter's text, cut in front of a character where it is too long.
std::string parameter_text(const Json& value) {
  std::string text = value.is_string() ? value.as_string() : value.dump();
  text.resize(num_whole_bytes(text, kLongestValue));
  return text;
}

}  // namespace

std::string mlflow_metric(const Record& record, const std::string& name) {
  return allowed_name(metric_name(record, name));
}

std::vector<std::pair<std::string, std::string>> mlflow_parameters(const Json& values,
                                                                   std::optional<int64_t> depth) {
  Json texts = Json::object();
  for (auto& [parts, found] : written_values(values)) {
    const std::string key = join(parts, ".");
    const Json& value = *found;
    const size_t most = depth ? static_cast<size_t>(*depth) + 1 : parts.size();
    if (parts.size() <= most) {
      texts[key] = value;
      continue;
    }
    const std::vector<std::string> rest(parts.begin() + static_cast<std::ptrdiff_t>(most),
                                        parts.end());
    parts.resize(most);
    Json& parent = texts[join(parts, ".")];
    if (!parent.is_object()) parent = Json::object();
    put_below(parent, rest, value);
  }
  std::vector<std::pair<std::string, std::string>> parameters;
  std::set<std::string> names;
  for (const auto& [key, value] : texts.as_object()) {
    const std::string name = allowed_name(key);
    if (names.insert(name).second) parameters.emplace_back(name, parameter_text(value));
  }
  return parameters;
}

std::unique_ptr<Tracker> make_mlflow(MlflowRun run, std::shared_ptr<Reporter> reporter) {
  return std::make_unique<Mlflow>(std::move(run), std::move(reporter));
}

}  // namespace automodel::trackers
