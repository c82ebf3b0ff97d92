#include "support/mlflow_server.h"

#include "core/error.h"

namespace automodel::test {

namespace {

constexpr size_t kMostMetrics = 1000;
constexpr size_t kMostParameters = 100;

HttpReply refusal(int status, const std::string& code, const std::string& message) {
  Json body = Json::object();
  body["error_code"] = code;
  body["message"] = message;
  return {.status = status, .body = body.dump()};
}

HttpReply said(const Json& body) {
  return {.status = 200, .body = body.dump()};
}

const Json::Array& list_of(const Json& body, const char* key) {
  static const Json::Array kNone;
  const Json* list = body.find(key);
  return list == nullptr ? kNone : list->as_array();
}

}  // namespace

MlflowServer::MlflowServer() {
  server_ = std::make_unique<HttpServer>([this](const HttpRequest& request) {
    const std::lock_guard lock(mutex_);
    return answer(request);
  });
}

std::map<std::string, MlflowServedRun> MlflowServer::runs() const {
  const std::lock_guard lock(mutex_);
  return runs_;
}

std::map<std::string, std::string> MlflowServer::experiments() const {
  const std::lock_guard lock(mutex_);
  return experiments_;
}

HttpReply MlflowServer::answer(const HttpRequest& request) {
  if (const auto fault = next_fault()) return *fault;
  if (!is_allowed(request)) {
    return refusal(401, "UNAUTHENTICATED", "who are you?");
  }
  const std::string root = "/api/2.0/mlflow/";
  if (!request.target.starts_with(root))
    return {.status = 404, .body = "<html>nothing here</html>"};
  const size_t question = request.target.find('?');
  const std::string path = request.target.substr(root.size(), question - root.size());
  if (path == "experiments/get-by-name") {
    const std::string wanted = request.target.substr(request.target.find('=') + 1);
    for (const auto& [id, name] : experiments_) {
      if (replace_all(name, " ", "%20") != wanted) continue;
      Json body = Json::object();
      body["experiment"]["experiment_id"] = id;
      body["experiment"]["lifecycle_stage"] = "active";
      return said(body);
    }
    return refusal(404, "RESOURCE_DOES_NOT_EXIST", "Could not find experiment");
  }
  const Json body = Json::parse(request.body, "body");
  if (path == "experiments/create") {
    const std::string id = cat(experiments_.size() + 1);
    experiments_[id] = body.at("name").as_string();
    Json answer = Json::object();
    answer["experiment_id"] = id;
    return said(answer);
  }
  if (path == "runs/create") return create_run(body);
  if (path == "runs/update") return update_run(body);
  if (path == "runs/log-batch") return log_batch(body);
  return {.status = 404, .body = ""};
}

HttpReply MlflowServer::create_run(const Json& body) {
  const std::string id = cat("run", runs_.size() + 1);
  MlflowServedRun& run = runs_[id];
  run.experiment = experiments_.at(body.at("experiment_id").as_string());
  for (const Json& tag : list_of(body, "tags")) {
    run.tags[tag.at("key").as_string()] = tag.at("value").as_string();
  }
  run.tags["mlflow.runName"] = body.get("run_name", "chosen by the server");
  Json answer = Json::object();
  answer["run"]["info"]["run_id"] = id;
  return said(answer);
}

HttpReply MlflowServer::update_run(const Json& body) {
  const auto found = runs_.find(body.at("run_id").as_string());
  if (found == runs_.end()) return refusal(404, "RESOURCE_DOES_NOT_EXIST", "Run not found");
  found->second.status = body.at("status").as_string();
  return said(Json::object());
}

HttpReply MlflowServer::log_batch(const Json& body) {
  const auto found = runs_.find(body.at("run_id").as_string());
  if (found == runs_.end()) return refusal(404, "RESOURCE_DOES_NOT_EXIST", "Run not found");
  const Json::Array& metrics = list_of(body, "metrics");
  const Json::Array& parameters = list_of(body, "params");
  if (metrics.size() > kMostMetrics || parameters.size() > kMostParameters) {
    return refusal(400, "INVALID_PARAMETER_VALUE", "too many");
  }
  for (const Json& parameter : parameters) {
    const std::string& value = parameter.at("value").as_string();
    const auto [place, is_new] =
        found->second.parameters.emplace(parameter.at("key").as_string(), value);
    if (!is_new && place->second != value) {
      return refusal(400, "INVALID_PARAMETER_VALUE", "Changing param values is not allowed");
    }
  }
  for (const Json& tag : list_of(body, "tags")) {
    found->second.tags[tag.at("key").as_string()] = tag.at("value").as_string();
  }
  for (const Json& metric : metrics) {
    found->second.metrics.push_back({metric.at("key").as_string(), metric.at("value").dump(),
                                     metric.at("step").as_int(), metric.at("timestamp").as_int()});
  }
  return said(Json::object());
}

}  // namespace automodel::test
