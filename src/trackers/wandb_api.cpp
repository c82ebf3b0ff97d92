#include "trackers/wandb_api.h"

#include <utility>

#include "core/error.h"

namespace automodel::trackers {

const char* const kWandbResumeQuery =
    "query RunResumeStatus($project: String, $entity: String, $name: String!) {"
    " model(name: $project, entityName: $entity) { id name entity { id name }"
    " bucket(name: $name, missingOk: true) { id name displayName summaryMetrics"
    " historyLineCount historyTail } } }";

const char* const kWandbRunMutation =
    "mutation UpsertBucket($id: String, $name: String, $project: String, $entity: String,"
    " $groupName: String, $displayName: String, $notes: String, $config: JSONString,"
    " $host: String, $program: String, $jobType: String, $tags: [String!]) {"
    " upsertBucket(input: {id: $id, name: $name, modelName: $project, entityName: $entity,"
    " groupName: $groupName, displayName: $displayName, notes: $notes, config: $config,"
    " host: $host, jobProgram: $program, jobType: $jobType, tags: $tags}) {"
    " bucket { id name displayName project { id name entity { id name } } } inserted } }";

namespace {

http::HttpOptions options_of(const WandbSettings& settings) {
  http::HttpOptions options;
  options.user = "api";
  options.password = settings.api_key;
  options.checks_certificates = settings.checks_certificates;
  options.stall_seconds = settings.timeout_seconds;
  options.total_seconds = settings.timeout_seconds;
  return options;
}

/// The first message of GraphQL's list `errors`, or the text `error`; "" for none.
std::string message_in(const Json& body) {
  if (!body.is_object()) return "";
  const Json* errors = body.find("errors");
  if (errors == nullptr || !errors->is_array() || errors->as_array().empty()) {
    return on_a_line(text_of(body, "error"));
  }
  const std::string message = on_a_line(text_of(errors->as_array().front(), "message"));
  return message.empty() ? "an error without a message" : message;
}

std::string segment(const std::string& name) {
  return replace_all(http::escape_path(name), "/", "%2F");
}

}  // namespace

WandbApi::WandbApi(const WandbSettings& settings, const std::atomic<bool>* is_cancelled)
    : server_(settings.server),
      key_place_(settings.key_place),
      client_(options_of(settings), is_cancelled) {}

ServerAnswer WandbApi::post(const std::string& path, const Json& body) {
  const http::HttpAnswer answer = client_.post(cat(server_, path), body.dump());
  ServerAnswer read = read_answer(answer, server_, "a W&B server", "WANDB_BASE_URL");
  if (!answer.problem.empty()) return read;
  if (const std::string message = message_in(read.body); !message.empty()) {
    if (read.is_done()) read = {Delivery::Outcome::kRefused, nullptr, "", cat(server_, " refuses")};
    read.problem += cat(" (", message, ")");
  }
  if (answer.head.status == 401) {
    read.problem += cat(": it does not take the API key of ", key_place_);
  }
  return read;
}

ServerAnswer WandbApi::ask(const char* query, const Json& variables) {
  Json body = Json::object();
  body["query"] = query;
  body["variables"] = variables;
  ServerAnswer answer = post("/graphql", body);
  if (!answer.is_done()) return answer;
  Json* data = answer.body.find("data");
  if (data != nullptr && data->is_object()) {
    answer.body = Json(std::move(*data));
    return answer;
  }
  return {Delivery::Outcome::kLater, nullptr, "", cat(server_, " does not answer as a W&B server")};
}

ServerAnswer WandbApi::stream(const std::string& entity, const std::string& project,
                              const std::string& run_id, const Json& body) {
  return post(
      cat("/files/", segment(entity), "/", segment(project), "/", segment(run_id), "/file_stream"),
      body);
}

}  // namespace automodel::trackers
