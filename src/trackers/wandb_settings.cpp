#include "trackers/wandb_settings.h"

#include <algorithm>

#include "core/error.h"
#include "core/file.h"
#include "core/utf8.h"
#include "trackers/server_answer.h"

namespace automodel::trackers {

namespace {

constexpr const char* kCloud = "https://api.forge.coreweave.com";
constexpr const char* kCloudPages = "https://forge.coreweave.com/wandb";
/// The names that W&B's own server has.
constexpr std::array<std::string_view, 3> kCloudHosts = {"api.forge.coreweave.com", "api.wandb.ai",
                                                         "forge.coreweave.com"};
constexpr size_t kLongestProject = 128;

/// A variable's text as one of an enum's; nothing when it is not set.
template <NamedEnum E>
std::optional<E> choice_of(const std::string& text, const char* name) {
  if (text.empty()) return std::nullopt;
  std::vector<std::string> known;
  for (const auto& [word, value] : EnumNames<E>::values) {
    if (text == word) return value;
    known.emplace_back(word);
  }
  throw UserError(cat(name, " takes one of ", join(known, ", "), ", found '", text, "'"));
}

/// HOST[:PORT] of an address.
std::string host_of(const std::string& server) {
  const std::string rest = server.substr(server.find("://") + 3);
  return rest.substr(0, rest.find('/'));
}

bool is_cloud(std::string_view host) {
  return std::ranges::find(kCloudHosts, host) != kCloudHosts.end();
}

size_t num_characters(const std::string& text) {
  return static_cast<size_t>(std::ranges::count_if(
      text, [](char c) { return (static_cast<unsigned char>(c) & 0xC0U) != 0x80U; }));
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
  if (is_cloud(host_of(server))) return kCloudPages;
  return replace_all(server, "://api.", "://app.");
}

std::string netrc_path(const Environment& environment) {
  const std::string path = environment("NETRC"), home = environment("HOME");
  if (path.starts_with("~/") && !home.empty()) return path_join(home, path.substr(2));
  if (!path.empty()) return path;
  return home.empty() ? "" : path_join(home, ".netrc");
}

/// A file's text; "" for one that cannot be read.
std::string text_of_file(const std::string& path) {
  try {
    return path_exists(path) ? read_file(path) : "";
  } catch (const InputError&) {
    return "";
  }
}

/// The variables of `environment`, and below them what the package's commands have written: the
/// server, the team, the project and the mode. Throws UserError for a text that is not UTF-8.
Environment with_settings_file(const Environment& environment) {
  std::string folder = environment("WANDB_CONFIG_DIR");
  const std::string home = environment("HOME");
  if (folder.empty() && !home.empty()) folder = path_join(home, ".config/wandb");
  const std::string text = folder.empty() ? "" : text_of_file(path_join(folder, "settings"));
  return [environment, text](const char* name) {
    static constexpr std::pair<std::string_view, std::string_view> kKeys[] = {
        {"WANDB_BASE_URL", "base_url"},
        {"WANDB_ENTITY", "entity"},
        {"WANDB_PROJECT", "project"},
        {"WANDB_MODE", "mode"}};
    std::string value = environment(name);
    if (!is_utf8(value)) throw UserError(cat(name, " is not UTF-8"));
    for (const auto& [variable, key] : kKeys) {
      if (value.empty() && variable == name) value = wandb_setting(text, key);
    }
    return value;
  };
}

void find_key(const Environment& environment, WandbSettings& settings) {
  settings.api_key = std::string(trim(environment("WANDB_API_KEY")));
  settings.key_place = "WANDB_API_KEY";
  if (!settings.api_key.empty()) return;
  const std::string path = netrc_path(environment);
  const std::string host = host_of(settings.server);
  if (path.empty()) return;
  const std::string text = text_of_file(path);
  settings.api_key = netrc_password(text, host);
  for (const std::string_view other : kCloudHosts) {
    if (is_cloud(host) && settings.api_key.empty()) settings.api_key = netrc_password(text, other);
  }
  settings.key_place = settings.api_key.empty() ? cat("WANDB_API_KEY, or a line `machine ", host,
                                                      " login user password KEY` of ", path)
                                                : path;
}

}  // namespace

std::string problem_of_project(const std::string& project) {
  if (project.empty()) return "expected the name of a project, found ''";
  if (const size_t size = num_characters(project); size > kLongestProject) {
    return cat("a project's name has ", kLongestProject, " characters at most, found ", size);
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
  if (id == "." || id == "..") return cat("'", id, "' is a folder, and no run's id");
  const size_t at = id.find_first_of(":;,#?/'");
  if (at == std::string::npos) return "";
  return cat("a run's id has none of : ; , # ? / ', found '", id[at], "' in '", id, "'");
}

std::string problem_of_tag(const std::string& tag) {
  constexpr size_t kLongest = 64;
  const size_t size = num_characters(tag);
  if (size >= 1 && size <= kLongest) return "";
  return cat("a tag has 1 to ", kLongest, " characters, found '", tag, "'");
}

std::string netrc_password(std::string_view text, std::string_view machine) {
  std::string of_machine, of_all;
  std::string* found = nullptr;  // where a password of this entry goes
  std::string_view key;          // whose value comes next
  bool is_macro = false;
  while (!text.empty()) {
    std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(line.size() + 1, text.size()));
    line = trim(line);
    if (is_macro) {  // up to an empty line
      is_macro = !line.empty();
      continue;
    }
    for (; !line.empty() && line.front() != '#'; line = trim(line)) {
      const bool is_quoted = line.front() == '"' && line.find('"', 1) != std::string_view::npos;
      const size_t size = is_quoted ? line.find('"', 1) + 1 : line.find_first_of(" \t\r");
      std::string_view word = line.substr(0, size);
      line.remove_prefix(word.size());
      if (is_quoted) word = word.substr(1, word.size() - 2);
      if (key == "machine") {
        found = word == machine ? &of_machine : nullptr;
      } else if (key == "password" && found != nullptr) {
        *found = word;
      }
      if (!key.empty()) {
        key = "";
      } else if (word == "default") {
        found = &of_all;
      } else if (word == "macdef") {
        is_macro = true;
        break;
      } else {
        key = word;
      }
    }
  }
  return of_machine.empty() ? of_all : of_machine;
}

std::string wandb_setting(std::string_view text, std::string_view key) {
  while (!text.empty()) {
    const std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(std::min(line.size() + 1, text.size()));
    const size_t equals = line.find('=');
    if (equals == std::string_view::npos || trim(line.substr(0, equals)) != key) continue;
    return std::string(trim(line.substr(equals + 1)));
  }
  return "";
}

WandbSettings WandbSettings::from_environment(const Environment& variables,
                                              const WandbConfig& config) {
  const Environment environment = with_settings_file(variables);
  const auto either = [&](const std::optional<std::string>& said, const char* name) {
    return said ? *said : environment(name);
  };
  WandbSettings settings;
  settings.server = server_of(environment);
  settings.app = app_of(environment, settings.server);
  settings.checks_certificates = !is_on(environment, "WANDB_INSECURE_DISABLE_SSL");
  settings.timeout_seconds =
      seconds_in(environment, "WANDB_HTTP_TIMEOUT", settings.timeout_seconds);
  settings.project = either(config.project, "WANDB_PROJECT");
  if (!config.project && settings.project.empty()) settings.project = "automodel";
  if (const std::string problem = problem_of_project(settings.project);
      !config.project && !problem.empty()) {
    throw UserError(cat("WANDB_PROJECT: ", problem));
  }
  settings.name = either(config.name, "WANDB_NAME");
  settings.entity = either(config.entity, "WANDB_ENTITY");
  settings.group = either(config.group, "WANDB_RUN_GROUP");
  settings.notes = either(config.notes, "WANDB_NOTES");
  settings.job_type = either(config.job_type, "WANDB_JOB_TYPE");
  settings.dir = either(config.dir, "WANDB_DIR");
  settings.tags = config.tags;
  if (const std::string tags = environment("WANDB_TAGS"); settings.tags.empty() && !tags.empty()) {
    for (const std::string& tag : split(tags, ',')) {
      settings.tags.emplace_back(trim(tag));
      const std::string problem = problem_of_tag(settings.tags.back());
      if (!problem.empty()) throw UserError(cat("WANDB_TAGS: ", problem));
    }
  }
  settings.run_id = either(config.id, "WANDB_RUN_ID");
  if (!config.id && !settings.run_id.empty()) {
    const std::string problem = problem_of_run_id(settings.run_id);
    if (!problem.empty()) throw UserError(cat("WANDB_RUN_ID: ", problem));
  }
  settings.resume = config.resume
                        ? config.resume
                        : choice_of<WandbResume>(environment("WANDB_RESUME"), "WANDB_RESUME");
  std::string said = environment("WANDB_MODE");
  if (said == "dryrun") said = "offline";  // as the package called them once
  if (said == "run") said = "online";
  auto mode = config.mode ? config.mode : choice_of<WandbMode>(said, "WANDB_MODE");
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
