// Runs that end because their validation loss falls no more.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "recipes/runs.h"

namespace automodel::recipes {
namespace {

using test::ProgramResult;
using test::read_records;
using test::TemporaryDirectory;
using testing::HasSubstr;

/// Twelve steps that validate each, and save every second one.
ProgramResult run(const std::string& folder, const test::Spread& spread,
                  std::vector<std::string> more) {
  more.insert(
      more.begin(),
      {"--step_scheduler.max_steps=12", "--step_scheduler.num_epochs=none",
       "--step_scheduler.val_every_steps=1", "--step_scheduler.ckpt_every_steps=2",
       "--lr_scheduler=none", "--validation_dataset._target_=ColumnMappedTextInstructionDataset",
       "--validation_dataset.path_or_dataset_id=recipes/data/gsm8k_test.jsonl",
       "--validation_dataset.limit_dataset_samples=8",
       "--validation_dataset.column_mapping.question=question",
       "--validation_dataset.column_mapping.answer=answer",
       "--validation_dataset.tokenizer=configs/quickstart_tokenizer"});
  return test::run_program(test::on(spread, test::smoke_run(folder, more)));
}

/// How many steps a run has logged.
size_t num_steps(const std::string& folder) {
  return read_records(path_join(folder, "training.jsonl")).size();
}

std::string said(const ProgramResult& result) {
  return result.out + result.err;
}

// Nothing to speak of is learned, so the first loss stays the lowest by this threshold.
const std::vector<std::string> kFlat = {"--optimizer.lr=1e-12", "--early_stopping.threshold=0.01"};

TEST(EarlyStoppingTest, ARunEndsWhenItsLossFallsNoMore) {
  const TemporaryDirectory folder;
  for (const test::Spread& spread : {test::Spread{}, test::sharded(2)}) {
    const std::string results = folder.file(cat("run", spread.num_ranks));
    std::vector<std::string> options = kFlat;
    options.push_back("--early_stopping.patience=4");
    const ProgramResult ended = run(results, spread, options);
    EXPECT_EQ(ended.status, 0) << ended.err;
    EXPECT_EQ(num_steps(results), 5U);
    EXPECT_THAT(said(ended), HasSubstr("early stopping: 4 validations in a row had no loss 0.01 "
                                       "below "));
    EXPECT_THAT(said(ended), HasSubstr("that of step 0: the run ends [early_stopping]"));
    // It is saved and exported as a run that has come to its end.
    EXPECT_TRUE(path_exists(path_join(results, "LATEST/model/consolidated/config.json")));
    EXPECT_THAT(read_file(path_join(results, "events.jsonl")), HasSubstr(R"("early_stop")"));
    // The same command again has nothing to do, and a more patient one goes on.
    const ProgramResult again = run(results, spread, options);
    EXPECT_EQ(again.status, 0) << again.err;
    EXPECT_EQ(num_steps(results), 5U);
    EXPECT_THAT(said(again), HasSubstr("already finished: 4 validations in a row had no loss"));
    options.back() = "--early_stopping.patience=6";
    EXPECT_EQ(run(results, spread, options).status, 0);
    EXPECT_EQ(num_steps(results), 7U);
  }
}

TEST(EarlyStoppingTest, ARunThatIsContinuedGoesOnCounting) {
  const TemporaryDirectory folder;
  const std::string results = folder.file("run");
  std::vector<std::string> options = kFlat;
  options.push_back("--early_stopping.patience=4");
  options.push_back("--step_scheduler.max_steps=4");
  EXPECT_EQ(run(results, {}, options).status, 0);
  EXPECT_EQ(num_steps(results), 4U);
  options.pop_back();
  EXPECT_EQ(run(results, {}, options).status, 0);
  EXPECT_EQ(num_steps(results), 5U);
}

/// The last step may be the one that ends a run in either way.
TEST(EarlyStoppingTest, ALastStepThatStopsARunIsToldOf) {
  const TemporaryDirectory folder;
  const std::string results = folder.file("run");
  std::vector<std::string> options = kFlat;
  options.insert(options.end(), {"--early_stopping.patience=4", "--step_scheduler.max_steps=5"});
  EXPECT_THAT(said(run(results, {}, options)), HasSubstr("the run ends [early_stopping]"));
  EXPECT_THAT(said(run(results, {}, options)),
              HasSubstr("already finished: 5 of 5 steps are done"));
}

/// The loss of the set that LOWEST_VAL follows, without checkpoints too.
TEST(EarlyStoppingTest, OneOfSeveralSetsIsFollowed) {
  const TemporaryDirectory folder;
  const auto set = [](int num_rows) {
    return cat(
        "{'_target_': 'ColumnMappedTextInstructionDataset', 'path_or_dataset_id': "
        "'recipes/data/gsm8k_test.jsonl', 'limit_dataset_samples': ",
        num_rows,
        ", 'column_mapping': {'question': 'question', 'answer': 'answer'}, 'tokenizer': "
        "'configs/quickstart_tokenizer'}");
  };
  std::vector<std::string> options = kFlat;
  options.insert(options.end(),
                 {"--early_stopping.patience=2", "--checkpoint.enabled=false",
                  "--validation_dataset=none", cat("--validation_dataset_a=", set(3)),
                  cat("--validation_dataset_b=", set(8)), "--checkpoint.best_metric_key=b"});
  const std::string results = folder.file("run");
  const ProgramResult ended = test::run_program(test::smoke_run(results, [&] {
    options.insert(options.begin(), {"--step_scheduler.max_steps=12", "--lr_scheduler=none",
                                     "--step_scheduler.val_every_steps=1"});
    return options;
  }()));
  EXPECT_EQ(ended.status, 0) << ended.err;
  EXPECT_EQ(num_steps(results), 3U);
  const double loss =
      read_records(path_join(results, "validation_b.jsonl")).at(0).at("val_loss").as_double();
  EXPECT_THAT(said(ended), HasSubstr(cat("below ", format_fixed(loss, 4), ", that of step 0")));
}

TEST(EarlyStoppingTest, ALossIsLowerByMoreThanTheThreshold) {
  const TemporaryDirectory folder;
  const auto steps_with = [&](const char* threshold) {
    const std::string results = folder.file(threshold);
    EXPECT_EQ(run(results, {},
                  {cat("--early_stopping.threshold=", threshold), "--early_stopping.patience=2"})
                  .status,
              0);
    return num_steps(results);
  };
  EXPECT_EQ(steps_with("0"), 12U);  // the loss falls at every step
  EXPECT_EQ(steps_with("100"), 3U);
}

TEST(EarlyStoppingTest, WhatItCannotFollowIsTold) {
  const auto told = [](std::vector<std::string> more) {
    more.insert(more.begin(), {test::automodel_binary(), "check",
                               test::source_file("recipes/smoke/tiny_llama_sft.yaml")});
    return test::run_program(more).out;
  };
  EXPECT_THAT(told({"--early_stopping.patience=2", "--validation_dataset=none"}),
              HasSubstr("'early_stopping' has no effect: there is no validation_dataset"));
  EXPECT_THAT(told({"--early_stopping.patience=0"}), HasSubstr("patience"));
  const std::string set =
      "{_target_: ColumnMappedTextInstructionDataset, path_or_dataset_id: "
      "recipes/data/gsm8k_test.jsonl, column_mapping: {question: question, answer: answer}, "
      "tokenizer: configs/quickstart_tokenizer}";
  const std::vector<std::string> two = {cat("--validation_dataset_a=", set),
                                        cat("--validation_dataset_b=", set),
                                        "--validation_dataset=none", "--early_stopping.patience=2"};
  EXPECT_THAT(told(two), HasSubstr("error: best_metric_key 'default' names none of the validation "
                                   "sets, which are a, b: LOWEST_VAL and early_stopping would"));
  std::vector<std::string> chosen = two;
  chosen.push_back("--checkpoint.best_metric_key=b");
  EXPECT_THAT(told(chosen), testing::Not(HasSubstr("best_metric_key")));
}

}  // namespace
}  // namespace automodel::recipes
