#include "core/long_work.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <chrono>
#include <mutex>
#include <thread>
#include <vector>

namespace automodel {
namespace {

using testing::AllOf;
using testing::Each;
using testing::ElementsAre;
using testing::IsEmpty;
using testing::MatchesRegex;
using testing::SizeIs;

/// A terminal, or a console without one.
class Heard final : public Reporter {
 public:
  explicit Heard(bool is_terminal) : is_terminal_(is_terminal) {}
  void info(std::string_view text) override {
    const std::lock_guard lock(mutex_);
    lines.emplace_back(text);
  }
  void warning(std::string_view) override {}
  void error(std::string_view) override {}
  void progress(std::string_view text) override {
    const std::lock_guard lock(mutex_);
    shown.emplace_back(text);
  }
  bool shows_progress() const override { return is_terminal_; }

  size_t num_lines() const {
    const std::lock_guard lock(mutex_);
    return lines.size();
  }
  size_t num_shown() const {
    const std::lock_guard lock(mutex_);
    return shown.size();
  }

  // To be read when all work has ended.
  std::vector<std::string> lines;
  std::vector<std::string> shown;

 private:
  mutable std::mutex mutex_;
  bool is_terminal_;
};

void sleep_seconds(double seconds) {
  std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
}

TEST(LongWorkTest, ShortWorkLeavesNoTrace) {
  Heard heard(true);
  { const LongWork told(&heard, "saving"); }
  EXPECT_THAT(heard.shown, IsEmpty());
  EXPECT_THAT(heard.lines, IsEmpty());
}

TEST(LongWorkTest, ATerminalShowsItUntilItEnds) {
  Heard heard(true);
  {
    const LongWork told(&heard, "saving", [] { return "3 of 4"; },
                        {.show_after_seconds = 0.05, .show_seconds = 0.05, .report_seconds = 60});
    while (heard.num_shown() < 3) sleep_seconds(0.01);
  }
  EXPECT_EQ(heard.shown.back(), "");
  heard.shown.pop_back();
  EXPECT_THAT(heard.shown, Each(MatchesRegex("saving for [0-9.]+ m?s: 3 of 4")));
  EXPECT_THAT(heard.lines, IsEmpty());
}

TEST(LongWorkTest, WithoutATerminalTheLogHasALineNowAndThen) {
  Heard heard(false);
  {
    const LongWork told(&heard, "saving", nullptr,
                        {.show_after_seconds = 0.01, .show_seconds = 0.01, .report_seconds = 0.1});
    while (heard.num_lines() < 2) sleep_seconds(0.01);
  }
  EXPECT_THAT(heard.shown, IsEmpty());
  EXPECT_THAT(heard.lines,
              AllOf(SizeIs(testing::Ge(2U)), Each(MatchesRegex("saving for [0-9.]+ m?s"))));
}

TEST(LongWorkTest, OfWorkWithinWorkTheInnermostIsTold) {
  Heard heard(false);
  const LongWorkOptions often{.report_seconds = 0.05};
  {
    const LongWork outer(&heard, "fetching", nullptr, often);
    const LongWork inner(&heard, "a file", nullptr, often);
    sleep_seconds(0.4);
    heard.info("both go on");
  }
  // What is told while both end may be the outer work's.
  heard.lines.erase(std::ranges::find(heard.lines, "both go on"), heard.lines.end());
  EXPECT_THAT(heard.lines, AllOf(SizeIs(testing::Ge(2U)), Each(testing::StartsWith("a file"))));
}

TEST(LongWorkTest, BytesAreThoseSinceTheWorkBegan) {
  ByteCounter bytes{5 << 20};
  const LongWork::HowFar how_far = bytes_moved(bytes);
  EXPECT_EQ(how_far(), "");
  bytes += 3 << 20;
  EXPECT_THAT(how_far(), MatchesRegex("3 MiB, [0-9.]+ [KMGT]iB/s"));
}

TEST(LongWorkTest, NobodyHears) {
  const LongWork told(nullptr, "saving", [] { return "3 of 4"; }, {.show_after_seconds = 0});
}

}  // namespace
}  // namespace automodel
