#include "trackers/wandb.h"

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "core/error.h"
#include "core/process.h"
#include "core/timestamp.h"
#include "trackers/wandb_api.h"
#include "trackers/wandb_rows.h"
#include "trackers/wandb_run_id.h"

namespace automodel::trackers {

namespace {

using Outcome = Delivery::Outcome;

/// The server takes a run for dead that says nothing for minutes.
constexpr double kHeartbeatSeconds = 30;

/// A text, or null for "".
Json text_or_null(const std::string& text) {
  return text.empty() ? Json(nullptr) : Json(text);
}

/// The object that a text of an object holds; an empty one for anything else.
Json object_in_text(const Json& object, const char* key) {
  try {
    Json value = Json::parse(text_of(object, key), "answer");
    if (value.is_object()) return value;
  } catch (const InputError&) {
    // An old server, or a new one: as if it were not said.
  }
  return Json::object();
}

/// The last row that a run has, of a list of texts in a text.
Json last_row(const Json& bucket) {
  try {
    const Json tail = Json::parse(text_of(bucket, "historyTail"), "answer");
    if (tail.is_array() && !tail.as_array().empty() && tail.as_array().back().is_string()) {
      return Json::parse(tail.as_array().back().as_string(), "answer");
    }
  } catch (const InputError&) {
    // As if there were none.
  }
  return nullptr;
}

/// A number of an object that counts or measures something; nothing for anything else.
std::optional<double> number_in(const Json& object, const char* key) {
  constexpr double kMost = 1e15;
  const Json* value = object.is_object() ? object.find(key) : nullptr;
  if (value == nullptr || !value->is_number()) return std::nullopt;
  const double number = value->as_double();
  return number >= 0 && number <= kMost ? std::optional(number) : std::nullopt;
}

/// Lines of a file from its line `offset` on.
Json lines(int64_t offset, Json content) {
  Json file = Json::object();
  file["offset"] = offset;
  file["content"] = std::move(content);
  return file;
}

class Wandb final : public Tracker {
 public:
  Wandb(WandbRun run, std::shared_ptr<Reporter> reporter)
      : run_(std::move(run)),
        reporter_(std::move(reporter)),
        api_(run_.settings, &is_cancelled_),
        id_(wandb_run_id(run_, *reporter_)),
        rows_(unix_seconds()) {}

  const char* name() const override { return "W&B"; }
  Delivery start() override;
  Delivery deliver(Records records) override;
  Delivery finish(RunEnd end) override;
  double idle_seconds() const override { return kHeartbeatSeconds; }
  void idle() override { send(Json::object()); }
  size_t num_held() const override { return has_sent_last_ ? 0 : rows_.num_held(); }
  void cancel() override { is_cancelled_ = true; }

 private:
  ServerAnswer look();
  ServerAnswer make_run();
  ServerAnswer send_earlier();
  ServerAnswer send(const Json& body) { return api_.stream(entity_, project_, id_.id, body); }
  Json files_of(Json new_rows, const WandbRows& rows) const;
  ServerAnswer refusal(std::string why) const {
    return {Outcome::kRefused, nullptr, "", std::move(why)};
  }

