#include "recipes/records/run_log.h"

#include <gmock/gmock.h>
#include <sys/stat.h>

#include <filesystem>

#include "core/file.h"
#include "core/text.h"
#include "recipes/runs.h"
#include "support/errors.h"
#include "support/file_size_limit.h"

namespace automodel::recipes {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

/// What validation writes of a step.
Json record_of(int64_t step) {
  Json record = Json::object();
  record["step"] = step;
  record["epoch"] = 0;
  record["timestamp"] = "2026-08-01T12:00:00Z";
  record["val_loss"] = 1.5;
  record["lr"] = 0.1;
  record["num_label_tokens"] = 4;
  return record;
}

class RunLogTest : public testing::Test {
 protected:
  RunLogTest() {
    for (const char* name : {"training.jsonl", "validation.jsonl", "validation_math.jsonl"}) {
      folder_.write(name, cat(record_of(3).dump(), "\n", record_of(7).dump(), "\n{\"step\": 8"));
    }
    folder_.write("validation_notes.txt", "mine\n");
  }

  RunLog open(int64_t first_step, bool is_resumed) {
    return {{folder_.path(), /*is_writing=*/true, first_step, is_resumed, {"default", "math"}},
            reporter_,
            events_};
  }

  std::vector<int64_t> steps_of(const char* name) const {
    std::vector<int64_t> steps;
    for (const Json& record : test::read_records(folder_.file(name))) {
      steps.push_back(record.at("step").as_int());
    }
    return steps;
  }

  test::TemporaryDirectory folder_;
  test::Warnings reporter_;
  loggers::RunEvents events_{reporter_, /*is_recording=*/true};
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

/// Data that lie in checkpoint_dir, as they do where that is the working folder.
TEST_F(RunLogTest, DataThatAreCalledAsALogMightBeAreLeftAlone) {
  const std::string rows =
      "{\"text\": \"a\"}\n{\"text\": \"b\", \"step\": 7}\n{\"step\": 8, \"text\": \"c\"}\n";
  folder_.write("validation_rows.jsonl", rows);
  create_directories(folder_.file("validation_more.jsonl"));
  std::filesystem::create_symlink("nowhere", folder_.file("validation_linked.jsonl"));
  for (const bool is_resumed : {true, false}) {
    open(5, is_resumed);
    EXPECT_EQ(read_file(folder_.file("validation_rows.jsonl")), rows);
    EXPECT_TRUE(is_directory(folder_.file("validation_more.jsonl")));
  }
}

TEST_F(RunLogTest, LongDataAreLeftAloneToo) {
  std::string rows;
  while (rows.size() < (70U << 10))
    rows += "{\"step\": 7, \"text\": \"" + std::string(99, 'a') + "\"}\n";
  folder_.write("validation_rows.jsonl", rows);
  ASSERT_EQ(::mkfifo(folder_.file("validation_pipe.jsonl").c_str(), 0600), 0);
  for (const bool is_resumed : {true, false}) {
    open(5, is_resumed);
    EXPECT_EQ(read_file(folder_.file("validation_rows.jsonl")), rows);
  }
}

TEST_F(RunLogTest, DataWhereALogBelongsEndTheRunAndStay) {
  for (const char* name : {"training.jsonl", "validation.jsonl", "validation_math.jsonl"}) {
    const std::string log = read_file(folder_.file(name));
    folder_.write(name, "{\"text\": \"a\"}\n");
    for (const bool is_resumed : {true, false}) {
      EXPECT_THAT(test::error_of<InputError>([&] { open(5, is_resumed); }),
                  testing::StartsWith(cat(folder_.file(name), " is no log of a run")));
      EXPECT_EQ(read_file(folder_.file(name)), "{\"text\": \"a\"}\n");
    }
    folder_.write(name, log);
  }
}

TEST_F(RunLogTest, ALogOfWhichACrashLeftPartsOnlyIsALog) {
  for (const char* text : {"", "{\"st", "{\"step\": 1, \"epo", "{\"step\": 1, \"epo\n"}) {
    folder_.write("training.jsonl", text);
    open(5, /*is_resumed=*/true);
    EXPECT_EQ(read_file(folder_.file("training.jsonl")), "") << text;
  }
  folder_.write("training.jsonl", std::string(9, '\0'));
  open(5, /*is_resumed=*/true);
  EXPECT_EQ(read_file(folder_.file("training.jsonl")), "");
}

TEST_F(RunLogTest, RecordsComeAfterThoseThatAreKept) {
  RunLog log = open(5, /*is_resumed=*/true);
  log.validation("math", record_of(5));
  log.validation("new", record_of(5));
  EXPECT_THAT(steps_of("validation_math.jsonl"), ElementsAre(3, 5));
  EXPECT_THAT(steps_of("validation_new.jsonl"), ElementsAre(5));
}

TEST_F(RunLogTest, AFullDiskLosesRecordsAndTheNextOneBeginsALine) {
  events_.open(folder_.path(), /*begins_anew=*/true);
  RunLog log = open(5, /*is_resumed=*/true);
  const std::string path = folder_.file("validation_math.jsonl");
  {
    const test::FileSizeLimit limit(file_size(path) + 8);  // takes half a line
    log.validation("math", record_of(5));
    log.validation("math", record_of(6));
  }
  log.validation("math", record_of(7));
  log.validation("math", record_of(8));
  EXPECT_EQ(reporter_.texts,
            std::vector<std::string>{
                cat("records of the run are lost: cannot write ", path, ": File too large")});
  EXPECT_EQ(read_file(path), cat(record_of(3).dump(), "\n{\"step\":\n", record_of(7).dump(), "\n",
                                 record_of(8).dump(), "\n"));
  std::vector<Json> events = test::read_records(folder_.file("events.jsonl"));
  ASSERT_EQ(events.size(), 1U);
  events[0].erase("timestamp");
  EXPECT_EQ(events[0].dump(),
            R"({"event": "lost_records", "file": "validation_math.jsonl", "num_lost": 2})");
}

TEST_F(RunLogTest, WhatIsNeverWrittenAgainIsToldAtTheEnd) {
  events_.open(folder_.path(), /*begins_anew=*/true);
  RunLog log = open(5, /*is_resumed=*/true);
  {
    const test::FileSizeLimit limit(file_size(folder_.file("validation.jsonl")));
    log.validation("default", record_of(5));
  }
  log.end();
  const std::vector<Json> events = test::read_records(folder_.file("events.jsonl"));
  ASSERT_EQ(events.size(), 1U);
  EXPECT_EQ(events[0].at("file").as_string(), "validation.jsonl");
  EXPECT_EQ(events[0].at("num_lost").as_int(), 1);
}

}  // namespace
}  // namespace automodel::recipes
