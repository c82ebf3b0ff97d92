#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <cstdlib>
#include <filesystem>
#include <random>
#include <thread>

#include "checkpoint/hf_folder.h"
#include "recipes/runs.h"

namespace automodel::recipes {
namespace {

using test::Program;
using test::ProgramResult;
using test::read_records;
using test::TemporaryDirectory;

constexpr int kSteps = 30;
constexpr int kPreempted = 75;

/// Shuffled epochs, a schedule and validation, with a save (all files) every third step.
std::vector<std::string> arguments_of(const std::string& folder, const test::Spread& spread) {
  return test::on(
      spread,
      test::smoke_run(
          folder, {cat("--step_scheduler.max_steps=", kSteps), "--step_scheduler.num_epochs=10",
                   "--step_scheduler.ckpt_every_steps=3", "--checkpoint.save_consolidated=every",
                   "--checkpoint.max_recent_checkpoints=2", "--lr_scheduler.lr_decay_style=cosine",
                   "--lr_scheduler.lr_warmup_steps=4"}));
}

/// What a line of the log says of the training itself.
std::string content_of(const Json& record) {
  Json content = Json::object();
  for (const char* key :
       {"step", "epoch", "loss", "grad_norm", "lr", "num_tokens_per_step", "num_label_tokens"}) {
    content[key] = record.at(key);
  }
  return content.dump();
}

std::vector<std::string> contents_of(const std::string& folder) {
  std::vector<std::string> contents;
  for (const Json& record : read_records(path_join(folder, "training.jsonl"))) {
    contents.push_back(content_of(record));
  }
  return contents;
}

std::string exported_weights(const std::string& folder) {
  return read_file(path_join(folder, "LATEST/model/consolidated/model-00001-of-00001.safetensors"));
}

int kills_wanted() {
  const char* text = std::getenv("AUTOMODEL_KILLS");
  return text == nullptr ? 12 : static_cast<int>(parse_int(text).value_or(12));
}

/// Runs that are killed at random moments and started again until they are done, for a number of
/// kills: every one must end with the lines and the weights of the run that nobody disturbed.
void kill_and_continue(const test::Spread& spread, int num_kills) {
  const TemporaryDirectory folder;
  const std::string whole = folder.file("whole");
  const ProgramResult undisturbed = test::run_program(arguments_of(whole, spread));
  ASSERT_EQ(undisturbed.status, 0) << undisturbed.err;
  const std::vector<std::string> wanted = contents_of(whole);
  ASSERT_EQ(wanted.size(), static_cast<size_t>(kSteps));

  std::mt19937 random(static_cast<unsigned>(spread.num_ranks));
  std::uniform_real_distribution<double> moment(0.1, undisturbed.seconds);
  int kills = 0;
  for (int run = 0; kills < num_kills; ++run) {
    const std::string place = folder.file(cat("run", run));
    for (bool is_done = false; !is_done;) {
      const int signal = random() % 3 == 0 ? SIGTERM : SIGKILL;
      Program program(arguments_of(place, spread));
      std::this_thread::sleep_for(std::chrono::duration<double>(moment(random)));
      ::kill(program.pid(), signal);
      const ProgramResult result = program.wait();
      is_done = result.status == 0;
      const bool is_expected =
          is_done || result.status == 128 + signal || result.status == kPreempted;
      ASSERT_TRUE(is_expected) << "status " << result.status << " after signal " << signal << "\n"
                               << result.err;
      kills += is_done ? 0 : 1;
    }
    EXPECT_EQ(contents_of(place), wanted) << "run " << run << " after " << kills << " kills";
    EXPECT_EQ(exported_weights(place), exported_weights(whole)) << "run " << run;
  }
}

TEST(ResumeTest, AKilledRunContinuesBitForBit) {
  kill_and_continue({1, {}}, kills_wanted());
}

TEST(ResumeTest, AKilledRunOfTwoRanksContinuesBitForBit) {
  kill_and_continue({2, {}}, kills_wanted() / 2);
}

TEST(ResumeTest, AKilledShardedRunContinuesBitForBit) {
  kill_and_continue(test::sharded(2), kills_wanted() / 2);
}

/// Saved on one spread, continued on another: the following steps are those of the run that went
/// on.
TEST(ResumeTest, CheckpointsFitAnyNumberOfRanksAndStrategy) {
  const TemporaryDirectory folder;
  const auto arguments = [&](const test::Spread& spread, const std::string& place) {
    return test::on(
        spread, test::smoke_run(folder.file(place),
                                {"--dataset.path_or_dataset_id=recipes/data/gsm8k_train.jsonl",
                                 "--step_scheduler.global_batch_size=12",
                                 "--step_scheduler.local_batch_size=1", "--optimizer.lr=1e-3"}));
  };
  const auto megatron = [](int num_ranks, int stage) {
    return test::Spread{
        num_ranks,
        {"--distributed.strategy=megatron_fsdp", cat("--distributed.zero_dp_strategy=", stage)}};
  };
  using Named = std::pair<std::string, test::Spread>;
  const std::vector<Named> saving = {
      {"one", {1, {}}},
      {"ddp2", {2, {}}},
      {"fsdp2", test::sharded(2)},
      {"fsdp4", test::sharded(4)},
      {"hsdp4", test::sharded(4, {"--distributed.dp_replicate_size=2"})},
      {"tp2", test::sharded(2, {"--distributed.tp_size=2"})},
      {"tp2fsdp4", test::sharded(4, {"--distributed.tp_size=2"})},
      {"zero1 on 2", megatron(2, 1)},
      {"zero2 on 4", megatron(4, 2)}};
  const std::vector<Named> loading = {
      {"one", {1, {}}},
      {"ddp3", {3, {}}},
      {"fsdp3", test::sharded(3)},
      {"hsdp4", test::sharded(4, {"--distributed.dp_replicate_size=2"})},
      {"tp2", test::sharded(2, {"--distributed.tp_size=2"})},
      {"zero1 on 2", megatron(2, 1)}};
  for (const auto& [from, saved] : saving) {
    const std::string place = folder.file(from);
    ASSERT_EQ(test::run_program(arguments(saved, from)).status, 0);
    const std::vector<Json> wanted = read_records(path_join(place, "training.jsonl"));
    for (const auto& [to, loaded] : loading) {
      SCOPED_TRACE(cat(from, " to ", to));
      const std::string name = cat(from, "-", to);
      std::vector<std::string> again = arguments(loaded, name);
      again.push_back(cat("--checkpoint.restore_from=", place, "/epoch_0_step_2"));
      const ProgramResult run = test::run_program(again);
      ASSERT_EQ(run.status, 0) << run.err;
      const std::vector<Json> found = read_records(path_join(folder.file(name), "training.jsonl"));
      ASSERT_EQ(found.size(), 3u);
      for (size_t i = 0; i < found.size(); ++i) {
        const Json& step = wanted[i + 3];
        EXPECT_EQ(found[i].at("step").as_int(), step.at("step").as_int());
        EXPECT_NEAR(found[i].at("loss").as_double() / step.at("loss").as_double(), 1, 2e-6);
        EXPECT_NEAR(found[i].at("grad_norm").as_double() / step.at("grad_norm").as_double(), 1,
                    2e-6);
      }
    }
  }
}

// What an update adds below the parameters' precision is saved too.
TEST(ResumeTest, KeptFloat32WeightsContinueBitForBit) {
  const TemporaryDirectory folder;
  const auto run = [&](const std::string& kept, const std::string& place,
                       const std::vector<std::string>& more) {
    std::vector<std::string> changes = {
        "--model.torch_dtype=bfloat16", "--optimizer._target_=fused_adam", "--optimizer.lr=1e-5",
        cat("--optimizer.store_param_remainders=", kept), "--optimizer.betas=[0.9,0.999]"};
    changes.insert(changes.end(), more.begin(), more.end());
    const ProgramResult result =
        test::run_program(test::on(test::sharded(2), test::smoke_run(folder.file(place), changes)));
    EXPECT_EQ(result.status, 0) << result.err;
    return contents_of(folder.file(place));
  };
  for (const std::string kept : {"true", "false"}) {
    const std::string whole = cat("whole ", kept), rest = cat("rest ", kept);
    const std::vector<std::string> wanted = run(kept, whole, {});
    ASSERT_GT(wanted.size(), 4u);
    const std::vector<std::string> found =
        run(kept, rest, {cat("--checkpoint.restore_from=", folder.file(whole), "/epoch_0_step_2")});
    EXPECT_EQ(found, std::vector<std::string>(wanted.begin() + 3, wanted.end()));
    EXPECT_TRUE(exported_weights(folder.file(rest)) == exported_weights(folder.file(whole)));
  }
}

TEST(ResumeTest, TheFolderThatASplitRunExportsIsWhole) {
  const TemporaryDirectory folder;
  const auto exported = [&](const test::Spread& spread, const std::string& place) {
    const ProgramResult run =
        test::run_program(test::on(spread, test::smoke_run(folder.file(place))));
    EXPECT_EQ(run.status, 0) << run.err;
    return checkpoint::HfFolder::open(folder.file(place) + "/LATEST/model/consolidated");
  };
  const checkpoint::HfFolder one = exported({1, {}}, "one");
  const checkpoint::HfFolder split =
      exported(test::sharded(2, {"--distributed.tp_size=2"}), "split");
  ASSERT_EQ(split.names(), one.names());
  for (const std::string& name : one.names()) {
    const auto values = [&](const checkpoint::HfFolder& from) {
      const checkpoint::HfFolder::Place place = *from.find(name);
      at::Tensor out = at::empty({place.entry->numel()});
      from.file(place.file).read_elements(*place.entry, 0, out);
      return out;
    };
    const at::Tensor wanted = values(one);
    const double off = (values(split) - wanted).norm().item<double>();
    // Six steps of AdamW turn roundings of small gradients into parts of the learning rate.
    EXPECT_LT(off, 1e-4 * wanted.norm().item<double>()) << name;
  }
}

TEST(ResumeTest, WeightsThatAreContinuedInFewerBitsAreToldOf) {
  const TemporaryDirectory folder;
  const auto run = [&](const std::vector<std::string>& more) {
    const ProgramResult result = test::run_program(test::smoke_run(folder.file("run"), more));
    EXPECT_EQ(result.status, 0) << result.err;
    return result.err;
  };
  run({});
  const std::string text =
      "the checkpoint has weights in float32 (model.embed_tokens.weight) that this run "
      "keeps in bfloat16: they are rounded";
  EXPECT_EQ(run({"--step_scheduler.max_steps=8"}).find(text), std::string::npos);
  const std::string told = run({"--step_scheduler.max_steps=9", "--model.torch_dtype=bfloat16"});
  EXPECT_NE(told.find(text), std::string::npos) << told;
}

TEST(ResumeTest, SigtermSavesAndSaysHowToContinue) {
  const TemporaryDirectory folder;
  Program program(
      test::smoke_run(folder.file("run"),
                      {"--step_scheduler.max_steps=1000000", "--step_scheduler.num_epochs=1000000",
                       "--step_scheduler.ckpt_every_steps=1000000"}));
  const std::string log = folder.file("run/training.jsonl");
  test::wait_for_records(log);
  ::kill(program.pid(), SIGTERM);
  const ProgramResult run = program.wait();
  EXPECT_EQ(run.status, kPreempted);
  EXPECT_NE(run.out.find("stopped by SIGTERM after saving; start again to continue"),
            std::string::npos)
      << run.out;
  const int64_t last = read_records(log).back().at("step").as_int();
  EXPECT_TRUE(path_exists(folder.file(cat("run/LATEST/model/index.json")))) << last;
}

TEST(ResumeTest, AFinishedRunThatIsStartedAgainSaysWhyItDoesNothing) {
  const TemporaryDirectory folder;
  const auto run = [&](const std::vector<std::string>& more) {
    const ProgramResult result = test::run_program(test::smoke_run(folder.file("run"), more));
    EXPECT_EQ(result.status, 0) << result.err;
    return result.out;
  };
  const std::string first = run({});
  EXPECT_EQ(first.find("already finished"), std::string::npos);
  EXPECT_NE(first.find("done: 6 steps in "), std::string::npos) << first;
  EXPECT_NE(first.find(cat("; the model is in ", folder.file("run/epoch_0_step_5"),
                           "/model/consolidated\n")),
            std::string::npos)
      << first;
  EXPECT_NE(run({}).find("already finished: 6 of 6 steps are done; to train on, raise "
                         "step_scheduler.max_steps; to train anew, give another "
                         "checkpoint.checkpoint_dir\n"),
            std::string::npos);
  EXPECT_NE(
      run({"--step_scheduler.max_steps=4"})
          .find("already finished: 6 steps are done, and 4 were asked for; to train on, raise "
                "step_scheduler.max_steps; "),
      std::string::npos);
  // Its one epoch has no more steps.
  EXPECT_NE(run({"--step_scheduler.max_steps=none"})
                .find("to train on, raise "
                      "step_scheduler.num_epochs; "),
            std::string::npos);
}

TEST(ResumeTest, ABatchLargerThanTheDataIsWarnedOf) {
  const TemporaryDirectory folder;
  const ProgramResult run =
      test::run_program(test::smoke_run(folder.file("run"), {"--dataset.limit_dataset_samples=3"}));
  EXPECT_EQ(run.status, 0) << run.err;
  EXPECT_NE(
      (run.out + run.err)
          .find("a step takes 4 sequences (step_scheduler.global_batch_size), and dataset has "
                "3: an epoch is one step at most"),
      std::string::npos)
      << run.out;
}

/// Smaller batches make an epoch longer, but not the data that are left of it.
TEST(ResumeTest, ARunWhoseDataAreUsedUpSaysWhyItDoesNothing) {
  const TemporaryDirectory folder;
  std::vector<std::string> options = {"--dataset.limit_dataset_samples=20",
                                      "--step_scheduler.max_steps=none"};
  EXPECT_EQ(test::run_program(test::smoke_run(folder.file("run"), options)).status, 0);
  options.emplace_back("--step_scheduler.global_batch_size=2");
  const ProgramResult again = test::run_program(test::smoke_run(folder.file("run"), options));
  EXPECT_EQ(again.status, 0) << again.err;
  EXPECT_NE(again.out.find("already finished: 1 of 1 epochs are done; to train on, raise "
                           "step_scheduler.num_epochs; "),
            std::string::npos)
      << again.out;
}

TEST(ResumeTest, ADamagedCheckpointIsNamedAndTheOneBeforeIsTaken) {
  const TemporaryDirectory folder;
  const std::string place = folder.file("run");
  ASSERT_EQ(test::run_program(test::smoke_run(place)).status, 0);
  const std::string file =
      path_join(place, "epoch_0_step_5/model/shard-00001-model-00001-of-00001.safetensors");
  std::string bytes = read_file(file);
  bytes[bytes.size() / 2] ^= 1;
  write_file_atomic(file, bytes);
  const ProgramResult run = test::run_program(test::smoke_run(place));
  EXPECT_EQ(run.status, 0) << run.err;
  EXPECT_NE(run.err.find("epoch_0_step_5"), std::string::npos) << run.err;
  EXPECT_NE(run.out.find(cat("resumed from ", place, "/epoch_0_step_2")), std::string::npos)
      << run.out;
  EXPECT_EQ(read_records(path_join(place, "training.jsonl")).size(), 6u);
}

/// Arguments that put another model in the smoke recipe's place.
std::vector<std::string> with_another_model(std::vector<std::string> arguments) {
  for (const char* change :
       {"--model._target_=nemo_automodel.NeMoAutoModelForCausalLM.from_config",
        "--model.config._target_=transformers.AutoConfig.from_pretrained",
        "--model.config.pretrained_model_name_or_path=configs/quickstart_llama",
        "--model.pretrained_model_name_or_path=none"}) {
    arguments.emplace_back(change);
  }
  return arguments;
}

TEST(ResumeTest, ABaseWithoutWeightsIsRefusedBeforeTraining) {
  const TemporaryDirectory folder;
  const std::string base = folder.file("model");
  std::filesystem::copy(test::source_file("tests/recipes/data/tiny_llama"), base);
  const auto run = [&](int64_t steps, const std::string& consolidated) {
    return test::run_program(test::smoke_run(
        folder.file("run"), {cat("--model.pretrained_model_name_or_path=", base),
                             cat("--step_scheduler.max_steps=", steps),
                             cat("--checkpoint.save_consolidated=", consolidated)}));
  };
  ASSERT_EQ(run(1, "final").status, 0);
  remove_tree(path_join(base, "model.safetensors"));
  const ProgramResult refused = run(2, "final");
  EXPECT_EQ(refused.status, 3);
  EXPECT_NE(refused.err.find(cat(base, " has no weights any more, from which a model is saved: ")),
            std::string::npos)
      << refused.err;
  EXPECT_EQ(read_records(folder.file("run/training.jsonl")).size(), 1U);
  const ProgramResult plain = run(2, "false");
  EXPECT_EQ(plain.status, 0) << plain.err;
}

TEST(ResumeTest, ABaseThatGoesWhileTrainingCostsNoCheckpoint) {
  const TemporaryDirectory folder;
  const std::string base = folder.file("model"), place = folder.file("run");
  std::filesystem::copy(test::source_file("tests/recipes/data/tiny_llama"), base);
  Program program(test::smoke_run(
      place, {cat("--model.pretrained_model_name_or_path=", base), "--step_scheduler.max_steps=300",
              "--step_scheduler.num_epochs=1000", "--step_scheduler.ckpt_every_steps=300"}));
  test::wait_for_records(path_join(place, "training.jsonl"));
  remove_tree(path_join(base, "model.safetensors"));
  const ProgramResult run = program.wait();
  EXPECT_EQ(run.status, 0) << run.err;
  EXPECT_NE(run.err.find(cat("the weights of ", base, " are not there any more")),
            std::string::npos)
      << run.err;
  EXPECT_FALSE(exported_weights(place).empty());
}

TEST(ResumeTest, ACheckpointOfAnotherModelIsRefusedTensorByTensor) {
  const TemporaryDirectory folder;
  const std::string place = folder.file("run");
  ASSERT_EQ(test::run_program(test::smoke_run(place)).status, 0);
  const ProgramResult run = test::run_program(with_another_model(test::smoke_run(
      folder.file("other"), {cat("--checkpoint.restore_from=", place, "/LATEST")})));
  EXPECT_EQ(run.status, 3) << run.err;
  EXPECT_NE(run.err.find("is of another model: "), std::string::npos) << run.err;
  EXPECT_NE(run.err.find("hidden_size is 16 in the checkpoint and 160 here"), std::string::npos);
  EXPECT_NE(run.err.find("LATEST/model does not fit this model:"), std::string::npos) << run.err;
}

TEST(ResumeTest, AnotherModelsCheckpointsAreNeitherContinuedNorOverwritten) {
  const TemporaryDirectory folder;
  const std::string place = folder.file("run");
  ASSERT_EQ(test::run_program(test::smoke_run(place)).status, 0);
  const std::string before = exported_weights(place);
  const ProgramResult run = test::run_program(with_another_model(test::smoke_run(place)));
  EXPECT_EQ(run.status, 3);
  EXPECT_NE(run.err.find("Choose another checkpoint.checkpoint_dir"), std::string::npos) << run.err;
  EXPECT_EQ(exported_weights(place), before);
}

}  // namespace
}  // namespace automodel::recipes
