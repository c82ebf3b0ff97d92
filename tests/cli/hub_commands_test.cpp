#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "core/error.h"
#include "core/file.h"
#include "core/json.h"
#include "support/hub_server.h"
#include "support/program.h"
#include "support/temporary_directory.h"

namespace automodel::test {
namespace {

using testing::HasSubstr;
using testing::Not;

constexpr const char* kRecipe = R"(recipe: TrainFinetuneRecipeForNextTokenPrediction
step_scheduler:
  global_batch_size: 4
  local_batch_size: 2
  max_steps: 3
dist_env:
  backend: gloo
model:
  _target_: nemo_automodel.NeMoAutoModelForCausalLM.from_pretrained
  pretrained_model_name_or_path: org/tiny
  torch_dtype: float32
distributed:
  strategy: ddp
dataset:
  _target_: nemo_automodel.components.datasets.llm.hellaswag.HellaSwag
  path_or_dataset: org/rows
  split: train[:8]+validation[:4]
loss_fn:
  _target_: nemo_automodel.components.loss.masked_ce.MaskedCrossEntropy
optimizer:
  _target_: torch.optim.AdamW
  lr: 1.0e-3
)";

class HubCommandsTest : public testing::Test {
 protected:
  HubCommandsTest() {
    const std::string tiny = source_file("tests/recipes/data/tiny_llama/");
    server_.add("models/org/tiny", "config.json", read_file(tiny + "config.json"));
    server_.add("models/org/tiny", "model.safetensors", read_file(tiny + "model.safetensors"),
                true);
    server_.add("models/org/tiny", "pytorch_model.bin", "a pickle", true);
    const std::string tokenizer = source_file("configs/quickstart_tokenizer/");
    for (const std::string& name : list_directory(tokenizer)) {
      if (name.starts_with("tokenizer")) {
        server_.add("models/org/tiny", name, read_file(tokenizer + name));
      }
    }
    const std::pair<const char*, const char*> splits[] = {
        {"train", "hellaswag"}, {"validation", "hellaswag_validation"}, {"test", "squad"}};
    for (const auto& [split, table] : splits) {
      server_.add("datasets/org/rows", cat("data/", split, "-00000-of-00001.parquet"),
                  read_file(source_file(cat("tests/tables/data/", table, ".parquet"))), true);
    }
    folder_.write("recipe.yaml", kRecipe);
  }

  ProgramResult run(std::vector<std::string> arguments,
                    const std::vector<std::string>& environment = {}) {
    arguments.insert(arguments.begin(), automodel_binary());
    std::vector<std::string> all = environment;
    for (std::string one :
         {cat("HF_ENDPOINT=", server_.endpoint()), cat("HF_HOME=", folder_.file("home")),
          std::string("HF_HUB_OFFLINE=0"), std::string("HF_TOKEN=")}) {
      all.push_back(std::move(one));
    }
    return run_program(arguments, all);
  }
  ProgramResult train(const std::string& checkpoints, const std::vector<std::string>& more = {},
                      const std::vector<std::string>& environment = {}) {
    std::vector<std::string> arguments = {
        "run", recipe_, "--checkpoint.checkpoint_dir=" + folder_.file(checkpoints)};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return run(arguments, environment);
  }
  std::vector<std::string> losses(const std::string& checkpoints) const {
    std::vector<std::string> texts;
    for (const std::string& line :
         split(read_file(folder_.file(checkpoints + "/training.jsonl")), '\n')) {
      if (!line.empty()) texts.push_back(Json::parse(line, "log").at("loss").dump());
    }
    return texts;
  }
  /// How often each file was asked for.
  size_t asked(const std::string& name) const { return server_.num_requests(name); }

