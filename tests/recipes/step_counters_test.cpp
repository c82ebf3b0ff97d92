// `run --timings`: what a step takes besides time.
#include "recipes/run/step_counters.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "recipes/runs.h"

namespace automodel::recipes {
namespace {

/// A small Qwen 3 on batches of one shape.
std::vector<std::string> run_of(const std::string& folder, const std::vector<std::string>& more) {
  std::vector<std::string> arguments = {test::automodel_binary(),
                                        "run",
                                        test::source_file("scripts/bench/qwen3_shape.yaml"),
                                        cat("--model.config.pretrained_model_name_or_path=",
                                            test::source_file("scripts/bench/qwen3_shape")),
                                        "--step_scheduler.max_steps=4",
                                        "--step_scheduler.local_batch_size=2",
                                        "--dataset.batch_size=2",
                                        "--dataset.seq_len=64",
                                        cat("--checkpoint.checkpoint_dir=", folder)};
  arguments.insert(arguments.end(), more.begin(), more.end());
  return arguments;
}

/// The event of such a run; null when there is none.
Json counters_of(int num_ranks, const std::vector<std::string>& options) {
  const test::TemporaryDirectory folder;
  std::vector<std::string> all = options;
  all.insert(all.begin(), "--timings");
  const auto run = test::on({num_ranks, all}, run_of(folder.path(), {}));
  const test::ProgramResult result = test::run_program(run);
  EXPECT_EQ(result.status, 0) << result.err;
  Json found;
  for (Json& event : test::read_records(folder.file("events.jsonl"))) {
    if (event.at("event").as_string() != "step_counters") continue;
    EXPECT_TRUE(found.is_null()) << "one step of a run is counted";
    EXPECT_NE(result.out.find("timings: step 2 takes "), std::string::npos) << result.out;
    found = std::move(event);
  }
  return found;
}

/// A tensor of a model's or a batch's size is copied nowhere, and a number is read a few times a
/// micro-batch, whatever the layers.
TEST(StepCountersTest, AStepCopiesNothingOfSizeAndReadsFewNumbers) {
  constexpr int64_t kNumMicroBatches = 4;
  for (const char* layers : {"6", "2"}) {
    SCOPED_TRACE(layers);
    const Json counters = counters_of(1, {cat("--model.config.num_hidden_layers=", layers),
                                          "--step_scheduler.global_batch_size=8"});
    ASSERT_FALSE(counters.is_null());
    EXPECT_EQ(counters.at("step").as_int(), 2);
    EXPECT_GT(counters.at("operators").as_int(), 100);
    EXPECT_GT(counters.at("copies").as_int(), 0);
    constexpr int64_t kHidden = 2 * 64 * 256 * 4;  // bytes of a micro-batch's
    EXPECT_LT(counters.at("copied_bytes").as_int(), kHidden / 2);
    EXPECT_EQ(counters.at("host_reads").as_int(), 4 * kNumMicroBatches + 1);
    EXPECT_GT(counters.at("large_pieces").as_int(), 40);
    EXPECT_LE(counters.at("mapped_pieces").as_int(), counters.at("large_pieces").as_int() / 20);
    EXPECT_TRUE(counters.at("traffic").as_object().empty());
  }
}

/// What `plan` says moves is what moves.
TEST(StepCountersTest, TheBytesBetweenRanksAreThePlans) {
  const std::vector<std::string> options = {"--distributed.strategy=fsdp2",
                                            "--step_scheduler.global_batch_size=8"};
  const Json counters = counters_of(2, options);
  ASSERT_FALSE(counters.is_null());
  const test::TemporaryDirectory folder;
  std::vector<std::string> plan = run_of(folder.path(), options);
  plan[1] = "plan";
  plan.insert(plan.end(), {"--world-size", "2", "--json"});
  const test::ProgramResult planned = test::run_program(plan);
  ASSERT_EQ(planned.status, 0) << planned.err;
  const Json collectives = Json::parse(planned.out, "plan").at("collectives_of_a_step");
  const Json& traffic = counters.at("traffic");
  EXPECT_EQ(traffic.at("all_gather").at("operations").dump(), collectives.at("num_gathers").dump());
  EXPECT_EQ(traffic.at("all_gather").at("bytes").dump(), collectives.at("gathered_bytes").dump());
  EXPECT_EQ(traffic.at("reduce_scatter").at("operations").dump(),
            collectives.at("num_reductions").dump());
  EXPECT_EQ(traffic.at("reduce_scatter").at("bytes").dump(),
            collectives.at("reduced_bytes").dump());
  EXPECT_LT(traffic.at("all_reduce").at("bytes").as_int(), 1000);  // counts, losses, norms
}

TEST(StepCountersTest, ARunOfTwoStepsHasNone) {
  EXPECT_TRUE(counters_of(1, {"--step_scheduler.max_steps=2"}).is_null());
}

}  // namespace
}  // namespace automodel::recipes
