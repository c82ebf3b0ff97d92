#include "loggers/chrome_trace.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <csignal>
#include <string>

#include "core/error.h"
#include "core/file.h"
#include "core/json.h"
#include "support/errors.h"
#include "support/temporary_directory.h"

namespace automodel::loggers {
namespace {

SilentReporter& silent() {
  static SilentReporter reporter;
  return reporter;
}

/// The events of a trace whose array somebody closes.
Json events_of(const std::string& path) {
  std::string text(trim(read_file(path)));
  if (text.ends_with(",")) text.pop_back();
  return Json::parse(text + "]", path);
}

TEST(ChromeTraceTest, IsJsonOnceItsArrayIsClosed) {
  const test::TemporaryDirectory folder;
  const std::string path = folder.file("trace.json");
  {
    ChromeTrace trace(path, 3, silent());
    trace.record({"all_gather \"model\"\n", "comm", 1.5, 1.75, 3});
    trace.record({"step", "step", 1.0, 3.0, 3});
  }
  const Json events = events_of(path);
  ASSERT_EQ(events.size(), 2U);
  const Json& first = events.as_array()[0];
  EXPECT_EQ(first.at("name").as_string(), "all_gather \"model\"\n");
  EXPECT_EQ(first.at("cat").as_string(), "comm");
  EXPECT_EQ(first.at("ph").as_string(), "X");
  EXPECT_EQ(first.at("ts").as_double(), 1.5e6);
  EXPECT_EQ(first.at("dur").as_double(), 0.25e6);
  EXPECT_EQ(first.at("pid").as_int(), 3);
  EXPECT_EQ(first.at("tid").as_string(), "comm");
  EXPECT_EQ(events.as_array()[1].at("name").as_string(), "step");
}

TEST(ChromeTraceTest, ARunWithoutEventsIsAnEmptyArray) {
  const test::TemporaryDirectory folder;
  { ChromeTrace trace(folder.file("trace.json"), 0, silent()); }
  EXPECT_EQ(events_of(folder.file("trace.json")).size(), 0U);
}

TEST(ChromeTraceTest, LongTracesAreWrittenAsTheyGrow) {
  const test::TemporaryDirectory folder;
  const std::string path = folder.file("trace.json");
  ChromeTrace trace(path, 0, silent());
  for (int i = 0; i < 2000; ++i) trace.record({"step", "step", i + 0.0, i + 0.5, 0});
  // What a process leaves that is killed now: whole lines.
  EXPECT_GT(events_of(path).size(), 500U);
}

TEST(ChromeTraceTest, ReplacesAnEarlierRunsTrace) {
  const test::TemporaryDirectory folder;
  const std::string path = folder.write("trace.json", "old");
  { ChromeTrace trace(path, 0, silent()); }
  EXPECT_EQ(read_file(path), "[\n");
}

TEST(ChromeTraceTest, NamesAFileThatItCannotWrite) {
  const test::TemporaryDirectory folder;
  const std::string path = folder.file("no/such/trace.json");
  try {
    ChromeTrace trace(path, 0, silent());
    FAIL() << "no error";
  } catch (const InputError& error) {
    EXPECT_EQ(std::string(error.what()), cat("cannot write the trace ", path));
  }
}

TEST(ChromeTraceTest, SaysOnceThatTheDiskIsFull) {
  const test::TemporaryDirectory folder;
  const std::string path = folder.file("trace.json");
  test::Warnings warnings;
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  const auto old_handler = ::signal(SIGXFSZ, SIG_IGN);
  {
    ChromeTrace trace(path, 0, warnings);
    const rlimit small{1 << 16, before.rlim_max};
    ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
    for (int i = 0; i < 4000; ++i) trace.record({"step", "step", i + 0.0, i + 0.5, 0});
  }
  ::setrlimit(RLIMIT_FSIZE, &before);
  ::signal(SIGXFSZ, old_handler);
  ASSERT_EQ(warnings.errors.size(), 1U);
  EXPECT_EQ(warnings.errors[0], cat("cannot write the trace ", path,
                                    " any more: what comes is left out; the run goes on"));
}

TEST(TracePathTest, EveryRankHasItsFile) {
  EXPECT_EQ(trace_path_of_rank("out/trace.json", 0), "out/trace.json");
  EXPECT_EQ(trace_path_of_rank("out/trace.json", 1), "out/trace.rank1.json");
  EXPECT_EQ(trace_path_of_rank("trace.json", 12), "trace.rank12.json");
  EXPECT_EQ(trace_path_of_rank("out.d/trace", 1), "out.d/trace.rank1");
}

}  // namespace
}  // namespace automodel::loggers
