#include "loggers/run_events.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <thread>

#include "core/text.h"
#include "support/errors.h"
#include "support/file_size_limit.h"
#include "support/temporary_directory.h"

namespace automodel::loggers {
namespace {

using test::TemporaryDirectory;
using test::Warnings;

Json fields(std::string_view key, Json value) {
  Json all = Json::object();
  all[key] = std::move(value);
  return all;
}

/// The events of a file without their times, one a line; a line that is no JSON is "torn".
std::vector<std::string> events_in(const std::string& path) {
  std::vector<std::string> events;
  for (const std::string& line : split(read_file(path), '\n')) {
    if (line.empty()) continue;
    try {
      Json event = Json::parse(line, path);
      event.erase("timestamp");
      events.push_back(event.dump());
    } catch (const InputError&) {
      events.emplace_back("torn");
    }
  }
  return events;
}

using Texts = std::vector<std::string>;

TEST(RunEventsTest, WhatWasAddedBeforeTheFileIsOpenIsWrittenFirst) {
  const TemporaryDirectory folder;
  Warnings warnings;
  RunEvents events(warnings, true);
  events.add("start", fields("num_ranks", 2));
  events.open(folder.path(), true);
  events.add("save", fields("step", 3));
  EXPECT_EQ(events_in(folder.file("events.jsonl")),
            (Texts{R"({"event": "start", "num_ranks": 2})", R"({"event": "save", "step": 3})"}));
  EXPECT_EQ(warnings.texts, Texts{});
}

TEST(RunEventsTest, AnEventThatWaitsGetsWhatIsKnownLater) {
  const TemporaryDirectory folder;
  Warnings warnings;
  RunEvents events(warnings, true);
  events.add("start", fields("num_ranks", 2));
  events.add("load");
  events.amend("start", fields("changed", 1));
  events.amend("end", fields("changed", 2));
  events.open(folder.path(), true);
  events.amend("start", fields("changed", 3));
  EXPECT_EQ(events_in(folder.file("events.jsonl")),
            (Texts{R"({"event": "start", "num_ranks": 2, "changed": 1})", R"({"event": "load"})"}));
}

TEST(RunEventsTest, ARunThatBeginsAnewSetsTheFileAsideAndOneThatGoesOnAppends) {
  const TemporaryDirectory folder;
  Warnings warnings;
  for (const char* name : {"first", "second"}) {
    RunEvents events(warnings, true);
    events.open(folder.path(), name == std::string("first"));
    events.add(name);
  }
  EXPECT_EQ(events_in(folder.file("events.jsonl")),
            (Texts{R"({"event": "first"})", R"({"event": "second"})"}));
  RunEvents events(warnings, true);
  events.open(folder.path(), true);
  EXPECT_EQ(events_in(folder.file("events.jsonl")), Texts{});
  EXPECT_THAT(events_in(folder.file("events.jsonl.old")), testing::SizeIs(2));
}

TEST(RunEventsTest, ALineThatAKilledRunLeftHalfIsEnded) {
  const TemporaryDirectory folder;
  folder.write("events.jsonl", "{\"event\": \"sta");
  Warnings warnings;
  RunEvents events(warnings, true);
  events.open(folder.path(), false);
  events.add("resume");
  EXPECT_EQ(events_in(folder.file("events.jsonl")), (Texts{"torn", R"({"event": "resume"})"}));
}

TEST(RunEventsTest, AFileThatCannotBeWrittenIsToldOnceAndEndsNothing) {
  const TemporaryDirectory folder;
  Warnings warnings;
  std::filesystem::create_directory(folder.file("events.jsonl"));  // in the way
  RunEvents events(warnings, true);
  events.open(folder.path(), false);
  events.add("save");
  events.add("end");
  ASSERT_EQ(warnings.texts.size(), 1U);
  EXPECT_THAT(warnings.texts[0], testing::StartsWith(cat("events of the run are lost: cannot ")));
  write_run_record(folder.file("nowhere"), Json::object(), warnings);
  EXPECT_THAT(warnings.texts.back(), testing::StartsWith("the run is not described: "));
}

TEST(RunEventsTest, AFullDiskLosesLinesOnly) {
  // /dev/full takes no byte, and the name of the file cannot be chosen: a link leads there.
  const TemporaryDirectory folder;
  std::filesystem::create_symlink("/dev/full", folder.file("events.jsonl"));
  Warnings warnings;
  RunEvents events(warnings, true);
  events.open(folder.path(), false);
  for (int i = 0; i < 3; ++i) events.add("save");
  EXPECT_EQ(warnings.texts, Texts{cat("events of the run are lost: cannot write ",
                                      folder.file("events.jsonl"), ": No space left on device")});
}

TEST(RunEventsTest, ADiskThatHasSpaceAgainGetsWholeLinesAndHowManyAreMissing) {
  const TemporaryDirectory folder;
  Warnings warnings;
  RunEvents events(warnings, true);
  events.open(folder.path(), true);
  events.add("start");
  {
    const test::FileSizeLimit limit(file_size(folder.file("events.jsonl")) + 5);
    for (int i = 0; i < 3; ++i) events.add("save");
  }
  events.add("end");
  EXPECT_EQ(events_in(folder.file("events.jsonl")),
            (Texts{R"({"event": "start"})", "torn",
                   R"({"event": "lost_records", "file": "events.jsonl", "num_lost": 3})",
                   R"({"event": "end"})"}));
  EXPECT_THAT(warnings.texts, testing::SizeIs(1));
}

TEST(RunEventsTest, OtherRanksThanTheFirstWriteNothing) {
  const TemporaryDirectory folder;
  Warnings warnings;
  RunEvents events(warnings, false);
  events.add("start");
  events.open(folder.path(), true);
  EXPECT_FALSE(path_exists(folder.file("events.jsonl")));
}

TEST(RunEventsTest, ThreadsAddWholeLines) {
  const TemporaryDirectory folder;
  Warnings warnings;
  RunEvents events(warnings, true);
  events.open(folder.path(), true);
  std::vector<std::jthread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      for (int k = 0; k < 50; ++k) events.add("warning", fields("text", std::string(300, 'x')));
    });
  }
  threads.clear();
  const Texts all = events_in(folder.file("events.jsonl"));
  EXPECT_EQ(all.size(), 200U);
  EXPECT_THAT(all, testing::Not(testing::Contains("torn")));
}

