#include "trackers/mlflow_settings.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/error.h"
#include "support/errors.h"

namespace automodel::trackers {
namespace {

using testing::HasSubstr;
using testing::Not;

constexpr const char* kServer =
    "; expected an MLflow server, http://HOST:PORT or https://HOST (`mlflow server` starts one)";

std::string problem_of(const std::string& uri) {
  const auto problem = problem_of_tracking_uri(uri);
  if (!problem) return "none";
  return (problem->is_absent ? "absent: " : "wrong: ") + problem->text;
}

TEST(MlflowSettingsTest, AddressesOfServersAreTaken) {
  for (const char* uri : {"http://localhost:5000", "https://mlflow.example.org",
                          "HTTP://10.0.0.1/x/y", "http://[::1]:5000", "https://a_b-c:65535/"}) {
    EXPECT_EQ(problem_of(uri), "none") << uri;
  }
}

TEST(MlflowSettingsTest, WrongAddressesAreExplained) {
  EXPECT_EQ(problem_of("htp://host"),
            cat("wrong: 'htp://host' does not begin with http:// or https://", kServer));
  EXPECT_EQ(problem_of("localhost:5000"),
            cat("wrong: 'localhost:5000' does not begin with http:// or https://", kServer));
  EXPECT_EQ(problem_of("http://"), cat("wrong: it names no host", kServer));
  EXPECT_EQ(problem_of("http://:5000"), cat("wrong: it names no host", kServer));
  EXPECT_EQ(problem_of("http://host:port"), cat("wrong: 'port' is no port", kServer));
  EXPECT_EQ(problem_of("http://host:70000"), cat("wrong: '70000' is no port", kServer));
  EXPECT_EQ(problem_of("http://host/a b"),
            cat("wrong: 'http://host/a b' holds white space", kServer));
  EXPECT_EQ(problem_of("http://host/?a=b"),
            cat("wrong: 'http://host/' has a query behind it", kServer));
}

TEST(MlflowSettingsTest, StoresWithoutAServerAreNotInThisVersion) {
  for (const char* uri : {"file:///tmp/mlruns", "sqlite:///mlflow.db", "./mlruns", "/mlruns",
                          "databricks", "databricks://profile", "mysql+pymysql://host/db"}) {
    EXPECT_THAT(problem_of(uri), testing::StartsWith("absent: a store that is opened without"))
        << uri;
  }
}

TEST(MlflowSettingsTest, APasswordInAnAddressIsRefusedAndNotRepeated) {
  for (const char* uri : {"http://me:secret@host", "me:secret@host", "https://secret@host/x"}) {
    EXPECT_THAT(problem_of(uri), HasSubstr("MLFLOW_TRACKING_PASSWORD")) << uri;
    EXPECT_THAT(problem_of(uri), Not(HasSubstr("secret"))) << uri;
  }
}

TEST(MlflowSettingsTest, TheEnvironmentSaysWhatTheRecipeDoesNot) {
  const std::map<std::string, std::string> variables = {
      {"MLFLOW_TRACKING_URI", "http://environment/"},
      {"MLFLOW_TRACKING_TOKEN", "token"},
      {"MLFLOW_TRACKING_USERNAME", "user"},
      {"MLFLOW_TRACKING_PASSWORD", "password"},
      {"MLFLOW_TRACKING_INSECURE_TLS", "true"},
      {"MLFLOW_HTTP_REQUEST_TIMEOUT", "2.5"},
      {"MLFLOW_TRACKING_SERVER_CERT_PATH", "/ca"},
      {"MLFLOW_RUN_ID", "abc"},
      {"USER", "me"}};
  const Environment environment = [&](const char* name) {
    const auto found = variables.find(name);
    return found == variables.end() ? "" : found->second;
  };
  MlflowConfig config;
  const auto settings = MlflowSettings::from_environment(environment, config);
  EXPECT_EQ(settings.tracking_uri, "http://environment");
  EXPECT_EQ(settings.token, "token");
  EXPECT_EQ(settings.user, "user");
  EXPECT_EQ(settings.password, "password");
  EXPECT_FALSE(settings.checks_certificates);
  EXPECT_EQ(settings.timeout_seconds, 2.5);
  EXPECT_EQ(settings.ca_file, "/ca");
  EXPECT_EQ(settings.run_id, "abc");
  EXPECT_EQ(settings.user_name, "me");
  config.tracking_uri = "http://recipe";
  EXPECT_EQ(MlflowSettings::from_environment(environment, config).tracking_uri, "http://recipe");
}

TEST(MlflowSettingsTest, ATimeoutThatIsNoneIsAnError) {
  const Environment environment = [](const char* name) -> std::string {
    return std::string(name) == "MLFLOW_HTTP_REQUEST_TIMEOUT" ? "soon" : "";
  };
  EXPECT_EQ(test::error_of<UserError>([&] { MlflowSettings::from_environment(environment, {}); }),
            "MLFLOW_HTTP_REQUEST_TIMEOUT takes seconds, found 'soon'");
}

}  // namespace
}  // namespace automodel::trackers
