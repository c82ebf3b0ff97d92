#include "support/wandb_server.h"

#include <array>

#include "core/error.h"

namespace automodel::test {

namespace {

HttpReply said(const Json& body) {
  return {.status = 200, .body = body.dump()};
}

HttpReply refusal(int status, const std::string& message) {
  Json error = Json::object();
  error["message"] = message;
  Json body = Json::object();
  body["errors"] = Json::array();
  body["errors"].push_back(std::move(error));
  return {.status = status, .body = body.dump()};
}

std::string base64(std::string_view bytes) {
  constexpr std::string_view kLetters =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string text;
  for (size_t at = 0; at < bytes.size(); at += 3) {
    std::array<unsigned, 3> three{};
    const size_t count = std::min<size_t>(3, bytes.size() - at);
    for (size_t i = 0; i < count; ++i) three[i] = static_cast<unsigned char>(bytes[at + i]);
    const unsigned bits = three[0] << 16 | three[1] << 8 | three[2];
    for (size_t i = 0; i < 4; ++i) {
      text += i <= count ? kLetters[bits >> (18 - 6 * i) & 63] : '=';
    }
  }
  return text;
}

}  // namespace

WandbServer::WandbServer() {
  server_ = std::make_unique<HttpServer>([this](const HttpRequest& request) {
    const std::lock_guard lock(mutex_);
    return answer(request);
  });
}

void WandbServer::demand(const std::string& api_key) {
  demand_field("Basic " + base64("api:" + api_key));
}

std::map<std::string, WandbServedRun> WandbServer::runs() const {
  const std::lock_guard lock(mutex_);
  return runs_;
}

HttpReply WandbServer::answer(const HttpRequest& request) {
  if (const auto fault = next_fault()) return *fault;
  if (!is_allowed(request)) {
    return refusal(401, "user is not logged in");
  }
  if (request.method != "POST") return {.status = 405, .body = ""};
  if (request.target == "/graphql") return ask(Json::parse(request.body, "body"));
  const std::string begin = "/files/";
  const std::string end = "/file_stream";
  if (!request.target.starts_with(begin) || !request.target.ends_with(end)) {
    return {.status = 404, .body = "<html>nothing here</html>"};
  }
  const std::string path =
      request.target.substr(begin.size(), request.target.size() - begin.size() - end.size());
  return stream(path, Json::parse(request.body, "body"));
}

HttpReply WandbServer::ask(const Json& body) {
  const std::string& query = body.at("query").as_string();
  const Json& variables = body.at("variables");
  const std::string id = variables.at("name").as_string();
  const auto found = runs_.find(id);
  Json data = Json::object();
  if (query.starts_with("query RunResumeStatus")) {
    if (found == runs_.end()) {
      data["model"]["bucket"] = nullptr;
    } else {
      const WandbServedRun& run = found->second;
      Json& bucket = data["model"]["bucket"];
      bucket["id"] = "stored-" + id;
      bucket["historyLineCount"] = static_cast<int64_t>(run.rows.size());
      Json tail = Json::array();
      if (!run.rows.empty()) tail.push_back(run.rows.back().dump());
      bucket["historyTail"] = tail.dump();
      bucket["summaryMetrics"] = run.summary.dump();
    }
  } else if (query.starts_with("mutation UpsertBucket")) {
    WandbServedRun& run = runs_[id];
    run.variables = variables;
    run.project = variables.at("project").as_string();
    run.entity = variables.get("entity", "someone");
    run.exit_code.reset();
    Json& bucket = data["upsertBucket"]["bucket"];
    bucket["name"] = id;
    bucket["displayName"] = variables.get("displayName", "chosen-by-server-1");
    bucket["project"]["name"] = run.project;
    bucket["project"]["entity"]["name"] = run.entity;
    data["upsertBucket"]["inserted"] = found == runs_.end();
  } else {
    return refusal(400, "an unknown query");
  }
  Json answer = Json::object();
  answer["data"] = std::move(data);
  return said(answer);
}

HttpReply WandbServer::stream(const std::string& path, const Json& body) {
  const std::vector<std::string> names = split(replace_all(path, "%20", " "), '/');
  const auto found = names.size() == 3 ? runs_.find(names[2]) : runs_.end();
  if (found == runs_.end() || found->second.entity != names[0] ||
      found->second.project != names[1]) {
    return refusal(404, "run not found");
  }
  WandbServedRun& run = found->second;
  if (body.size() == 0) ++run.num_heartbeats;
  if (const Json* files = body.find("files")) {
    for (const auto& [name, file] : files->as_object()) {
      const auto offset = static_cast<size_t>(file.at("offset").as_int());
      const Json::Array& content = file.at("content").as_array();
      if (name == "wandb-summary.json") {
        run.summary = Json::parse(content.at(0).as_string(), name);
        continue;
      }
      if (name != "wandb-history.jsonl") return refusal(400, "an unknown file " + name);
      if (offset > run.rows.size()) return refusal(400, "lines are missing");
      run.rows.resize(offset);
      for (const Json& line : content) {
        Json row = Json::parse(line.as_string(), name);
        const int64_t step = row.at("_step").as_int();
        if (!run.rows.empty() && step <= run.rows.back().at("_step").as_int()) {
          return refusal(400, "steps must increase");
        }
        run.rows.push_back(std::move(row));
      }
    }
  }
  if (body.get("preempting", false)) run.is_preempting = true;
  if (body.get("complete", false)) run.exit_code = body.at("exitcode").as_int();
  return said(Json::object());
}

}  // namespace automodel::test
