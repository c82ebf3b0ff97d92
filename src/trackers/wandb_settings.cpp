#include "trackers/wandb_settings.h"

#include <algorithm>

#include "core/error.h"
#include "core/file.h"
#include "trackers/server_answer.h"

namespace automodel::trackers {

namespace {

constexpr const char* kCloud = "https://api.wandb.ai";
constexpr size_t kLongestProject = 128;

/// A variable that takes one of an enum's texts; nothing when it is not set.
template <NamedEnum E>
std::optional<E> choice_of(const Environment& environment, const char* name) {
  const std::string text = environment(name);
  if (text.empty()) return std::nullopt;
  std::vector<std::string> known;
  for (const auto& [word, value] : EnumNames<E>::values) {
    if (text == word) return value;
    known.emplace_back(word);
  }
  throw UserError(cat(name, " takes one of ", join(known, ", "), ", found '", text, "'"));
}

std::string server_of(const Environment& environment) {
  std::string server = environment("WANDB_BASE_URL");
  if (server.empty()) return kCloud;
  while (server.ends_with('/')) server.pop_back();
  if (const std::string problem = problem_of_server(server); !problem.empty()) {
    throw UserError(cat("WANDB_BASE_URL: ", problem,
                        "; expected a W&B server, http://HOST:PORT or https://HOST"));
  }
  return server;
}

/// Where people look at what a server has.
std::string app_of(const Environment& environment, const std::string& server) {
  std::string app = environment("WANDB_APP_URL");
  while (app.ends_with('/')) app.pop_back();
  if (!app.empty()) return app;
  if (server.find("://api.wandb.") != std::string::npos) {
    return replace_all(server, "://api.", "://");
  }
  return replace_all(server, "://api.", "://app.");
}

/// HOST[:PORT] of an address.
std::string host_of(const std::string& server) {
  const std::string rest = server.substr(server.find("://") + 3);
  return rest.substr(0, rest.find('/'));
}

std::string netrc_path(const Environment& environment) {
  const std::string path = environment("NETRC");
  if (!path.empty()) return path;
  const std::string home = environment("HOME");
  return home.empty() ? "" : path_join(home, ".netrc");
}

void find_key(const Environment& environment, WandbSettings& settings) {
  settings.api_key = std::string(trim(environment("WANDB_API_KEY")));
  settings.key_place = "WANDB_API_KEY";
  if (!settings.api_key.empty()) return;
  const std::string path = netrc_path(environment);
  const std::string host = host_of(settings.server);
  if (path.empty()) return;
  if (path_exists(path)) {
    try {
      settings.api_key = netrc_password(read_file(path), host);
    } catch (const InputError&) {
      // As if it were not there: what is said of a missing key names the file.
    }
  }
  settings.key_place = settings.api_key.empty() ? cat("WANDB_API_KEY, or a line `machine ", host,
                                                      " login user password KEY` of ", path)
                                                : path;
}

}  // namespace

std::string problem_of_project(const std::string& project) {
  if (project.empty()) return "expected the name of a project, found ''";
  if (project.size() > kLongestProject) {
    return cat("a project's name has ", kLongestProject, " characters at most, found ",
               project.size());
  }
  const size_t at = project.find_first_of("/\\#?%:");
  if (at == std::string::npos) return "";
  return cat("a project's name has none of / \\ # ? % :, found '", project[at], "' in '", project,
             "'");
}

std::string problem_of_run_id(const std::string& id) {
  if (id.empty() || trim(id).size() != id.size()) {
    return cat("expected a run's id without white space around it, found '", id, "'");
  }
  const size_t at = id.find_first_of(":;,#?/'");
  if (at == std::string::npos) return "";
  return cat("a run's id has none of : ; , # ? / ', found '", id[at], "' in '", id, "'");
}

std::string netrc_password(std::string_view text, std::string_view machine) {
  std::vector<std::string_view> words;
  while (!text.empty()) {
    std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(line.size() + 1, text.size()));
    while (!(line = trim(line)).empty() && line.front() != '#') {
      const std::string_view word = line.substr(0, line.find_first_of(" \t\r"));
      words.push_back(word);
      line.remove_prefix(word.size());
    }
  }
  bool is_it = false;
  for (size_t i = 0; i < words.size(); ++i) {
    const std::string_view word = words[i];
    if (word == "default") is_it = true;
    if (i + 1 >= words.size()) break;
    if (word == "machine") {
      is_it = words[++i] == machine;
    } else if (word == "login" || word == "account") {
      ++i;
    } else if (word == "password") {
      ++i;
      if (is_it) return std::string(words[i]);
    }
  }
  return "";
}

WandbSettings WandbSettings::from_environment(const Environment& environment,
                                              const WandbConfig& config) {
  const auto either = [&](const std::optional<std::string>& said, const char* name) {
    return said ? *said : environment(name);
  };
  WandbSettings settings;
  settings.server = server_of(environment);
  settings.app = app_of(environment, settings.server);
  settings.checks_certificates = !is_on(environment, "WANDB_INSECURE_DISABLE_SSL");
  settings.timeout_seconds =
      seconds_in(environment, "WANDB_HTTP_TIMEOUT", settings.timeout_seconds);
  settings.entity = either(config.entity, "WANDB_ENTITY");
  settings.group = either(config.group, "WANDB_RUN_GROUP");
  settings.notes = either(config.notes, "WANDB_NOTES");
  settings.job_type = either(config.job_type, "WANDB_JOB_TYPE");
  settings.dir = either(config.dir, "WANDB_DIR");
  settings.tags = config.tags;
  if (const std::string tags = environment("WANDB_TAGS"); settings.tags.empty() && !tags.empty()) {
    for (const std::string& tag : split(tags, ',')) settings.tags.emplace_back(trim(tag));
  }
  settings.run_id = either(config.id, "WANDB_RUN_ID");
  if (!config.id && !settings.run_id.empty()) {
    const std::string problem = problem_of_run_id(settings.run_id);
    if (!problem.empty()) throw UserError(cat("WANDB_RUN_ID: ", problem));
  }
  settings.resume =
      config.resume ? config.resume : choice_of<WandbResume>(environment, "WANDB_RESUME");
  auto mode = config.mode ? config.mode : choice_of<WandbMode>(environment, "WANDB_MODE");
  if (!mode && is_on(environment, "WANDB_DISABLED")) mode = WandbMode::kDisabled;
  settings.mode = mode.value_or(WandbMode::kOnline);
  if (settings.mode != WandbMode::kOnline) return settings;
  find_key(environment, settings);
  if (!settings.api_key.empty()) return settings;
  if (config.force) {
    throw UserError(cat("there is no API key, and force wants one: set ", settings.key_place));
  }
  settings.mode = WandbMode::kOffline;
  settings.lacks_key = true;
  return settings;
}

}  // namespace automodel::trackers
