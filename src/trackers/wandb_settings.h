#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "core/field.h"
#include "trackers/variables.h"

namespace automodel::trackers {

/// Where the records of a run go.
enum class WandbMode {
  kOnline,
  kOffline,   ///< to a file, for `wandb sync`
  kDisabled,  ///< nowhere
};

/// What becomes of a run that the server has already.
enum class WandbResume {
  kAllow,  ///< it is continued
  kMust,   ///< it is continued; there must be one
  kNever,  ///< there must be none
  kAuto,   ///< as kAllow, without an id of the recipe's
};

/// `wandb`. Keys are those of upstream's section, which are those of wandb.init.
struct WandbConfig {
  bool enable = true;
  std::optional<std::string> project;
  std::optional<std::string> entity;
  std::optional<std::string> name;
  std::optional<std::string> group;
  std::vector<std::string> tags;
  std::optional<std::string> notes;
  std::optional<std::string> job_type;
  std::optional<WandbMode> mode;
  std::optional<std::string> dir;
  std::optional<std::string> id;
  std::optional<WandbResume> resume;
  bool force = false;

  static constexpr auto fields() {
    using C = WandbConfig;
    return std::tuple{
        field("enable", &C::enable, "false: as if the section were not there"),
        field("project", &C::project,
              "project, which is made if it is not there; absent: WANDB_PROJECT, or automodel"),
        field("entity", &C::entity, "user or team; absent: WANDB_ENTITY, or the key's default"),
        field("name", &C::name,
              "name of the run; absent: WANDB_NAME, or the last two parts of the model's name"),
        field("group", &C::group, "group of the run; absent: WANDB_RUN_GROUP"),
        field("tags", &C::tags, "tags of the run").or_one(),
        field("notes", &C::notes, "what the run is for; absent: WANDB_NOTES"),
        field("job_type", &C::job_type, "what kind of run it is; absent: WANDB_JOB_TYPE"),
        field("mode", &C::mode,
              "to the server, or to a file for `wandb sync`; absent: WANDB_MODE, or online where "
              "there is an API key"),
        field(
            "dir", &C::dir,
            "folder whose folder `wandb` holds files of runs that are offline; absent: WANDB_DIR, "
            "or checkpoint_dir"),
        field("id", &C::id, "id of the run; absent: WANDB_RUN_ID, or a new one"),
        field(
            "resume", &C::resume,
            "what becomes of a run of this id that is there (true: auto); absent: WANDB_RESUME, or "
            "a run that continues from a checkpoint goes on in its own"),
        field("force", &C::force, "true: no API key is an error")};
  }
};

/// How W&B is reached, and what the environment says of a run. The variables are those of the wandb
/// package; what the recipe says goes first, what `wandb login` and `wandb offline` have written
/// last.
struct WandbSettings {
  WandbMode mode = WandbMode::kOnline;
  bool lacks_key = false;           ///< it is offline since there is no API key
  std::string server;               ///< WANDB_BASE_URL, without a slash at its end
  std::string app;                  ///< where people look at runs
  std::string api_key;              ///< WANDB_API_KEY, or of the netrc file
  std::string key_place;            ///< where the key is from, or would be looked for
  bool checks_certificates = true;  ///< not WANDB_INSECURE_DISABLE_SSL
  double timeout_seconds = 30;      ///< WANDB_HTTP_TIMEOUT
  std::string project;
  std::string name;    ///< "": the model's
  std::string entity;  ///< "": the key's default
  std::string group;
  std::string notes;
  std::string job_type;
  std::vector<std::string> tags;
  std::string dir;  ///< "": the run's own folder
  std::string run_id;
  std::optional<WandbResume> resume;

  /// Reads the netrc file (NETRC, or ~/.netrc) and the package's settings (of WANDB_CONFIG_DIR, or
  /// ~/.config/wandb) too. Throws UserError for a variable that nothing
  /// can be made of, and for a key that is wanted (`force`) and not there.
  static WandbSettings from_environment(const Environment& environment, const WandbConfig& config);
};

/// What is wrong with a project's name, a run's id, or a tag; "" for nothing.
std::string problem_of_project(const std::string& project);
std::string problem_of_run_id(const std::string& id);
std::string problem_of_tag(const std::string& tag);

/// The value of a key of a settings file's text: lines `key = value`; "" for none.
std::string wandb_setting(std::string_view text, std::string_view key);

/// The password of a machine in a netrc file's text, or that of `default`; "" for none. The last of
/// several entries counts.
std::string netrc_password(std::string_view text, std::string_view machine);

}  // namespace automodel::trackers

namespace automodel {

template <>
struct EnumNames<trackers::WandbMode> {
  static constexpr std::array<std::pair<std::string_view, trackers::WandbMode>, 3> values = {
      {{"online", trackers::WandbMode::kOnline},
       {"offline", trackers::WandbMode::kOffline},
       {"disabled", trackers::WandbMode::kDisabled}}};
};

template <>
struct EnumNames<trackers::WandbResume> {
  static constexpr std::array<std::pair<std::string_view, trackers::WandbResume>, 4> values = {
      {{"allow", trackers::WandbResume::kAllow},
       {"must", trackers::WandbResume::kMust},
       {"never", trackers::WandbResume::kNever},
       {"auto", trackers::WandbResume::kAuto}}};
};

}  // namespace automodel