TEST(RunEventsTest, WarningsOfARunAreItsEventsToo) {
  const TemporaryDirectory folder;
  Warnings warnings;
  RunEvents events(warnings, true);
  RecordedReporter reporter(warnings, events);
  events.open(folder.path(), true);
  reporter.warning("<script> & \"quotes\"");
  reporter.info("not recorded");
  EXPECT_EQ(warnings.texts, Texts{"<script> & \"quotes\""});
  EXPECT_EQ(events_in(folder.file("events.jsonl")),
            Texts{R"({"event": "warning", "text": "<script> & \"quotes\""})"});
}

TEST(RunEventsTest, AFailureIsAddedOnlyWhereTheRunIsTheFoldersOwn) {
  const TemporaryDirectory folder;
  Warnings warnings;
  write_run_record(folder.path(), fields("id", "mine"), warnings);
  EXPECT_EQ(append_run_event(folder.path(), "mine", "failure", fields("rank", 1)), "");
  EXPECT_EQ(append_run_event(folder.path(), "other", "failure", fields("rank", 2)),
            cat(folder.file("run.json"), " is another run's"));
  EXPECT_EQ(append_run_event(folder.file("none"), "mine", "failure", Json::object()),
            cat(folder.file("none/run.json"), " does not exist"));
  EXPECT_EQ(events_in(folder.file("events.jsonl")), Texts{R"({"event": "failure", "rank": 1})"});
  EXPECT_FALSE(path_exists(folder.file("none")));
}

}  // namespace
}  // namespace automodel::loggers