  WandbRun run_;
  std::shared_ptr<Reporter> reporter_;
  std::atomic<bool> is_cancelled_{false};
  WandbApi api_;
  WandbRunId id_;
  bool has_looked_ = false;
  bool is_made_ = false;
  std::string storage_id_;  // the server's own, of a run that it has
  std::string entity_;
  std::string project_;
  int64_t num_rows_ = 0;                                               // that the server has
  std::optional<std::vector<std::shared_ptr<const Record>>> earlier_;  // still to be sent
  WandbRows rows_;
  bool has_told_of_left_out_ = false;
  bool has_sent_last_ = false;  // in finish()
};

/// Looks for the run that this start may go on in.
ServerAnswer Wandb::look() {
  const auto resume = run_.settings.resume;
  if (!id_.may_be_there) {
    has_looked_ = true;
    return {};
  }
  Json variables = Json::object();
  variables["project"] = run_.settings.project;
  variables["entity"] = text_or_null(run_.settings.entity);
  variables["name"] = id_.id;
  ServerAnswer answer = api_.ask(kWandbResumeQuery, variables);
  if (!answer.is_done()) return answer;
  has_looked_ = true;
  const Json* model = answer.body.find("model");
  const Json* bucket = model != nullptr && model->is_object() ? model->find("bucket") : nullptr;
  if (bucket == nullptr || !bucket->is_object()) {
    if (resume != WandbResume::kMust) return answer;
    return refusal(
        cat(run_.settings.server, " has no run ", id_.id, " to go on in [wandb.resume]"));
  }
  if (resume == WandbResume::kNever) {
    return refusal(cat(run_.settings.server, " has a run ", id_.id, " already [wandb.resume]"));
  }
  storage_id_ = text_of(*bucket, "id");
  num_rows_ = static_cast<int64_t>(number_in(*bucket, "historyLineCount").value_or(0));
  const Json row = last_row(*bucket);
  if (const auto step = number_in(row, "_step")) {
    rows_.go_on_behind(static_cast<int64_t>(*step), number_in(row, "_runtime").value_or(0));
  }
  rows_.set_summary(object_in_text(*bucket, "summaryMetrics"));
  return answer;
}

ServerAnswer Wandb::make_run() {
  Json config = Json::object();
  const Json values = wandb_values(run_.values);
  for (const auto& [key, value] : values.as_object()) config[key]["value"] = value;
  Json tags = Json::array();
  for (const std::string& tag : run_.settings.tags) tags.push_back(tag);
  Json variables = Json::object();
  variables["id"] = text_or_null(storage_id_);
  variables["name"] = id_.id;
  variables["project"] = run_.settings.project;
  variables["entity"] = text_or_null(run_.settings.entity);
  variables["groupName"] = text_or_null(run_.settings.group);
  variables["displayName"] = text_or_null(wandb_run_name(run_));
  variables["notes"] = text_or_null(run_.settings.notes);
  variables["jobType"] = text_or_null(run_.settings.job_type);
  variables["tags"] = tags.size() == 0 ? Json(nullptr) : std::move(tags);
  variables["config"] = config.dump();
  variables["host"] = host_name();
  variables["program"] = text_or_null(run_.source);
  ServerAnswer answer = api_.ask(kWandbRunMutation, variables);
  if (!answer.is_done()) return answer;
  const Json* upserted = answer.body.find("upsertBucket");
  const Json* bucket = upserted != nullptr ? upserted->find("bucket") : nullptr;
  const Json* project = bucket != nullptr ? bucket->find("project") : nullptr;
  const Json* entity = project != nullptr ? project->find("entity") : nullptr;
  entity_ = entity != nullptr ? text_of(*entity, "name") : "";
  project_ = project != nullptr ? text_of(*project, "name") : "";
  if (entity_.empty() || project_.empty()) {
    return {Outcome::kLater, nullptr, "",
            cat(run_.settings.server, " does not answer as a W&B server: no run")};
  }
  is_made_ = true;
  const Json* inserted = upserted->find("inserted");
  if (storage_id_.empty() && inserted != nullptr && *inserted == Json(false)) {
    reporter_->warning(cat("W&B: run ", id_.id,
                           " was there; its rows are replaced, since nothing "
                           "says that it is continued [wandb.resume]"));
  }
  keep_wandb_run_id(run_, id_.id, *reporter_);
  const std::string shown = text_of(*bucket, "displayName");
  reporter_->info(cat("W&B: ", storage_id_.empty() ? "run " : "going on in run ",
                      shown.empty() ? id_.id : shown, " at ", run_.settings.app, "/", entity_, "/",
                      project_, "/runs/", id_.id));
  return answer;
}

Delivery Wandb::start() {
  if (!has_looked_) {
    const ServerAnswer answer = look();
    if (!answer.is_done()) return answer.delivery();
  }
  if (!is_made_) {
    const ServerAnswer answer = make_run();
    if (!answer.is_done()) return answer.delivery();
  }
  return send_earlier().delivery();
}

/// Sends what the run's log has behind the server's last row: a start that was killed may not have
/// sent all of its own.
ServerAnswer Wandb::send_earlier() {
  constexpr size_t kMost = 1000;  // at once
  if (!earlier_) {
    earlier_.emplace();  // a new run begins with its own start
    const int64_t last_step = rows_.last_step().value_or(-1);
    if (id_.may_be_there) earlier_ = earlier_records(run_, last_step, *reporter_);
  }
  while (!earlier_->empty()) {
    const size_t count = std::min(kMost, earlier_->size());
    const Delivery sent = deliver({earlier_->data(), count});
    if (sent.outcome == Outcome::kLater) return {sent.outcome, nullptr, "", sent.problem};
    if (sent.outcome == Outcome::kRefused) {
      reporter_->warning(cat("W&B: steps before this start are missing: ", sent.problem));
    }
    earlier_->erase(earlier_->begin(), earlier_->begin() + static_cast<std::ptrdiff_t>(count));
  }
  return {};
}

/// What the server is told of rows that are new, and of the last values.
Json Wandb::files_of(Json new_rows, const WandbRows& rows) const {
  Json files = Json::object();
  if (new_rows.size() > 0) files["wandb-history.jsonl"] = lines(num_rows_, std::move(new_rows));
  Json summary = rows.summary();
  summary["_wandb"] = Json::object();
  summary["_wandb"]["runtime"] = static_cast<int64_t>(rows.runtime());
  Json content = Json::array();
  content.push_back(summary.dump());
  files["wandb-summary.json"] = lines(0, std::move(content));
  return files;
}

Delivery Wandb::deliver(Records records) {
  // The server takes a second sending of the same lines as one, so nothing changes here before it
  // has answered.
  WandbRows rows = rows_;
  Json whole = Json::array();
  for (const auto& record : records) {
    if (const auto row = rows.add(*record)) whole.push_back(row->values.dump());
  }
  if (rows.has_left_out() && !std::exchange(has_told_of_left_out_, true)) {
    reporter_->info(kWandbLeftOut);
  }
  const auto num_new = static_cast<int64_t>(whole.size());
  Json body = Json::object();
  if (num_new > 0) body["files"] = files_of(std::move(whole), rows);
  const ServerAnswer answer = send(body);
  if (answer.outcome == Outcome::kLater) return answer.delivery();
  rows_ = std::move(rows);
  if (!answer.is_done()) return {Outcome::kRefused, records.size(), answer.problem};
  num_rows_ += num_new;
  return {Outcome::kDone, records.size(), ""};
}

Delivery Wandb::finish(RunEnd end) {
  if (!has_sent_last_) {
    WandbRows rows = rows_;
    Json last = Json::array();
    if (const auto row = rows.end()) last.push_back(row->values.dump());
    const auto num_new = static_cast<int64_t>(last.size());
    Json body = Json::object();
    body["files"] = files_of(std::move(last), rows);
    if (end == RunEnd::kStopped) body["preempting"] = true;
    const ServerAnswer answer = send(body);
    if (!answer.is_done()) return answer.delivery();
    rows_ = std::move(rows);
    num_rows_ += num_new;
    has_sent_last_ = true;
  }
  Json body = Json::object();
  body["complete"] = true;
  body["exitcode"] = wandb_exit_code(end);
  return send(body).delivery();
}

}  // namespace

std::unique_ptr<Tracker> make_wandb(WandbRun run, std::shared_ptr<Reporter> reporter) {
  return std::make_unique<Wandb>(std::move(run), std::move(reporter));
}

}  // namespace automodel::trackers
