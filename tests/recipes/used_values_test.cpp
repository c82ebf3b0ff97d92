// Values that come from the environment: what ranks compare and what is kept beside a checkpoint.
#include <gmock/gmock.h>

#include "comm/ranks.h"
#include "recipes/runs.h"

namespace automodel::recipes {
namespace {

using test::ProgramResult;
using testing::HasSubstr;

TEST(UsedValuesTest, ACheckpointsRecipeHoldsTheValuesAndItsLogDoesNot) {
  const test::TemporaryDirectory folder;
  const ProgramResult run = test::run_program(
      test::smoke_run(folder.file("run"),
                      {"--optimizer.lr=${LEARNING_RATE}", "--step_scheduler.max_steps=1"}),
      {"LEARNING_RATE=0.00123"});
  ASSERT_EQ(run.status, 0) << run.err;
  const std::string kept = read_file(folder.file("run/LATEST/config.yaml"));
  EXPECT_THAT(kept, HasSubstr("lr: '0.00123'"));
  EXPECT_THAT(kept, testing::Not(HasSubstr("LEARNING_RATE")));
  EXPECT_THAT(run.out, HasSubstr("${LEARNING_RATE}"));
}

TEST(UsedValuesTest, RanksWithOtherValuesAreRefused) {
  const test::TemporaryDirectory folder;
  const std::string port = cat("MASTER_PORT=", comm::free_port());
  std::vector<std::unique_ptr<test::Program>> ranks;
  for (const char* rank : {"0", "1"}) {
    ranks.push_back(std::make_unique<test::Program>(
        test::smoke_run(folder.file("run"), {"--optimizer.lr=${LEARNING_RATE}"}),
        std::vector<std::string>{cat("RANK=", rank), "WORLD_SIZE=2", "MASTER_ADDR=127.0.0.1", port,
                                 "AUTOMODEL_RUN_SECRET=of this test",
                                 cat("LEARNING_RATE=0.00", rank, "1")}));
  }
  for (const auto& rank : ranks) {
    const ProgramResult result = rank->wait();
    EXPECT_EQ(result.status, 2);
    EXPECT_THAT(result.err, HasSubstr("rank 1 has another recipe or overrides than rank 0"));
  }
}

TEST(UsedValuesTest, RanksWithAnotherSecretAreRefused) {
  const test::TemporaryDirectory folder;
  const std::string port = cat("MASTER_PORT=", comm::free_port());
  std::vector<std::unique_ptr<test::Program>> ranks;
  for (const char* rank : {"0", "1"}) {
    ranks.push_back(std::make_unique<test::Program>(
        test::smoke_run(folder.file("run"), {"--dist_env.timeout_minutes=0.05"}),
        std::vector<std::string>{cat("RANK=", rank), "WORLD_SIZE=2", "MASTER_ADDR=127.0.0.1", port,
                                 cat("AUTOMODEL_RUN_SECRET=", rank)}));
  }
  const ProgramResult served = ranks[0]->wait(), refused = ranks[1]->wait();
  EXPECT_EQ(served.status, 4);
  EXPECT_THAT(served.err, HasSubstr("rank 1 did not start within 3.0 s"));
  EXPECT_EQ(refused.status, 4);
  EXPECT_THAT(refused.err, HasSubstr("who answers does not know this run's secret"));
}

}  // namespace
}  // namespace automodel::recipes
