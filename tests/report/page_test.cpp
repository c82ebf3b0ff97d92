#include "report/page/page.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "report/facts/html.h"
#include "report/facts/run_facts.h"
#include "report/run_folder.h"

namespace automodel::report {
namespace {

using test::step_line;
using test::TemporaryDirectory;
using test::write_run;
using testing::HasSubstr;
using testing::Not;

std::string description(const std::string& lr) {
  return cat(
      "{\"max_steps\": 4, \"version\": \"0.1.0\", \"model\": {\"architecture\": "
      "\"Llama<b>\"}, \"distributed\": \"DDPConfig(bucket_mb: 25)\", \"values\": "
      "{\"optimizer.lr\": {\"value\": ",
      lr,
      ", \"origin\": \"command line\"}, \"seed\": {\"value\": 42, \"origin\": "
      "\"default\"}}}");
}

std::string event(const std::string& name, const std::string& time, const std::string& more = "") {
  return cat("{\"event\": \"", name, "\", \"timestamp\": \"2026-08-01T00:00:", time, ".000Z\"",
             more, "}\n");
}

/// The name of a tag's text between < and >: letters and digits behind a slash.
std::string tag_name(std::string_view tag) {
  if (tag.starts_with('/')) tag.remove_prefix(1);
  const size_t end = tag.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789");
  return std::string(tag.substr(0, end));
}

/// Every element of HTML is closed, in order; `void` elements have no end.
void expect_balanced(std::string html) {
  if (const size_t style = html.find("<style>"); style != std::string::npos) {
    html.erase(style, html.find("</style>") + std::string_view("</style>").size() - style);
  }
  std::vector<std::string> open;
  for (size_t at = html.find('<'); at != std::string::npos; at = html.find('<', at + 1)) {
    const std::string_view tag = std::string_view(html).substr(at + 1, html.find('>', at) - at - 1);
    const std::string name = tag_name(tag);
    if (name.empty() || name == "meta" || name == "input" || tag.ends_with('/')) continue;
    if (!tag.starts_with('/')) {
      open.push_back(name);
    } else {
      ASSERT_FALSE(open.empty()) << "</" << name;
      ASSERT_EQ(open.back(), name);
      open.pop_back();
    }
  }
  EXPECT_THAT(open, testing::IsEmpty());
}

class PageTest : public testing::Test {
 protected:
  std::string page(const std::vector<std::string>& folders) {
    return report_page(read_runs(folders));
  }

