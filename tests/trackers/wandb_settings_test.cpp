#include "trackers/wandb_settings.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "core/error.h"
#include "core/file.h"
#include "support/errors.h"
#include "support/temporary_directory.h"

namespace automodel::trackers {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using Variables = std::map<std::string, std::string>;

WandbSettings settings_of(const Variables& variables, const WandbConfig& config = {}) {
  return WandbSettings::from_environment(
      [&](const char* name) -> std::string {
        const auto found = variables.find(name);
        return found == variables.end() ? "" : found->second;
      },
      config);
}

TEST(WandbSettingsTest, TheCloudIsTheServer) {
  const WandbSettings settings = settings_of({{"WANDB_API_KEY", " key\n"}});
  EXPECT_EQ(settings.server, "https://api.forge.coreweave.com");
  EXPECT_EQ(settings.app, "https://forge.coreweave.com/wandb");
  EXPECT_EQ(settings_of({{"WANDB_BASE_URL", "https://api.wandb.ai"}}).app, settings.app);
  EXPECT_EQ(settings.project, "automodel");
  EXPECT_EQ(settings.name, "");
  EXPECT_EQ(settings.api_key, "key");
  EXPECT_EQ(settings.mode, WandbMode::kOnline);
  EXPECT_TRUE(settings.checks_certificates);
}

TEST(WandbSettingsTest, AServerOfOnesOwn) {
  const WandbSettings own = settings_of({{"WANDB_API_KEY", "k"},
                                         {"WANDB_BASE_URL", "https://api.own.org/"},
                                         {"WANDB_HTTP_TIMEOUT", "2.5"},
                                         {"WANDB_INSECURE_DISABLE_SSL", "true"}});
  EXPECT_EQ(own.server, "https://api.own.org");
  EXPECT_EQ(own.app, "https://app.own.org");
  EXPECT_EQ(own.timeout_seconds, 2.5);
  EXPECT_FALSE(own.checks_certificates);
  EXPECT_EQ(settings_of({{"WANDB_BASE_URL", "http://h:80"}, {"WANDB_APP_URL", "http://a/"}}).app,
            "http://a");
  EXPECT_EQ(settings_of({{"WANDB_BASE_URL", "http://localhost:8080"}}).app,
            "http://localhost:8080");
}

TEST(WandbSettingsTest, TheRecipeGoesBeforeTheEnvironment) {
  const Variables variables = {
      {"WANDB_ENTITY", "e"},    {"WANDB_RUN_GROUP", "g"},  {"WANDB_NOTES", "n"},
      {"WANDB_JOB_TYPE", "j"},  {"WANDB_DIR", "d"},        {"WANDB_RUN_ID", "i"},
      {"WANDB_RESUME", "must"}, {"WANDB_MODE", "offline"}, {"WANDB_TAGS", "a, b"},
      {"WANDB_PROJECT", "p"},   {"WANDB_NAME", "m"}};
  const WandbSettings of_environment = settings_of(variables);
  EXPECT_EQ(of_environment.project, "p");
  EXPECT_EQ(of_environment.name, "m");
  EXPECT_EQ(of_environment.entity, "e");
  EXPECT_EQ(of_environment.group, "g");
  EXPECT_EQ(of_environment.notes, "n");
  EXPECT_EQ(of_environment.job_type, "j");
  EXPECT_EQ(of_environment.dir, "d");
  EXPECT_EQ(of_environment.run_id, "i");
  EXPECT_EQ(of_environment.resume, WandbResume::kMust);
  EXPECT_EQ(of_environment.mode, WandbMode::kOffline);
  EXPECT_FALSE(of_environment.lacks_key);
  EXPECT_THAT(of_environment.tags, ElementsAre("a", "b"));
  WandbConfig config;
  config.project = "P";
  config.name = "M";
  config.entity = "E";
  config.group = "G";
  config.notes = "N";
  config.job_type = "J";
  config.dir = "D";
  config.id = "I";
  config.resume = WandbResume::kNever;
  config.mode = WandbMode::kDisabled;
  config.tags = {"T"};
  const WandbSettings of_recipe = settings_of(variables, config);
  EXPECT_EQ(of_recipe.project, "P");
  EXPECT_EQ(of_recipe.name, "M");
  EXPECT_EQ(of_recipe.entity, "E");
  EXPECT_EQ(of_recipe.group, "G");
  EXPECT_EQ(of_recipe.notes, "N");
  EXPECT_EQ(of_recipe.job_type, "J");
  EXPECT_EQ(of_recipe.dir, "D");
  EXPECT_EQ(of_recipe.run_id, "I");
  EXPECT_EQ(of_recipe.resume, WandbResume::kNever);
  EXPECT_EQ(of_recipe.mode, WandbMode::kDisabled);
  EXPECT_THAT(of_recipe.tags, ElementsAre("T"));
  EXPECT_EQ(settings_of({{"WANDB_DISABLED", "true"}}).mode, WandbMode::kDisabled);
  EXPECT_EQ(settings_of({{"WANDB_MODE", "dryrun"}}).mode, WandbMode::kOffline);
}

TEST(WandbSettingsTest, AKeyMayBeInTheNetrcFile) {
  const test::TemporaryDirectory folder;
  const std::string path = folder.file(".netrc");
  write_file_atomic(path,
                    "machine other.org login a password b\nmachine api.wandb.ai\n"
                    "  login user\n  password of-the-file\n");
  const WandbSettings found = settings_of({{"HOME", folder.path()}});
  EXPECT_EQ(found.mode, WandbMode::kOnline);
  EXPECT_EQ(found.api_key, "of-the-file");
  EXPECT_EQ(found.key_place, path);
  EXPECT_EQ(settings_of({{"NETRC", path}}).api_key, "of-the-file");
  EXPECT_EQ(settings_of({{"NETRC", path}, {"WANDB_API_KEY", "first"}}).api_key, "first");
  EXPECT_EQ(settings_of({{"HOME", folder.path()}, {"NETRC", "~/.netrc"}}).api_key, "of-the-file");
  // The package writes the name that it knows the server by.
  write_file_atomic(path, "machine api.forge.coreweave.com login user password of-forge\n");
  for (const char* server : {"", "https://api.wandb.ai", "https://api.forge.coreweave.com"}) {
    EXPECT_EQ(settings_of({{"NETRC", path}, {"WANDB_BASE_URL", server}}).api_key, "of-forge");
  }
  EXPECT_EQ(settings_of({{"NETRC", path}, {"WANDB_BASE_URL", "http://own"}}).api_key, "");
}

TEST(WandbSettingsTest, WhatThePackagesCommandsHaveWrittenComesLast) {
  const test::TemporaryDirectory folder;
  create_directories(folder.file(".config/wandb"));
  write_file_atomic(folder.file(".config/wandb/settings"),
                    "[default]\nbase_url = http://own:8080\nentity=team\nmode = offline\n");
  const WandbSettings settings = settings_of({{"HOME", folder.path()}});
  EXPECT_EQ(settings.server, "http://own:8080");
  EXPECT_EQ(settings.entity, "team");
  EXPECT_EQ(settings.mode, WandbMode::kOffline);
  EXPECT_FALSE(settings.lacks_key);
  const WandbSettings other = settings_of({{"WANDB_CONFIG_DIR", folder.file(".config/wandb")},
                                           {"WANDB_ENTITY", "me"},
                                           {"WANDB_MODE", "disabled"}});
  EXPECT_EQ(other.entity, "me");
  EXPECT_EQ(other.mode, WandbMode::kDisabled);
}

TEST(WandbSettingsTest, WithoutAKeyTheRunIsKeptInAFile) {
  const test::TemporaryDirectory folder;
  const WandbSettings settings = settings_of({{"HOME", folder.path()}});
  EXPECT_EQ(settings.mode, WandbMode::kOffline);
  EXPECT_TRUE(settings.lacks_key);
  EXPECT_EQ(
      settings.key_place,
      cat("WANDB_API_KEY, or a line `machine api.forge.coreweave.com login user password KEY` of ",
          folder.file(".netrc")));
  WandbConfig config;
  config.force = true;
  EXPECT_EQ(test::error_of<UserError>([&] {
              settings_of({{"HOME", folder.path()}}, config);
            }),
            "there is no API key, and force wants one: set " + settings.key_place);
}

TEST(WandbSettingsTest, WrongVariablesAreExplained) {
  const auto error = [](const Variables& variables) {
    return test::error_of<UserError>([&] { settings_of(variables); });
  };
  EXPECT_EQ(error({{"WANDB_MODE", "on"}}),
            "WANDB_MODE takes one of online, offline, disabled, found 'on'");
  EXPECT_EQ(error({{"WANDB_RESUME", "yes"}}),
            "WANDB_RESUME takes one of allow, must, never, auto, found 'yes'");
  EXPECT_EQ(error({{"WANDB_HTTP_TIMEOUT", "0"}}), "WANDB_HTTP_TIMEOUT takes seconds, found '0'");
  EXPECT_EQ(error({{"WANDB_BASE_URL", "wandb.own.org"}}),
            "WANDB_BASE_URL: 'wandb.own.org' does not begin with http:// or https://; expected a "
            "W&B server, http://HOST:PORT or https://HOST");
  EXPECT_EQ(error({{"WANDB_BASE_URL", "http://user:secret@own"}}),
            "WANDB_BASE_URL: a user and password do not belong in an address, where they would be "
            "shown; expected a W&B server, http://HOST:PORT or https://HOST");
  EXPECT_EQ(error({{"WANDB_RESUME", "run"}}),
            "WANDB_RESUME takes one of allow, must, never, auto, found 'run'");
  EXPECT_EQ(error({{"WANDB_NOTES", "\xff"}}), "WANDB_NOTES is not UTF-8");
  EXPECT_EQ(error({{"WANDB_TAGS", "a,,b"}}), "WANDB_TAGS: a tag has 1 to 64 characters, found ''");
  EXPECT_THAT(error({{"WANDB_PROJECT", "a/b"}}), HasSubstr("WANDB_PROJECT: a project's name has"));
  EXPECT_EQ(error({{"WANDB_RUN_ID", ".."}}), "WANDB_RUN_ID: '..' is a folder, and no run's id");
  EXPECT_EQ(error({{"WANDB_RUN_ID", "a/b"}}),
            "WANDB_RUN_ID: a run's id has none of : ; , # ? / ', found '/' in 'a/b'");
}

TEST(WandbSettingsTest, NamesThatWandbTakes) {
  EXPECT_EQ(problem_of_project("a project_1.2-x"), "");
  EXPECT_EQ(problem_of_project(""), "expected the name of a project, found ''");
  EXPECT_THAT(problem_of_project("a:b"), HasSubstr("found ':' in 'a:b'"));
  EXPECT_EQ(problem_of_project(std::string(129, 'a')),
            "a project's name has 128 characters at most, found 129");
  std::string long_name;
  for (int i = 0; i < 128; ++i) long_name += "é";
  EXPECT_EQ(problem_of_project(long_name), "");
  EXPECT_EQ(problem_of_tag(long_name.substr(0, 128)), "");
  EXPECT_EQ(problem_of_tag(""), "a tag has 1 to 64 characters, found ''");
  EXPECT_EQ(problem_of_run_id("a b-1"), "");
  EXPECT_THAT(problem_of_run_id(" a"), HasSubstr("without white space around it, found ' a'"));
  EXPECT_THAT(problem_of_run_id("a'b"), HasSubstr("found ''' in 'a'b'"));
}

TEST(WandbSettingsTest, NetrcFilesAreReadAsElsewhere) {
  const std::string text =
      "# a comment\nmachine a login password password secret-a\nmachine b:8080 login u # note\n"
      "account x password secret-b machine c login u\ndefault login u password of-all\n";
  EXPECT_EQ(netrc_password(text, "a"), "secret-a");
  EXPECT_EQ(netrc_password(text, "b:8080"), "secret-b");
  EXPECT_EQ(netrc_password(text, "d"), "of-all");
  // The machine's own goes before that of all, the last of several counts.
  EXPECT_EQ(
      netrc_password("default password of-all\nmachine a password 1\nmachine a password 2", "a"),
      "2");
  EXPECT_EQ(netrc_password("machine a login \"u v\" password \"s t\"", "a"), "s t");
  EXPECT_EQ(netrc_password("macdef m\nmachine a password no\n\nmachine a password yes", "a"),
            "yes");
  EXPECT_EQ(netrc_password("machine a login u", "a"), "");
  EXPECT_EQ(netrc_password("machine a password", "a"), "");
  EXPECT_EQ(netrc_password("", "a"), "");
}

}  // namespace
}  // namespace automodel::trackers
