#include "config/origins.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "config/bind.h"
#include "core/text.h"

namespace automodel::config {
namespace {

struct Schedule {
  int64_t max_steps = 10;
  double decay = 0.5;
  std::vector<std::string> signals = {"SIGTERM"};
  static constexpr auto fields() {
    return std::tuple{field("max_steps", &Schedule::max_steps, "steps"),
                      field("decay", &Schedule::decay, "decay"),
                      field("signals", &Schedule::signals, "signals")};
  }
};

constexpr const char* kRecipe =
    "schedule:\n"
    "  max_steps: 20\n"
    "data:\n"
    "  files: [a, b]\n"
    "  sets:\n"
    "  - name: x\n"
    "  empty: {}\n"
    "wandb:\n"
    "  api_key: very secret\n"
    "  project: ${PROJECT}\n";

Json values_of(const std::vector<std::string>& overrides) {
  const Environment environment = [](const std::string&) { return std::optional("of mine"); };
  const Document document = load_text(kRecipe, "r.yaml", overrides, environment);
  Diagnostics diagnostics(document.sources);
  bind<Schedule>(*document.root.find("schedule"), diagnostics);
  note_defaults(Schedule{}, "absent", diagnostics);
  return values_with_origins(document, diagnostics);
}

TEST(OriginsTest, EveryValueSaysWhereItComesFrom) {
  Json values = values_of({"--data.files.1=c", "--new.key=3", "--schedule.decay=0.25"});
  std::string all;
  for (const auto& [key, entry] : values.as_object()) {
    all += cat(key, " = ", entry.at("value").dump(), "  ", entry.at("origin").as_string(), "\n");
  }
  EXPECT_EQ(all,
            "schedule.max_steps = 20  r.yaml:2\n"
            "schedule.decay = 0.25  command line\n"
            "data.files = [\"a\", \"c\"]  r.yaml:4\n"
            "data.sets.0.name = \"x\"  r.yaml:6\n"
            "data.empty = {}  r.yaml:7\n"
            "wandb.api_key = \"******\"  r.yaml:9\n"
            "wandb.project = \"${PROJECT}\"  r.yaml:10\n"
            "new.key = 3  command line\n"
            "absent.decay = 0.5  default\n"
            "absent.max_steps = 10  default\n"
            "absent.signals = [\"SIGTERM\"]  default\n"
            "schedule.signals = [\"SIGTERM\"]  default\n");
}

TEST(OriginsTest, SecretsAreHiddenInACommandLine) {
  using Texts = std::vector<std::string>;
  EXPECT_EQ(without_secrets({"automodel", "run", "r.yaml", "--wandb.api_key=abc", "--hub.token",
                             "xyz", "model.auth.key=1", "--optimizer.lr=1e-3", "--eos_token=</s>"}),
            (Texts{"automodel", "run", "r.yaml", "--wandb.api_key=******", "--hub.token", "******",
                   "model.auth.key=******", "--optimizer.lr=1e-3", "--eos_token=</s>"}));
  EXPECT_EQ(without_secrets({"token", "--token", "--flag"}), (Texts{"token", "--token", "--flag"}));
  EXPECT_EQ(without_secrets({"--wandb.api_key", "-abc", "--wandb={'enable': False, 'api_key': 'a'}",
                             "--wandb", "{'more': [{'token': 'a'}]}", "--model={'dim': 1}"}),
            (Texts{"--wandb.api_key", "******", "--wandb=******", "--wandb", "******",
                   "--model={'dim': 1}"}));
}

}  // namespace
}  // namespace automodel::config