  TemporaryDirectory parent_;
};

TEST_F(PageTest, NamesAndTextsAreShownAndNotRun) {
  const std::string folder = write_run(
      parent_,
      {.name = "<script>alert(1)<",
       .training = step_line(0, "2") + step_line(1, "1"),
       .events = event("start", "01") +
                 event("failure", "09",
                       ", \"rank\": 1, \"status\": 5, \"text\": \"<img src=x onerror=y>\""),
       .description = description("0.5")});
  const std::string html = page({folder});
  EXPECT_THAT(html, Not(HasSubstr("<script")));
  EXPECT_THAT(html, Not(HasSubstr("<img")));
  EXPECT_THAT(html, Not(HasSubstr("Llama<b>")));
  EXPECT_THAT(html, HasSubstr("&lt;script&gt;alert(1)&lt;"));
  EXPECT_THAT(html, HasSubstr("failed: &lt;img src=x onerror=y&gt;"));
  expect_balanced(html);
}

TEST_F(PageTest, ThePageNeedsNothingFromElsewhere) {
  const std::string html = page({write_run(parent_, {.training = step_line(0, "2")})});
  for (const char* word : {"http:", "https:", "src=", "url(", "@import", "<link"}) {
    EXPECT_THAT(html, Not(HasSubstr(word)));
  }
  EXPECT_THAT(html, HasSubstr("prefers-color-scheme:dark"));
  EXPECT_THAT(html, HasSubstr("@media print"));
}

TEST_F(PageTest, OnlyALivePageHasAScriptAndAWayHome) {
  const std::vector<RecordedRun> runs =
      read_runs({write_run(parent_, {.name = "a", .training = step_line(0, "2")})});
  const std::string still = report_page(runs);
  EXPECT_THAT(still, Not(HasSubstr("<script")));
  EXPECT_THAT(still, Not(HasSubstr("style=")));  // a server's policy would drop it
  const std::string live = report_page(runs, LivePage{5, false, "../\"<"});
  EXPECT_THAT(live, HasSubstr(cat("<script>", kLiveScript, "</script>")));
  EXPECT_THAT(live, HasSubstr("<body data-seconds=\"5.000\">"));
  EXPECT_THAT(live, HasSubstr("<nav><a href=\"../&quot;&lt;\">All runs</a></nav>"));
  EXPECT_THAT(live, HasSubstr("<noscript><meta http-equiv=\"refresh\" content=\"30\"></noscript>"));
  EXPECT_THAT(report_page(runs, LivePage{5, true, ""}), Not(HasSubstr("refresh")));
}

TEST_F(PageTest, EveryChartIsDrawnAgainstEveryAxisAndSpeaks) {
  const std::string html =
      page({write_run(parent_, {.name = "a", .training = step_line(0, "8") + step_line(1, "4")})});
  for (const char* axis : {"by-step", "by-tokens", "by-time"}) {
    EXPECT_THAT(html, HasSubstr(cat("<div class=\"", axis, " linear\"><svg")));
    EXPECT_THAT(html, HasSubstr(cat("<div class=\"", axis, " log\"><svg")));
  }
  EXPECT_THAT(html, HasSubstr("aria-label=\"loss against step: a from 8 to 4\""));
  EXPECT_THAT(html, HasSubstr("<tr><th scope=\"row\">1</th><td class=\"number\">4</td>"));
}

/// The value of a row of the table of runs.
std::string fact_of(const std::string& html, const std::string& name) {
  const std::string begin = cat("<th scope=\"row\">", name, "</th><td>");
  const size_t at = html.find(begin);
  if (at == std::string::npos) return "no such row";
  return html.substr(at + begin.size(), html.find("</td>", at) - at - begin.size());
}

TEST_F(PageTest, TheLastLossIsThatOfTheLastStep) {
  const auto last_loss = [&](const std::string& training) {
    return fact_of(page({write_run(parent_, {.training = training})}), "last loss");
  };
  EXPECT_EQ(last_loss(step_line(0, "8") + step_line(1, "4")), "4");
  EXPECT_EQ(last_loss(step_line(0, "8") + step_line(1, "NaN") + step_line(2, "Infinity")),
            "inf (last finite 8, step 0)");
  EXPECT_EQ(last_loss(step_line(0, "NaN")), "nan");
}

/// Not the smoothed curve's values, which nobody has recorded.
TEST_F(PageTest, ACurveSpeaksOfItsFirstAndLastValue) {
  std::string training;
  for (int64_t step = 0; step < 200; ++step) training += step_line(step, cat(200 - step));
  EXPECT_THAT(page({write_run(parent_, {.name = "a", .training = training})}),
              HasSubstr("aria-label=\"loss against step: a from 200 to 1\""));
}

TEST_F(PageTest, ScoresOfValidationsHaveChartsOfTheirOwn) {
  const std::string html = page({write_run(
      parent_, {.training = step_line(0, "8") + step_line(1, "4"),
                .validation = "{\"step\": 0, \"val_loss\": 2.5, \"tool_call/parsed\": 0.25}\n"
                              "{\"step\": 1, \"val_loss\": 2.0, \"tool_call/parsed\": 0.75}\n"})});
  EXPECT_THAT(html, HasSubstr("<figcaption>validation: tool_call/parsed</figcaption>"));
  EXPECT_THAT(html,
              HasSubstr("\"validation: tool_call/parsed against step: run from 0.25 to 0.75\""));
  expect_balanced(html);
}

TEST_F(PageTest, ARunThatWasContinuedShowsBothStarts) {
  const std::string json = "{\"started\": \"2026-08-01T00:00:05.000Z\"}";
  const auto facts = [&](const std::string& events) {
    const std::string html = page({write_run(
        parent_, {.training = step_line(0, "8"), .events = events, .description = json})});
    return cat(fact_of(html, "started"), ", ", fact_of(html, "continued"));
  };
  EXPECT_EQ(facts(event("start", "01") + event("start", "05")),
            "2026-08-01 00:00:01, 2026-08-01 00:00:05");
  EXPECT_EQ(facts(event("start", "05")), "2026-08-01 00:00:05, no such row");
}

TEST_F(PageTest, TheCommandCanBeTypedAgain) {
  EXPECT_EQ(
      fact_of(page({write_run(parent_, {.training = step_line(0, "8"),
                                        .description = R"({"command": ["automodel", "a b"]})"})}),
              "command"),
      "automodel &#39;a b&#39;");
}

TEST(HtmlTest, NumbersHaveAsManyDigitsAsItTakes) {
  EXPECT_EQ(short_number(12345), "12.35k");
  EXPECT_EQ(short_number(5e10), "50B");
  EXPECT_EQ(short_number(1.5e12), "1.5T");
  EXPECT_EQ(short_number(2e15), "2e+15");
  EXPECT_EQ(short_number(3.4e-6), "3.4e-06");
  EXPECT_EQ(short_number(-std::nan("")), "nan");
  EXPECT_EQ(short_number(-INFINITY), "-inf");
  EXPECT_THAT(short_numbers({0.15930, 0.15932, 0.15934}),
              testing::ElementsAre("0.1593", "0.15932", "0.15934"));
  EXPECT_THAT(short_numbers({1, 2, 3}), testing::ElementsAre("1", "2", "3"));
}

TEST(HtmlTest, AMedianLiesBetweenTheTwoInTheMiddle) {
  EXPECT_EQ(median_of({3, 1, 2}), 2);
  EXPECT_EQ(median_of({4, 100, 300, 1}), 52);
  EXPECT_EQ(median_of({100, std::nan(""), 300}), 200);
  EXPECT_TRUE(std::isnan(median_of({})));
}

TEST_F(PageTest, TwoRunsShowWhatDiffers) {
  const std::string first = write_run(
      parent_, {.name = "a", .training = step_line(0, "2"), .description = description("0.5")});
  const std::string second = write_run(
      parent_, {.name = "b", .training = step_line(0, "3"), .description = description("0.25")});
  const std::string html = page({first, second});
  const size_t begin = html.find("<h2>What differs"), end = html.find("<h2>", begin + 4);
  ASSERT_NE(begin, std::string::npos);
  const std::string section = html.substr(begin, end - begin);
  EXPECT_THAT(section, HasSubstr("<th scope=\"row\">optimizer.lr</th><td>0.5</td><td>0.25</td>"));
  EXPECT_THAT(section, Not(HasSubstr("seed")));
  EXPECT_THAT(page({first}), Not(HasSubstr("What differs")));
}

TEST_F(PageTest, MetricsThatAreNotFiniteAreMarked) {
  const std::string html = page({write_run(
      parent_, {.training = step_line(0, "2") + step_line(1, "NaN") + step_line(2, "1")})});
  EXPECT_THAT(html, HasSubstr("class=\"bad\""));
  EXPECT_THAT(html, Not(HasSubstr("nan ")));  // in no path
  expect_balanced(html);
}

TEST_F(PageTest, EventsAreMarkedOnEveryCurve) {
  const std::string html = page({write_run(
      parent_, {.training = step_line(0, "3") + step_line(1, "2") + step_line(2, "1"),
                .events = event("start", "00") +
                          event("advice", "01", ", \"step\": 1, \"text\": \"a <spike>\"") +
                          event("rollback", "02", ", \"step\": 2, \"next_step\": 1") +
                          event("failure", "03", ", \"text\": \"died\"")})});
  EXPECT_THAT(html, HasSubstr("<title>advice, step 1, 2026-08-01 00:00:01 UTC: a "
                              "&lt;spike&gt;</title><path class=\"glyph\""));
  EXPECT_THAT(html, HasSubstr("<title>advice, step 1</title>"));  // of the other charts
  EXPECT_THAT(html, HasSubstr("<title>failure, 2026-08-01 00:00:03 UTC: died</title><path "
                              "class=\"failure\" d=\"M"));
  EXPECT_THAT(html, HasSubstr("</svg>rolled back</li>"));
  EXPECT_THAT(html, Not(HasSubstr("</svg>resumed</li>")));  // the legend has what is there
  expect_balanced(html);
}

TEST_F(PageTest, EachValidationSetHasItsDotsAndItsBestLoss) {
  const std::string folder = write_run(
      parent_,
      {.training = step_line(0, "3") + step_line(1, "2"),
       .validation = "{\"step\": 0, \"val_loss\": 2.5}\n{\"step\": 1, \"val_loss\": 2.75}\n"});
  write_file_atomic(path_join(folder, "validation_held<out>.jsonl"),
                    "{\"step\": 1, \"val_loss\": 1.5}\n");
  const std::string html = page({folder});
  EXPECT_THAT(html, HasSubstr("<td>default 2.5 (step 0), held&lt;out&gt; 1.5 (step 1)</td>"));
  EXPECT_THAT(html, HasSubstr("<path class=\"dots disc\" d=\"M"));
  EXPECT_THAT(html, HasSubstr("<path class=\"dots square\" d=\"M"));
  EXPECT_THAT(html, HasSubstr("</svg>validation: default</li>"));
  EXPECT_THAT(html, HasSubstr("</svg>validation: held&lt;out&gt;</li>"));
}

TEST_F(PageTest, FurtherNumbersAreDrawnToo) {
  std::string many;
  for (int i = 0; i < 20; ++i) many += cat(", \"moe/x", i, "\": ", i);
  const std::string html = page({write_run(
      parent_,
      {.training = cat("{\"step\": 0, \"loss\": 1, \"mfu\": 30, \"kd_loss\": 2}\n",
                       "{\"step\": 1, \"loss\": 1, \"mfu\": 40, \"kd_loss\": 1", many, "}\n")})});
  EXPECT_THAT(html, HasSubstr("<figcaption>MFU, %</figcaption>"));
  EXPECT_THAT(html, HasSubstr("aria-label=\"distillation loss against step: run from 2 to 1\""));
  EXPECT_THAT(html, HasSubstr("<figcaption>moe/x9</figcaption>"));
  EXPECT_THAT(html, Not(HasSubstr("<figcaption>moe/x10</figcaption>")));
  EXPECT_THAT(html, HasSubstr("Also recorded, and not drawn: moe/x10, "));
}

TEST_F(PageTest, SwitchesAreGroupsWithNames) {
  const std::string html = page({write_run(parent_, {.training = step_line(0, "2")})});
  for (const char* text :
       {"<fieldset><legend>against</legend><input class=\"switch\" id=\"x-step\" type=\"radio\" "
        "name=\"x\" checked><label for=\"x-step\">steps</label>",
        "<fieldset><legend>scale</legend>", "<fieldset><legend>curve</legend>"}) {
    EXPECT_THAT(html, HasSubstr(text));
  }
}

TEST_F(PageTest, PrintHasTheColoursOfPaper) {
  const std::string html = page({write_run(parent_, {.training = step_line(0, "2")})});
  const std::string print = html.substr(html.find("@media print"));
  for (const char* text : {"color-scheme:light", "--c4:#8a6a00", "--panel:#f2f2f2",
                           "details::details-content{content-visibility:visible"}) {
    EXPECT_THAT(print, HasSubstr(text));
  }
}

TEST_F(PageTest, ARunWithoutAStepIsAPageToo) {
  const std::string html = page({write_run(parent_, {.description = description("1")})});
  EXPECT_THAT(html, HasSubstr("No step has been recorded yet."));
  expect_balanced(html);
}

TEST_F(PageTest, TheStrategyIsShownByItsName) {
  const std::string html = page({write_run(parent_, {.description = description("1")})});
  EXPECT_THAT(html, HasSubstr("DDPConfig"));
  EXPECT_THAT(html, Not(HasSubstr("bucket_mb")));
}

TEST_F(PageTest, TimeIsSharedOutByTheEvents) {
  const std::string folder = write_run(
      parent_,
      {.training = step_line(0, "2", "2026-08-01T00:00:10.000Z"),
       .events = event("start", "00") + event("load", "04", ", \"step\": 0, \"seconds\": 3.5") +
                 event("save", "20", ", \"step\": 0, \"seconds\": 2.0") + event("start", "50") +
                 event("resume", "55", ", \"step\": 1, \"seconds\": 4.0")});
  std::string found;
  for (const TimeShare& share : time_shares(read_run(folder))) {
    found += cat(share.name, " ", share.seconds, "; ");
  }
  // 20 s and 5 s; the 30 s between the two processes do not count.
  EXPECT_EQ(found, "steps 15.5; validation 0; saving 2; loading 3.5; resuming 4; ");
}

TEST_F(PageTest, FiftyRunsOfManyStepsAreASmallPage) {
  std::string lines;
  for (int64_t step = 0; step < 3000; ++step) lines += step_line(step, cat(step % 97 + 1));
  std::vector<std::string> folders;
  for (int i = 0; i < 50; ++i) {
    folders.push_back(write_run(parent_, {.name = cat("run", i), .training = lines}));
  }
  EXPECT_LT(page(folders).size(), 5U << 20);
}

TEST(HtmlTest, TimesAreShownInOneUnit) {
  EXPECT_EQ(span_text(0), "0 s");
  EXPECT_EQ(span_text(99.5), "99.5 s");
  EXPECT_EQ(span_text(300), "5 min");
  EXPECT_EQ(span_text(9000), "2.5 h");
  EXPECT_EQ(span_text(3 * 86400), "3 d");
}

TEST(HtmlTest, NumbersAreShort) {
  EXPECT_EQ(short_number(0), "0");
  EXPECT_EQ(short_number(0.00012345), "0.000123");
  EXPECT_EQ(short_number(1234567), "1.235M");
  EXPECT_EQ(short_number(54321), "54.32k");
  EXPECT_EQ(short_number(std::nan("")), "nan");
}

}  // namespace
}  // namespace automodel::report
