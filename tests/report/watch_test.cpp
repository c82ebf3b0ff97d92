#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmath>
#include <csignal>
#include <fstream>
#include <sstream>
#include <thread>

#include "core/descriptor.h"
#include "core/file.h"
#include "core/text.h"
#include "core/utf8.h"
#include "report/facts/run_facts.h"
#include "report/facts/time_left.h"
#include "report/records/growing_file.h"
#include "report/records/run_follower.h"
#include "report/run_folder.h"
#include "report/watch/braille.h"
#include "report/watch/resize_signal.h"
#include "report/watch/watch_command.h"
#include "report/watch/watch_picture.h"

namespace automodel::report {
namespace {

using test::step_line;
using test::TemporaryDirectory;
using test::write_run;
using testing::HasSubstr;

void append(const std::string& path, const std::string& text) {
  std::ofstream(path, std::ios::app) << text;
}

size_t num_characters(const std::string& text) {
  size_t count = 0;
  for (size_t at = 0; at < text.size(); ++count) next_code_point(text, at);
  return count;
}

RecordedRun run_of(const std::string& name, int64_t num_steps) {
  RecordedRun run;
  run.name = name;
  for (int64_t step = 0; step < num_steps; ++step) {
    const std::string seconds = cat(step / 10, step % 10);
    add_steps(step_line(step, cat(num_steps - step), cat("2026-08-01T00:00:", seconds, ".000Z")),
              run.steps);
  }
  run.description = Json::parse("{\"max_steps\": 50}", "run.json");
  return run;
}

TEST(BrailleTest, ACurveIsDrawnFromItsColumns) {
  Curve curve;
  curve.columns = {{0.25, 0, 0, 0}, {0.75, 1, 1, 1}, {1.25, 0, 1, 0}, {1.75, 1, 1, 1}};
  const DotChart chart{2, 1, {0, 2, false}, {0, 1, false}, false};
  // The lowest dot, then up to the highest one; a whole column, and the highest again.
  EXPECT_EQ(draw_dots({{&curve, 0}}, chart), (std::vector<std::string>{"⡸⡏"}));
  EXPECT_EQ(draw_dots({}, chart), (std::vector<std::string>{"⠀⠀"}));
}

TEST(BrailleTest, NumbersWhoseDifferenceIsNoneAreNotDrawn) {
  const std::vector<double> steps = {0, 1, 2}, losses = {1e308, -1e308, 3};
  const Range range = range_of(losses);
  EXPECT_EQ(range.low, 3);
  EXPECT_EQ(range.high, 3);
  const Curve curve = make_curve(steps, losses, range_of(steps), 2, 0);
  EXPECT_EQ(curve.non_finite_x.size(), 2U);
  const DotChart chart{2, 1, {0, 2, false}, range, false};
  EXPECT_EQ(draw_dots({{&curve, 0}}, chart).size(), 1U);
}

TEST(BrailleTest, RunsHaveColours) {
  Curve low, high;
  low.columns = {{0, 0, 0, 0}};
  high.columns = {{1, 1, 1, 1}};
  const DotChart chart{2, 1, {0, 1, false}, {0, 1, false}, true};
  EXPECT_EQ(draw_dots({{&low, 0}, {&high, 1}}, chart),
            (std::vector<std::string>{"\x1b[36m⡀\x1b[0m\x1b[33m⠈\x1b[0m"}));
}

TEST(WatchPictureTest, ItFillsATerminalAndNoMore) {
  const RecordedRun first = run_of("first", 20), second = run_of("second", 30);
  for (const Terminal terminal : {Terminal{80, 24}, Terminal{200, 60}, Terminal{40, 12}}) {
    const auto lines = watch_picture({&first, &second}, terminal);
    EXPECT_LE(lines.size(), static_cast<size_t>(terminal.height - 1));
    for (const std::string& line : lines) {
      EXPECT_LE(num_characters(line), static_cast<size_t>(terminal.width)) << line;
    }
  }
  const auto lines = watch_picture({&first, &second}, {80, 24});
  EXPECT_THAT(lines[0],
              testing::StartsWith("first  step 20/50  loss 1  about 30 s left  not recorded"));
  EXPECT_THAT(lines[1], testing::StartsWith("second  step 30/50"));
  EXPECT_THAT(lines[2], HasSubstr("loss 1 1"));
  EXPECT_THAT(lines[2], HasSubstr("gradient norm 1.5 1.5"));
}

TEST(WatchPictureTest, ANameCannotMoveTheCursor) {
  EXPECT_EQ(fitted("a\x1b[2Jb\n\xFF", 12), "a?[2Jb??    ");
  EXPECT_EQ(fitted("ääää", 3), "äää");
  EXPECT_EQ(fitted("\xC2\x9B", 2), "? ");  // C1's own CSI
}

TEST(WatchPictureTest, WideCharactersTakeTwoColumns) {
  EXPECT_EQ(fitted("日本", 5), "日本 ");
  EXPECT_EQ(fitted("日本", 3), "日 ");
  EXPECT_EQ(fitted("日本", 2), "日");
  EXPECT_EQ(fitted("e\xCC\x81tat", 3), "e\xCC\x81ta");  // an accent on the letter before
}

std::string event(const std::string& name, const std::string& seconds,
                  const std::string& more = "") {
  return cat("{\"event\": \"", name, "\", \"timestamp\": \"2026-08-01T00:00:", seconds, "Z\"", more,
             "}\n");
}

TEST(WatchPictureTest, WhatSomebodyShouldLookAtHasALineOfItsOwn) {
  RecordedRun first = run_of("first", 20), second = run_of("second", 30);
  first.events.add(
      event("start", "01.000") +
      event("advice", "05.000", ", \"step\": 4, \"kind\": \"spike\", \"text\": \"a spike\""));
  second.events.add(event("failure", "09.000", ", \"rank\": 1, \"text\": \"out of memory\""));
  const auto lines = watch_picture({&first, &second}, {80, 24});
  EXPECT_THAT(lines[0], testing::StartsWith("first  step 20/50"));
  EXPECT_THAT(lines[1], testing::StartsWith("  ! advice 00:00:05: step 4, kind spike, a spike"));
  EXPECT_THAT(lines[2], testing::StartsWith("second  step 30/50"));
  EXPECT_THAT(lines[3], testing::StartsWith("  x failure 00:00:09: rank 1, out of memory"));
  EXPECT_LE(lines.size(), 23U);
  const auto colored = watch_picture({&first, &second}, {80, 24, true});
  EXPECT_THAT(colored[1], testing::StartsWith("\x1b[33m  ! advice"));
  EXPECT_THAT(colored[3], testing::StartsWith("\x1b[31m  x failure"));
  // On a small terminal there is room for some of it.
  EXPECT_LE(watch_picture({&first, &second}, {40, 12}).size(), 11U);
}

TEST(WatchPictureTest, MemoryIsShownAgainstThePlanAndTheUtilizationWhereItIsKnown) {
  RecordedRun run = run_of("a", 20);
  run.description = Json::parse(
      "{\"max_steps\": 50, \"format\": 2, \"version\": \"9\", \"plan\": {\"most_bytes\": "
      "232859965, \"program_bytes\": 100000000}}",
      "run.json");
  add_steps(
      "{\"step\": 20, \"loss\": 1, \"mfu\": 31.25, \"timestamp\": \"2026-08-01T00:00:20.000Z\"}\n",
      run.steps);
  const auto lines = watch_picture({&run}, {120, 24});
  EXPECT_THAT(lines[0], testing::StartsWith("a  step 21/50  loss 1  about 29 s left  0.25 GiB of "
                                            "0.31 planned  MFU 31.25%  not recorded"));
  EXPECT_THAT(lines[1],
              testing::StartsWith("  ! written by automodel 9, a newer format: read as far "
                                  "as it is known"));
  run.events.add(event("end", "30.000"));
  EXPECT_THAT(watch_picture({&run}, {120, 24})[0],
              testing::StartsWith("a  step 21/50  loss 1  done  0.25 GiB of 0.31 planned"));
}

TEST(WatchPictureTest, HowARunEndedComesBeforeWhatItTook) {
  RecordedRun run = run_of("a", 20);
  run.events.add(event("start", "01.000"));
  EXPECT_THAT(watch_picture({&run}, {80, 24})[0],
              testing::StartsWith("a  step 20/50  loss 1  about 30 s left  running, or killed"));
  run.lock = LockState::kHeld;
  EXPECT_THAT(watch_picture({&run}, {80, 24})[0],
              testing::StartsWith("a  step 20/50  loss 1  about 30 s left  running "));
  run.lock = LockState::kFree;
  EXPECT_THAT(
      watch_picture({&run}, {80, 24})[0],
      testing::StartsWith("a  step 20/50  loss 1  ended without saying how: was it killed?"));
  run.events.add(event("failure", "09.000", ", \"status\": 143, \"text\": \"stopped\""));
  EXPECT_THAT(watch_picture({&run}, {80, 24})[0],
              testing::StartsWith("a  step 20/50  loss 1  failed: stopped"));
  run.events.add(event("start", "10.000") +
                 event("failure", "19.000", ", \"status\": 130, \"text\": \"stopped\""));
  EXPECT_THAT(watch_picture({&run}, {80, 24})[0],
              testing::StartsWith("a  step 20/50  loss 1  stopped by Ctrl+C"));
}

TEST(WatchPictureTest, BytesThatNoMemoryHasAreLeftOut) {
  EXPECT_EQ(bytes_text(1536), "1.5 KiB");
  for (const double wrong : {-1.0, 3e23, std::nan("")}) EXPECT_EQ(bytes_text(wrong), "");
  RecordedRun run = run_of("a", 20);
  run.events.add(event("memory", "01.000", ", \"step\": 0, \"peak_bytes\": 3e23"));
  EXPECT_EQ(detail_of(*run.events.latest("memory")), "");
}

TEST(WatchPictureTest, TheTimeLeftIsThatOfTheLatestSteps) {
  RecordedRun run = run_of("a", 20);
  EXPECT_EQ(seconds_left(run), 30);
  run.events.add(RunEvent{"end", 0, {}, Json::object()});
  EXPECT_TRUE(std::isnan(seconds_left(run)));
}

TEST(RunFollowerTest, OnlyWholeLinesAreReadAndEachOnce) {
  const TemporaryDirectory parent;
  const std::string folder = write_run(parent, {.training = step_line(0, "3")});
  const std::string file = path_join(folder, "training.jsonl");
  RunFollower follower(folder, "a");
  EXPECT_EQ(follower.run().steps.size(), 1U);
  EXPECT_FALSE(follower.update());
  const std::string next = step_line(1, "2");
  append(file, next.substr(0, 30));
  follower.update();
  EXPECT_EQ(follower.run().steps.size(), 1U);
  append(file, next.substr(30) + step_line(2, "1"));
  EXPECT_TRUE(follower.update());
  EXPECT_EQ(follower.run().steps.step, (std::vector<double>{0, 1, 2}));
  EXPECT_EQ(follower.run().steps.tokens.back(), 300);
  write_file_atomic(file, step_line(0, "9"));  // as a resumed run does
  EXPECT_TRUE(follower.update());
  EXPECT_EQ(follower.run().steps.of(Metric::kLoss), (std::vector<double>{9}));
}

TEST(RunFollowerTest, AFileThatWasWrittenAnewInPlaceIsReadAnew) {
  const TemporaryDirectory parent;
  const std::string folder = write_run(parent, {.training = step_line(0, "3")});
  const std::string file = path_join(folder, "training.jsonl");
  RunFollower follower(folder, "a");
  std::ofstream(file, std::ios::in | std::ios::out) << step_line(0, "4");  // of the same size
  const timespec times[] = {{0, UTIME_OMIT}, {1, 0}};
  ASSERT_EQ(::utimensat(AT_FDCWD, file.c_str(), times, 0), 0);
  EXPECT_TRUE(follower.update());
  EXPECT_EQ(follower.run().steps.of(Metric::kLoss), (std::vector<double>{4}));
}

/// As a rollback leaves it, and the steps behind it before anybody looks again.
TEST(RunFollowerTest, AFileThatWasCutAndHasGrownPastItsOldEndIsReadAnew) {
  const TemporaryDirectory parent;
  const std::string kept = step_line(0, "3");
  const std::string folder = write_run(parent, {.training = kept + step_line(1, "2")});
  const std::string file = path_join(folder, "training.jsonl");
  RunFollower follower(folder, "a");
  ASSERT_EQ(::truncate(file.c_str(), static_cast<off_t>(kept.size())), 0);
  append(file, step_line(1, "7") + step_line(2, "6"));
  EXPECT_TRUE(follower.update());
  EXPECT_EQ(follower.run().steps.of(Metric::kLoss), (std::vector<double>{3, 7, 6}));
}

TEST(RunFollowerTest, ValidationsAndLinesThatAreLeftOutAreFollowedToo) {
  const TemporaryDirectory parent;
  const std::string folder =
      write_run(parent, {.training = "no record\n" + step_line(0, "3"), .events = "no event\n"});
  RunFollower follower(folder, "a");
  EXPECT_EQ(follower.run().num_unread_lines, 2);
  append(path_join(folder, "validation_x.jsonl"), "{\"step\": 0, \"val_loss\": 2.5}\nno record\n");
  EXPECT_TRUE(follower.update());
  ASSERT_EQ(follower.run().validations.losses.size(), 1U);
  EXPECT_EQ(follower.run().validations.losses[0].set, "x");
  EXPECT_EQ(follower.run().num_unread_lines, 3);
  append(path_join(folder, "training.jsonl"), "no record\n");
  follower.update();
  EXPECT_EQ(follower.run().num_unread_lines, 4);
  EXPECT_FALSE(follower.update());
}

TEST(GrowingFileTest, ItsLastWholeLinesAreRead) {
  const TemporaryDirectory folder;
  const std::string file = folder.write("x", "one\ntwo\nthree\nfo");
  EXPECT_EQ(last_lines(file, 16, 100), "one\ntwo\nthree\n");
  EXPECT_EQ(last_lines(file, 16, 10), "three\n");  // from "wo" on
  EXPECT_EQ(last_lines(file, 16, 1), "");
  EXPECT_EQ(last_lines(folder.file("none"), 0, 10), "");
  EXPECT_EQ(whole_lines(file, 4, 100), "two\nthree\n");
  EXPECT_EQ(whole_lines(file, 14, 100), "");
  const std::string long_line(200000, 'x');
  folder.write("x", long_line + "\nend\n");
  EXPECT_EQ(whole_lines(file, 0, 10).substr(200000, 1),
            "\n");  // a line longer than what is asked for
}

TEST(RunFollowerTest, ARunHasEndedWhenItSaysSoOrItsLockIsFree) {
  const TemporaryDirectory parent;
  const std::string folder = write_run(parent, {.training = step_line(0, "3")});
  RunFollower follower(folder, "a");
  EXPECT_FALSE(follower.has_ended());  // without a lock nothing is known
  write_file_atomic(path_join(folder, ".lock"), "held");
  {
    const Descriptor file(::open(path_join(folder, ".lock").c_str(), O_RDWR | O_CLOEXEC));
    struct flock lock {};
    lock.l_type = F_WRLCK;
    lock.l_whence = SEEK_SET;
    lock.l_len = 1;
    ASSERT_EQ(::fcntl(file.get(), F_OFD_SETLK, &lock), 0);
    EXPECT_FALSE(follower.has_ended());
    append(path_join(folder, "events.jsonl"),
           "{\"event\": \"end\", \"timestamp\": \"2026-08-01T00:00:00.000Z\"}\n");
    follower.update();
    EXPECT_TRUE(follower.has_ended());
  }
  EXPECT_TRUE(RunFollower(folder, "a").has_ended());
}

TEST(WatchTest, ThatIsNoTerminalGetsALineAStepUntilTheEnd) {
  const TemporaryDirectory parent;
  const std::string folder = write_run(
      parent, {.name = "a",
               .training = step_line(0, "3") + step_line(1, "NaN"),
               .events = "{\"event\": \"end\", \"timestamp\": \"2026-08-01T00:00:00.000Z\"}\n"});
  std::ostringstream out;
  testing::internal::CaptureStdout();  // no terminal
  EXPECT_EQ(watch({{folder}, false}, out), 0);
  testing::internal::GetCapturedStdout();
  EXPECT_EQ(out.str(),
            "a | step 0 | loss 3 | grad_norm 1.5 | lr 0.001 | tps 5000 | mem 0.25\n"
            "a | step 1 | loss nan | grad_norm 1.5 | lr 0.001 | tps 5000 | mem 0.25\n"
            "a | done\n");
}

/// A run that goes back to a checkpoint does steps again, and is soon as far as it was.
TEST(WatchTest, StepsThatAreDoneAgainArePrintedAgain) {
  const TemporaryDirectory parent;
  const std::string second = step_line(1, "2", "2026-08-01T00:00:02.000Z");
  const std::string folder =
      write_run(parent, {.name = "a",
                         .training = step_line(0, "3", "2026-08-01T00:00:01.000Z") + second +
                                     step_line(2, "9", "2026-08-01T00:00:03.000Z")});
  const std::string said = parent.write("said", "");
  std::ofstream out(said);
  testing::internal::CaptureStdout();  // no terminal
  std::thread watcher([&] { watch({{folder}, false}, out); });
  while (read_file(said).find("step 2 | loss 9") == std::string::npos) std::this_thread::yield();
  write_file_atomic(path_join(folder, "training.jsonl"),
                    step_line(0, "3", "2026-08-01T00:00:01.000Z") + second +
                        step_line(2, "1", "2026-08-01T00:00:09.000Z"));
  append(path_join(folder, "events.jsonl"),
         "{\"event\": \"end\", \"timestamp\": \"2026-08-01T00:00:10.000Z\"}\n");
  watcher.join();
  testing::internal::GetCapturedStdout();
  std::vector<std::string> steps;
  for (const std::string& line : split(read_file(said), '\n')) {
    if (line.find("| step") != std::string::npos) steps.push_back(line.substr(0, 21));
  }
  EXPECT_EQ(steps, (std::vector<std::string>{"a | step 0 | loss 3 |", "a | step 1 | loss 2 |",
                                             "a | step 2 | loss 9 |", "a | step 2 | loss 1 |"}));
}

TEST(WatchTest, EventsThatMatterAreLinesBetweenTheSteps) {
  const TemporaryDirectory parent;
  const std::string folder = write_run(
      parent, {.name = "a",
               .training = step_line(0, "3", "2026-08-01T00:00:01.000Z") +
                           step_line(1, "2", "2026-08-01T00:00:03.000Z"),
               .events = event("start", "00.000") + event("save", "02.000", ", \"step\": 0") +
                         event("warning", "00.500", ", \"text\": \"w\\u001b[2J\"") +
                         event("advice", "02.500",
                               ", \"step\": 0, \"kind\": \"disk\", \"text\": \"full\"") +
                         event("rollback", "04.000", ", \"step\": 1") +
                         event("failure", "05.000", ", \"rank\": 0, \"text\": \"died\""),
               .description = "{\"format\": 7, \"version\": \"9\"}"});
  std::ostringstream out;
  testing::internal::CaptureStdout();  // no terminal
  EXPECT_EQ(watch({{folder}, false}, out), 0);
  testing::internal::GetCapturedStdout();
  EXPECT_EQ(out.str(),
            "a | written by automodel 9, a newer format: read as far as it is known\n"
            "a | warning | w?[2J\n"
            "a | step 0 | loss 3 | grad_norm 1.5 | lr 0.001 | tps 5000 | mem 0.25\n"
            "a | advice | step 0 | kind disk, full\n"
            "a | step 1 | loss 2 | grad_norm 1.5 | lr 0.001 | tps 5000 | mem 0.25\n"
            "a | rollback | step 1\n"
            "a | failure | rank 0, died\n"
            "a | failed\n");
}

TEST(ResizeSignalTest, AWaitEndsWhenTheSizeHasChanged) {
  const ResizeSignal resize;
  EXPECT_FALSE(resize.wait(0));
  ::raise(SIGWINCH);
  EXPECT_TRUE(resize.wait(0));  // since the last wait
  std::jthread other([self = ::pthread_self()] { ::pthread_kill(self, SIGWINCH); });
  EXPECT_TRUE(resize.wait(60));
  EXPECT_FALSE(resize.wait(0.01));
}

TEST(RunFollowerTest, ALongRunIsThinnedAsItGrows) {
  const TemporaryDirectory parent;
  std::string lines;
  for (int64_t step = 0; step < 6000; ++step) lines += step_line(step, step == 77 ? "99" : "3");
  const std::string folder = write_run(parent, {.training = lines});
  RunFollower follower(folder, "a", {.num_rows = 4096, .piece_bytes = 1 << 17});
  for (int64_t step = 6000; step < 6010; ++step) {
    append(path_join(folder, "training.jsonl"), step_line(step, "2"));
    follower.update();
  }
  const StepTable& steps = follower.run().steps;
  EXPECT_LE(steps.size(), 4096U);
  EXPECT_EQ(steps.step.back(), 6009);
  EXPECT_EQ(steps.tokens.back(), 601000);
  EXPECT_EQ(std::ranges::count(steps.of(Metric::kLoss), 99), 1);
  EXPECT_EQ(RunFollower(folder, "a").run().steps.size(), 6010U);
}

TEST(RunFollowerTest, EventsAreReadAsTheyAreAdded) {
  const TemporaryDirectory parent;
  const std::string folder =
      write_run(parent, {.training = step_line(0, "3"), .events = event("start", "00.000")});
  RunFollower follower(folder, "a");
  const std::string file = path_join(folder, "events.jsonl"), next = event("advice", "01.000");
  append(file, next.substr(0, 20));
  follower.update();
  EXPECT_EQ(follower.run().events.count(), 1);
  EXPECT_EQ(follower.run().num_unread_lines, 0);  // it may still become whole
  append(file, next.substr(20));
  EXPECT_TRUE(follower.update());
  EXPECT_EQ(follower.run().events.count(), 2);
  write_file_atomic(file, event("start", "09.000"));  // a run that begins anew
  EXPECT_TRUE(follower.update());
  EXPECT_EQ(follower.run().events.count(), 1);
}

TEST(WatchTest, OncePrintsThePicture) {
  const TemporaryDirectory parent;
  const std::string folder = write_run(parent, {.name = "a", .training = step_line(0, "3")});
  std::ostringstream out;
  testing::internal::CaptureStdout();
  EXPECT_EQ(watch({{folder}, true}, out), 0);
  testing::internal::GetCapturedStdout();
  EXPECT_THAT(out.str(), testing::StartsWith("a  step 1  loss 3  not recorded"));
  EXPECT_EQ(out.str().find('\x1b'), std::string::npos);
}

}  // namespace
}  // namespace automodel::report
