#include "recipes/run/run_log.h"

#include <gmock/gmock.h>

#include "core/file.h"
#include "recipes/runs.h"

namespace automodel::recipes {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

class RunLogTest : public testing::Test {
 protected:
  RunLogTest() {
    recipe_.checkpoint.checkpoint_dir = folder_.path();
    for (const char* name : {"training.jsonl", "validation.jsonl", "validation_math.jsonl"}) {
      folder_.write(name, "{\"step\": 3}\n{\"step\": 7}\n{\"step\": 8");
    }
    folder_.write("validation_notes.txt", "mine\n");
  }

  RunLog open(int64_t first_step, bool is_resumed) {
    return {recipe_, comm::ProcessGroup::solo(), reporter_, first_step, is_resumed};
  }

  std::vector<int64_t> steps_of(const char* name) const {
    std::vector<int64_t> steps;
    for (const Json& record : test::read_records(folder_.file(name))) {
      steps.push_back(record.at("step").as_int());
    }
    return steps;
  }

  test::TemporaryDirectory folder_;
  SilentReporter reporter_;
  Recipe recipe_;
};

/// At once: a run may end before it validates again.
TEST_F(RunLogTest, ARunThatGoesOnDropsWhatItRepeatsFromEveryLog) {
  open(5, /*is_resumed=*/true);
  EXPECT_THAT(steps_of("training.jsonl"), ElementsAre(3));
  EXPECT_THAT(steps_of("validation.jsonl"), ElementsAre(3));
  EXPECT_THAT(steps_of("validation_math.jsonl"), ElementsAre(3));
  EXPECT_EQ(read_file(folder_.file("validation_notes.txt")), "mine\n");
}

TEST_F(RunLogTest, AFreshRunSetsEveryLogAside) {
  open(0, /*is_resumed=*/false);
  EXPECT_THAT(steps_of("training.jsonl"), IsEmpty());
  EXPECT_FALSE(path_exists(folder_.file("validation.jsonl")));
  EXPECT_TRUE(path_exists(folder_.file("validation.jsonl.old")));
  EXPECT_TRUE(path_exists(folder_.file("validation_math.jsonl.old")));
  EXPECT_TRUE(path_exists(folder_.file("validation_notes.txt")));
}

TEST_F(RunLogTest, RecordsComeAfterThoseThatAreKept) {
  RunLog log = open(5, /*is_resumed=*/true);
  Json record = Json::object();
  for (const auto& [key, value] : {std::pair<const char*, Json>{"step", Json(5)},
                                   {"epoch", Json(0)},
                                   {"val_loss", Json(1.5)},
                                   {"lr", Json(0.1)},
                                   {"num_label_tokens", Json(4)}}) {
    record[key] = value;
  }
  log.validation("math", record);
  log.validation("new", record);
  EXPECT_THAT(steps_of("validation_math.jsonl"), ElementsAre(3, 5));
  EXPECT_THAT(steps_of("validation_new.jsonl"), ElementsAre(5));
}

}  // namespace
}  // namespace automodel::recipes
