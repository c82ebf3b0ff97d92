#include "loggers/console.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <optional>
#include <string>

#include "core/error.h"
#include "core/file.h"
#include "core/text.h"
#include "support/errors.h"
#include "support/temporary_directory.h"

namespace automodel::loggers {
namespace {

/// An environment variable's value as long as this lives; nullptr: not set.
class Variable final {
 public:
  Variable(const char* name, const char* value) : name_(name) {
    const char* old = std::getenv(name);
    if (old != nullptr) old_ = old;
    set(value);
  }
  ~Variable() { set(old_ ? old_->c_str() : nullptr); }
  Variable(const Variable&) = delete;
  Variable& operator=(const Variable&) = delete;

 private:
  void set(const char* value) const {
    if (value == nullptr) {
      ::unsetenv(name_);
    } else {
      ::setenv(name_, value, 1);
    }
  }

  const char* name_;
  std::optional<std::string> old_;
};

struct Output {
  std::string out;
  std::string err;
};

/// What a console with these options prints when it is told one of everything. Times become "T".
Output tell(const ConsoleOptions& options) {
  testing::internal::CaptureStdout();
  testing::internal::CaptureStderr();
  {
    ConsoleReporter reporter(options);
    reporter.info("an info");
    reporter.warning("a warning");
    reporter.error("an error");
  }
  Output output{testing::internal::GetCapturedStdout(), testing::internal::GetCapturedStderr()};
  for (std::string* text : {&output.out, &output.err}) {
    std::string result;
    for (const std::string& line : split(*text, '\n')) {
      if (line.empty()) continue;
      EXPECT_THAT(line.substr(0, 22), testing::MatchesRegex("20[0-9][0-9]-[0-9][0-9]-[0-9][0-9] "
                                                            "[0-9][0-9]:[0-9][0-9]:[0-9][0-9] . "));
      result += cat("T", line.substr(19), "\n");
    }
    *text = result;
  }
  return output;
}

TEST(ConsoleTest, LinesHoldTimeLevelAndText) {
  const Output output = tell({});
  EXPECT_EQ(output.out, "T | INFO | automodel | an info\n");
  EXPECT_EQ(output.err,
            "T | WARNING | automodel | a warning\n"
            "T | ERROR | automodel | an error\n");
}

TEST(ConsoleTest, OtherRanksPrintErrorsOnlyWithTheirRank) {
  const Output output = tell({.rank = 2, .world_size = 4});
  EXPECT_EQ(output.out, "");
  EXPECT_EQ(output.err, "T | ERROR | automodel | rank 2: an error\n");
}

TEST(ConsoleTest, RankZerosErrorsHoldItsRankAmongPeers) {
  EXPECT_THAT(tell({.rank = 0, .world_size = 2}).err, testing::HasSubstr("| rank 0: an error\n"));
}

TEST(ConsoleTest, LinesBelowTheLevelAreDropped) {
  EXPECT_EQ(tell({.level = kWarningLevel}).out, "");
  EXPECT_EQ(tell({.level = kErrorLevel}).err, "T | ERROR | automodel | an error\n");
  EXPECT_EQ(tell({.level = 50}).err, "");
}

TEST(ConsoleTest, ColorsTheLevelOnly) {
  const Output output = tell({.has_color = true});
  EXPECT_EQ(output.out, "T | \033[32mINFO\033[0m | automodel | an info\n");
  EXPECT_EQ(output.err,
            "T | \033[33mWARNING\033[0m | automodel | a warning\n"
            "T | \033[31mERROR\033[0m | automodel | an error\n");
}

TEST(ConsoleTest, AFileHasTheLinesOfAllRanksWithoutColors) {
  const test::TemporaryDirectory folder;
  const std::string path = folder.file("run.log");
  tell({.rank = 0, .world_size = 2, .has_color = true, .file = path});
  tell({.rank = 1, .world_size = 2, .has_progress = true, .file = path});
  tell({.level = kErrorLevel, .file = path});
  std::string found;
  for (const std::string& line : split(read_file(path), '\n')) {
    if (!line.empty()) found += line.substr(19) + "\n";
  }
  EXPECT_EQ(found,
            " | INFO | automodel | an info\n"
            " | WARNING | automodel | a warning\n"
            " | ERROR | automodel | rank 0: an error\n"
            " | ERROR | automodel | rank 1: an error\n"
            " | ERROR | automodel | an error\n");
}

TEST(ConsoleTest, AFileThatCannotBeOpenedIsSaid) {
  const std::string path = "/proc/nowhere/run.log";
  const std::string error =
      test::error_of<InputError>([&] { ConsoleReporter(ConsoleOptions{.file = path}); });
  EXPECT_THAT(error, testing::StartsWith(cat("cannot write the log file ", path, ": ")));
}

TEST(ConsoleTest, TextsAreWrittenAsTheyAre) {
  testing::internal::CaptureStdout();
  ConsoleReporter(ConsoleOptions{}).info("{} %v {0}\n  second line");
  EXPECT_THAT(testing::internal::GetCapturedStdout(),
              testing::EndsWith(" | INFO | automodel | {} %v {0}\n  second line\n"));
}

TEST(ConsoleTest, TheLevelComesFromTheEnvironment) {
  const auto level_of = [](const char* value) {
    const Variable variable("LOGGING_LEVEL", value);
    return ConsoleOptions::from_environment(0, 1).level;
  };
  EXPECT_EQ(level_of(nullptr), kInfoLevel);
  EXPECT_EQ(level_of("30"), kWarningLevel);
  EXPECT_EQ(level_of("10"), 10);
  EXPECT_EQ(level_of("WARNING"), kWarningLevel);
  EXPECT_EQ(level_of("error"), kErrorLevel);
  EXPECT_EQ(level_of("loud"), kInfoLevel);
}

TEST(ConsoleTest, ColorsComeFromTheEnvironment) {
  const auto has_color = [](const char* no_color, const char* force_color) {
    const Variable no("NO_COLOR", no_color);
    const Variable force("FORCE_COLOR", force_color);
    testing::internal::CaptureStdout();  // no terminal
    const bool result = ConsoleOptions::from_environment(0, 1).has_color;
    testing::internal::GetCapturedStdout();
    return result;
  };
  EXPECT_FALSE(has_color(nullptr, nullptr));
  EXPECT_TRUE(has_color(nullptr, "1"));
  EXPECT_TRUE(has_color("", "1"));
  EXPECT_FALSE(has_color("1", nullptr));
  EXPECT_FALSE(has_color("1", "1"));
}

TEST(ConsoleTest, FilesShowNoProgress) {
  testing::internal::CaptureStderr();
  const ConsoleOptions options = ConsoleOptions::from_environment(0, 1);
  EXPECT_FALSE(options.has_progress);
  {
    ConsoleReporter reporter(options);
    reporter.progress("10%");
  }
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
}

TEST(ConsoleTest, OtherRanksShowNoProgress) {
  testing::internal::CaptureStderr();
  {
    ConsoleReporter reporter(ConsoleOptions{.rank = 1, .world_size = 2, .has_progress = true});
    reporter.progress("10%");
  }
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
}

TEST(ConsoleTest, ProgressStaysOnOneLineOfTheTerminal) {
  testing::internal::CaptureStderr();
  {
    ConsoleReporter reporter(ConsoleOptions{.has_progress = true, .columns = 8});
    reporter.progress("50% |███| 5/10");
    reporter.progress("50%");
  }
  const std::string erase = "\r\033[K";
  EXPECT_EQ(testing::internal::GetCapturedStderr(), cat(erase, "50% |██", erase, "50%", erase));
}

TEST(ConsoleTest, ProgressStaysBelowTheLinesAndGoesAtTheEnd) {
  testing::internal::CaptureStdout();
  testing::internal::CaptureStderr();
  {
    ConsoleReporter reporter(ConsoleOptions{.has_progress = true});
    reporter.progress("10%");
    reporter.info("an info");
    reporter.progress("20%");
  }
  testing::internal::GetCapturedStdout();
  const std::string erase = "\r\033[K";
  EXPECT_EQ(testing::internal::GetCapturedStderr(),
            cat(erase, "10%", erase, "10%", erase, "20%", erase));
}

}  // namespace
}  // namespace automodel::loggers