  HubServer server_;
  TemporaryDirectory folder_;
  std::string recipe_ = folder_.file("recipe.yaml");
};

TEST_F(HubCommandsTest, PlanFetchesTheConfigurationAlone) {
  const ProgramResult result = run({"plan", recipe_});
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_EQ(asked("/resolve/"), 1u);
  EXPECT_EQ(asked("config.json"), 1u);
}

TEST_F(HubCommandsTest, CheckFetchesNoWeightsAndNoRows) {
  const ProgramResult result = run({"check", recipe_});
  EXPECT_EQ(result.status, 0) << result.out;
  EXPECT_THAT(
      result.out,
      HasSubstr("note: 2 files are fetched from the hub when it runs: columns were not looked "
                "at [dataset]"));
  EXPECT_THAT(result.out, HasSubstr("ok for 1 rank"));
  EXPECT_EQ(asked("/store/"), 0u);
  EXPECT_EQ(asked("tokenizer.json"), 1u);
  EXPECT_THAT(run({"check", recipe_, "--dataset.split=trian"}).out,
              HasSubstr("dataset 'org/rows' has no split 'trian'; did you mean 'train'?; by the "
                        "names of its files it has: train, validation, test"));
}

TEST_F(HubCommandsTest, ANewRecipeNamesTheHubsModelAndDataAndFetchesNoWeights) {
  server_.add("datasets/org/pairs", "train.jsonl",
              read_file(source_file("tests/recipes/data/rows.jsonl")));
  const std::string made = folder_.file("made.yaml");
  const ProgramResult result =
      run({"new", "--task", "sft", "--model", "org/tiny", "--data", "org/pairs", "-o", made});
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_EQ(asked("/store/"), 0u);
  const std::string text = read_file(made);
  EXPECT_THAT(text, HasSubstr("pretrained_model_name_or_path: org/tiny\n"));
  EXPECT_THAT(text, HasSubstr("path_or_dataset_id: org/pairs\n"));
  EXPECT_THAT(text, HasSubstr("question: question\n    answer: answer\n"));
  const ProgramResult absent = run({"new", "--task", "sft", "--model", "org/none", "--data",
                                    "org/pairs", "-o", folder_.file("absent.yaml")});
  EXPECT_EQ(absent.status, 3);
  EXPECT_THAT(absent.err, HasSubstr("model 'org/none'"));
  EXPECT_FALSE(path_exists(folder_.file("absent.yaml")));
}

TEST_F(HubCommandsTest, CheckOfflineAsksNobody) {
  const ProgramResult result = run({"check", recipe_}, {"HF_HUB_OFFLINE=1"});
  EXPECT_EQ(result.status, 0) << result.out;
  EXPECT_THAT(result.out, HasSubstr("'org/tiny' is not in the local Hugging Face cache"));
  EXPECT_EQ(server_.requests().size(), 0u);
}

TEST_F(HubCommandsTest, ARunFetchesWhatItReadsAndNeedsNobodyAfterwards) {
  const ProgramResult first = train("first");
  ASSERT_EQ(first.status, 0) << first.err << first.out;
  EXPECT_EQ(asked("/store/"), 3u);  // weights, train, validation
  EXPECT_EQ(asked("test-00000"), 0u);
  EXPECT_EQ(asked("pytorch_model.bin"), 0u);
  const size_t num_requests = server_.requests().size();
  const ProgramResult second = train("second", {}, {"HF_HUB_OFFLINE=1"});
  ASSERT_EQ(second.status, 0) << second.err << second.out;
  EXPECT_EQ(server_.requests().size(), num_requests);
  EXPECT_EQ(losses("first"), losses("second"));
  EXPECT_EQ(losses("first").size(), 3u);
}

TEST_F(HubCommandsTest, OfSeveralRanksOneFetches) {
  server_.add_faults("/store/", {{.pause_seconds = 1}});
  const ProgramResult result = train("ranks", {"--nproc-per-node", "2"});
  ASSERT_EQ(result.status, 0) << result.err << result.out;
  const std::vector<HubRequest> requests = server_.requests();
  for (const HubRequest& request : requests) {
    EXPECT_EQ(
        std::count_if(requests.begin(), requests.end(),
                      [&](const HubRequest& other) { return other.target == request.target; }),
        1)
        << request.target;
  }
}

TEST_F(HubCommandsTest, WhatTheHubRefusesIsAFindingAtItsKey) {
  server_.demand_token("models/org/tiny", "secret");
  for (const char* command : {"check", "run"}) {
    const ProgramResult result = run({command, recipe_});
    EXPECT_EQ(result.status, 2) << result.err;
    EXPECT_THAT(
        result.out + result.err,
        HasSubstr(cat(recipe_, ":10:34: error: model 'org/tiny' is gated: ask for access at ",
                      server_.endpoint(),
                      "/org/tiny, and set HF_TOKEN "
                      "[model.pretrained_model_name_or_path]")));
  }
  EXPECT_EQ(run({"check", recipe_}, {"HF_TOKEN=secret"}).status, 0);
}

TEST_F(HubCommandsTest, AHubThatIsSilentIsANoteForCheckAndAnErrorForARun) {
  const std::string nobody = "HF_ENDPOINT=http://127.0.0.1:9";
  const ProgramResult checked = run({"check", recipe_}, {nobody});
  EXPECT_EQ(checked.status, 0) << checked.out;
  EXPECT_THAT(checked.out, HasSubstr("note: asking http://127.0.0.1:9 for model 'org/tiny': "));
  const ProgramResult planned = run({"plan", recipe_}, {nobody, "HF_HUB_ETAG_TIMEOUT=1"});
  EXPECT_EQ(planned.status, 3) << planned.err;
  EXPECT_THAT(planned.err,
              testing::ContainsRegex("recipe.yaml:[0-9]+:[0-9]+: error: asking "
                                     "http://127.0.0.1:9 for model 'org/tiny': .*; there is no "
                                     "org/tiny on this machine either "));
}

TEST_F(HubCommandsTest, ARunThatWasKilledWhileFetchingGoesOn) {
  server_.add_faults("/store/", {{.cut_after = 100000}, {.pause_seconds = 60}});
  Program program({automodel_binary(), "run", recipe_, "--model.torch_dtype=float32",
                   "--checkpoint.checkpoint_dir=" + folder_.file("killed")},
                  {cat("HF_ENDPOINT=", server_.endpoint()), cat("HF_HOME=", folder_.file("home")),
                   "HF_HUB_OFFLINE=0", "HF_TOKEN="});
  while (asked("/store/") < 2) ::usleep(10000);
  ::kill(program.pid(), SIGKILL);
  EXPECT_EQ(program.wait().status, 128 + SIGKILL);
  EXPECT_EQ(train("killed").status, 0);
  const std::vector<HubRequest> requests = server_.requests();
  EXPECT_TRUE(std::any_of(requests.begin(), requests.end(), [](const HubRequest& request) {
    return request.range == "bytes=100000-";
  }));
}

TEST_F(HubCommandsTest, InspectDataFetchesDataAndNoWeights) {
  const ProgramResult result = run({"inspect-data", recipe_, "--samples", "1"});
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("12 rows; of the first ones:"));
  EXPECT_EQ(server_.num_requests("model.safetensors"), 0u);
}

}  // namespace
}  // namespace automodel::test
