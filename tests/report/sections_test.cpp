// Sections of the page, each from what a run has recorded.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "report/facts/run_facts.h"
#include "report/page/data_section.h"
#include "report/page/events_section.h"
#include "report/page/experts_section.h"
#include "report/page/memory_section.h"
#include "report/page/page.h"
#include "report/page/step_time_section.h"
#include "report/run_folder.h"

namespace automodel::report {
namespace {

using test::step_line;
using testing::HasSubstr;
using testing::Not;

RecordedRun run_with(const std::string& events, const std::string& description = "{}",
                     const std::string& training = "") {
  RecordedRun run;
  run.name = "a<b>";
  run.events.add(events);
  run.description = Json::parse(description, "run.json");
  add_steps(training, run.steps);
  return run;
}

std::string event(const std::string& name, const std::string& more = "") {
  return cat("{\"event\": \"", name, "\", \"timestamp\": \"2026-08-01T00:00:00.000Z\"", more,
             "}\n");
}

std::string html_of(std::string (*section)(const RunViews&), const RecordedRun& run) {
  return section({run});
}

size_t count_of(const std::string& text, const std::string& word) {
  size_t count = 0;
  for (size_t at = text.find(word); at != std::string::npos; at = text.find(word, at + 1)) ++count;
  return count;
}

TEST(EventsSectionTest, WhatMattersIsThereAmongTenThousandEvents) {
  std::string lines;
  for (int64_t i = 0; i < 10000; ++i) {
    lines += event(i % 3 == 0   ? "save"
                   : i % 3 == 1 ? "validation"
                                : "memory",
                   cat(", \"step\": ", i));
    if (i == 1234) lines += event("failure", ", \"text\": \"out of memory\"");
    if (i == 1235) lines += event("resume", ", \"step\": 1200");
    if (i == 6000) lines += event("skipped_update", ", \"step\": 6000");
    if (i == 6001) lines += event("non_finite", ", \"step\": 6001");
    if (i == 7000) lines += event("preempted", ", \"step\": 7000");
    if (i == 8000)
      lines += event("advice", ", \"step\": 8000, \"kind\": \"plateau\", \"text\": \"flat\"");
    if (i % 1000 == 999) lines += event("rollback", cat(", \"step\": ", i));
    if (i % 50 == 0) lines += event("warning", cat(", \"text\": \"warning ", i, "\""));
  }
  const RecordedRun run = run_with(lines);
  const std::string html = events_section({run});
  for (const char* name :
       {"failure", "resume", "skipped_update", "non_finite", "preempted", "advice"}) {
    EXPECT_EQ(count_of(html, cat("<td>", name, "</td>")), 1U) << name;
  }
  EXPECT_EQ(count_of(html, "<td>rollback</td>"), 10U);
  EXPECT_THAT(html, HasSubstr("out of memory"));
  EXPECT_EQ(count_of(html, "<td>warning</td>"), 25U);
  EXPECT_THAT(html, HasSubstr(">warning 0<"));
  EXPECT_EQ(count_of(html, "<td>save</td>"), 5U);
  EXPECT_THAT(html,
              HasSubstr("left out here: 3331 memory, 3329 save, 3328 validation, 175 warning"));
  EXPECT_LT(html.size(), 20000U);
}

TEST(EventsSectionTest, AShortRunIsToldWhole) {
  std::string lines;
  for (int64_t i = 0; i < 50; ++i) lines += event("save", cat(", \"step\": ", i));
  const RecordedRun run = run_with(lines);
  const std::string html = events_section({run});
  EXPECT_EQ(count_of(html, "<td>save</td>"), 50U);
  EXPECT_THAT(html, Not(HasSubstr("left out")));
}

TEST(EventsSectionTest, AdviceIsASectionOfItsOwn) {
  const RecordedRun run =
      run_with(event("advice", ", \"step\": 5, \"kind\": \"spike\", \"text\": \"first\"") +
               event("advice", ", \"step\": 9, \"kind\": \"spike\", \"text\": \"second <x>\"") +
               event("advice", ", \"kind\": \"disk\", \"text\": \"nearly full\""));
  EXPECT_EQ(advice_section({run}),
            "<h2>Advice</h2>\n<h3>a&lt;b&gt;</h3>\n<ul class=\"advice\">\n<li><b>disk</b>: nearly "
            "full</li>\n<li><b>spike</b> (2 times, here the latest, step 9): second "
            "&lt;x&gt;</li>\n</ul>\n");
  const RecordedRun quiet = run_with(event("save"));
  EXPECT_EQ(advice_section({quiet}), "");
}

TEST(EventsSectionTest, AResumedRunTellsWhatItsRecipeChanged) {
  EventLog events;
  events.add(event("start",
                   ", \"changed\": [{\"key\": \"optimizer.lr\", \"from\": 0.001, \"to\": 0.01}, "
                   "{\"key\": \"seed\", \"from\": null, \"to\": \"x\"}]"));
  EXPECT_EQ(detail_of(events.events()[0]),
            "changed: optimizer.lr 0.001 \xE2\x86\x92 0.01, seed none \xE2\x86\x92 x");
}

constexpr const char* kPlan =
    "{\"plan\": {\"loading_bytes\": 2147483648, \"step_bytes\": 3221225472, \"most_bytes\": "
    "4294967296, \"parts\": [{\"name\": \"parameters\", \"bytes\": 1073741824}, {\"name\": "
    "\"gradients\", \"bytes\": 536870912}], \"not_counted\": [\"<kernels>\"]}}";

TEST(MemorySectionTest, PartsArePlannedBesideMeasured) {
  const RecordedRun run =
      run_with(event("memory",
                     ", \"step\": 0, \"peak_bytes\": 1073741824, \"parts\": [{\"name\": "
                     "\"parameters\", \"bytes\": 1}]") +
                   event("memory",
                         ", \"step\": 5, \"peak_bytes\": 3221225472, \"parts\": [{\"name\": "
                         "\"parameters\", \"bytes\": 536870912}, {\"name\": \"caches\", \"bytes\": "
                         "1024}]") +
                   event("memory", ", \"step\": 9, \"peak_bytes\": 7"),
               kPlan);
  const std::string html = memory_section({run});
  for (const char* text :
       {"<th scope=\"row\">parameters</th><td class=\"number\">1 GiB</td><td "
        "class=\"number\">512 MiB</td><td class=\"number\">50.0%</td>",
        "<th scope=\"row\">gradients</th><td class=\"number\">512 MiB</td><td "
        "class=\"number\"></td><td class=\"number\"></td>",
        "<th scope=\"row\">caches</th><td class=\"number\"></td><td class=\"number\">1 KiB</td>",
        "<th scope=\"row\">most</th><td class=\"number\">4 GiB</td><td class=\"number\">3 "
        "GiB</td><td class=\"number\">75.0%</td>",
        "planned while it loads", "parts at step 5", "Not counted by the plan: &lt;kernels&gt;"}) {
    EXPECT_THAT(html, HasSubstr(text));
  }
  EXPECT_EQ(count_of(html, "<svg class=\"bar\""), 2U);
}

TEST(MemorySectionTest, WhatIsNotRecordedIsSaid) {
  const RecordedRun nothing = run_with(event("start"));
  EXPECT_EQ(memory_section({nothing}), "");
  const RecordedRun no_plan = run_with("", "{\"plan\": {\"reason\": \"a <diffusion> model\"}}");
  EXPECT_THAT(memory_section({no_plan}), HasSubstr("No plan: a &lt;diffusion&gt; model"));
  const RecordedRun odd =
      run_with(event("memory", ", \"peak_bytes\": 1e300, \"parts\": [{\"name\": 3}, 7]"),
               "{\"plan\": {\"parts\": 3, \"most_bytes\": -1}}");
  EXPECT_THAT(memory_section({odd}), HasSubstr("<h2>Memory"));
  EXPECT_THAT(html_of(memory_section, run_with(event("memory", ", \"peak_bytes\": 5"))),
              HasSubstr("The plan is not recorded."));
}

std::string timed_line(int64_t step, double data, double passes, double update, double wait) {
  return cat("{\"step\": ", step,
             ", \"tps\": 100, \"num_tokens_per_step\": 1000, \"data_seconds\": ", data,
             ", \"forward_backward_seconds\": ", passes, ", \"update_seconds\": ", update,
             ", \"wait_seconds\": ", wait, "}\n");
}

TEST(StepTimeSectionTest, SharesAreOfTheWholeStep) {
  StepTable steps;
  // Waiting is a part of the passes, and of the update what is beyond them.
  add_steps(timed_line(0, 1, 6, 1, 1) + timed_line(1, 3, 2, 5, 3) + step_line(2, "1"), steps);
  EXPECT_EQ(step_time_shares(steps, 0, 1), (TimeShares{0.1, 0.5, 0.1, 0.1, 0.2}));
  EXPECT_EQ(step_time_shares(steps, 1, 3), (TimeShares{0.3, 0, 0.4, 0.3, 0}));
  EXPECT_EQ(step_time_shares(steps, 0, 3), (TimeShares{0.2, 0.25, 0.25, 0.2, 0.1}));
  for (const double share : step_time_shares(steps, 2, 3)) EXPECT_TRUE(std::isnan(share));
  for (const double share : step_time_shares(steps, 0, 0)) EXPECT_TRUE(std::isnan(share));
}

TEST(StepTimeSectionTest, TheyAreAPictureAndATable) {
  std::string lines;
  for (int64_t step = 0; step < 1000; ++step)
    lines += timed_line(step, step < 500 ? 0 : 4, 5, 1, 1);
  const RecordedRun run = run_with("", "{\"plan\": {\"pipeline_bubble\": 0.2}}", lines);
  const std::string html = step_time_section({run});
  EXPECT_THAT(html, HasSubstr("</span> waiting for data 20.0%, "));
  EXPECT_THAT(html, HasSubstr("</span> forward and backward 40.0%, "));
  EXPECT_THAT(html, HasSubstr("</span> rest 20.0%"));
  EXPECT_THAT(html, HasSubstr("role=\"img\" aria-label=\"shares of the steps' time"));
  EXPECT_THAT(html, HasSubstr("<th scope=\"row\">0 to 124</th><td class=\"number\">0.0%</td>"));
  EXPECT_THAT(html, HasSubstr("<th scope=\"row\">875 to 999</th><td class=\"number\">40.0%</td>"));
  EXPECT_THAT(html,
              HasSubstr("a bubble of 20.0% is planned; rank 0 waited 10.0% of its steps' time"));
  EXPECT_LT(html.size(), 30000U);
}

TEST(StepTimeSectionTest, WithoutRecordsThereIsNone) {
  EXPECT_EQ(html_of(step_time_section, run_with("", "{}", step_line(0, "1"))), "");
  EXPECT_THAT(html_of(step_time_section, run_with("", "{\"plan\": {\"pipeline_bubble\": 0.5}}")),
              HasSubstr("waited for a time that is not recorded"));
}

TEST(DataSectionTest, LengthsAreAPictureAndATable) {
  const RecordedRun run = run_with(
      event("data", ", \"step\": 1, \"num_sequences\": 1, \"lengths\": []") +
          event("data",
                ", \"step\": 9, \"num_sequences\": 40, \"num_tokens\": 1000, "
                "\"num_label_tokens\": 250, \"num_padding_tokens\": 250, \"num_documents\": "
                "44, \"lengths\": [[64, 10], [128, 30], \"x\", [1], [256, -3]]"),
      "{\"data\": {\"prepared\": {\"num_packs\": 12, \"num_dropped\": 3, \"fill\": 0.875, "
      "\"name\": "
      "\"x\"}}}");
  const std::string html = data_section({run});
  for (const char* text :
       {"<th scope=\"row\">prepared: packs</th><td class=\"number\">12</td>",
        "<th scope=\"row\">prepared: fill</th><td class=\"number\"></td><td "
        "class=\"number\">87.5%</td>",
        "<th scope=\"row\">sequences</th><td class=\"number\">40</td>",
        "<th scope=\"row\">of them labelled</th><td class=\"number\">250</td><td "
        "class=\"number\">25.0%</td>",
        "<th scope=\"row\">padding besides</th><td class=\"number\">250</td><td "
        "class=\"number\">20.0%</td>",
        "<th scope=\"row\">up to 128</th><td class=\"number\">30</td><td "
        "class=\"number\">75.0%</td>",
        "<title>up to 64 tokens: 10</title>", "as of step 9."}) {
    EXPECT_THAT(html, HasSubstr(text));
  }
  EXPECT_EQ(count_of(html, "<rect"), 2U);
  EXPECT_THAT(html, HasSubstr("height=\"150\""));
  EXPECT_EQ(html_of(data_section, run_with(event("start"))), "");
}

TEST(ExpertsSectionTest, LoadsAreByAnEvenShare) {
  EventLog events;
  events.add(event("expert_load",
                   ", \"step\": 7, \"layers\": [{\"layer\": 3, \"shares\": [0.5, 0.25, "
                   "0.25, 0]}, {\"shares\": [1, \"x\"]}, 5, {\"shares\": []}]"));
  const auto layers = layer_loads(events.events()[0]);
  ASSERT_EQ(layers.size(), 2U);
  EXPECT_EQ(layers[0].layer, 3);
  EXPECT_EQ(layers[0].loads, (std::vector<double>{2, 1, 1, 0}));
  EXPECT_EQ(layers[1].loads, (std::vector<double>{2, 0}));
}

TEST(ExpertsSectionTest, TheLatestRecordIsAPictureAndATable) {
  std::string lines;
  for (int64_t step = 0; step < 4; ++step) {
    lines += event("expert_load",
                   cat(", \"step\": ", step, ", \"layers\": [{\"layer\": 0, \"shares\": [",
                       step == 3 ? "0.01, 0.39, 0.1, 0.5" : "0.25, 0.25, 0.25, 0.25", "]}]"));
  }
  const RecordedRun run = run_with(lines);
  const std::string html = experts_section({run});
  EXPECT_THAT(html, HasSubstr("loads at step 3"));
  EXPECT_THAT(html, HasSubstr("<th scope=\"row\">0</th><td class=\"number\">2.00</td><td "
                              "class=\"number\">3</td><td class=\"number\">0.04</td><td "
                              "class=\"number\">0</td><td class=\"number\">1</td>"));
  for (const char* level : {"low3", "low1", "high1"}) {
    EXPECT_EQ(count_of(html, cat("<path class=\"", level, "\" d=\"M")), 2U)
        << level;  // and its key
  }
  EXPECT_THAT(html,
              HasSubstr("aria-label=\"load of an expert against step: most loaded from 1 to 2, "
                        "least loaded from 1 to 0.04\""));
  EXPECT_EQ(html_of(experts_section, run_with(event("start"))), "");
}

TEST(ExpertsSectionTest, ManyExpertsOfManyLayersStaySmall) {
  std::string layers;
  for (int layer = 0; layer < 200; ++layer) {
    layers += cat(layer > 0 ? ", " : "", "{\"layer\": ", layer, ", \"shares\": [0.5");
    for (int expert = 1; expert < 512; ++expert) layers += ", 0.001";
    layers += "]}";
  }
  const RecordedRun run = run_with(event("expert_load", cat(", \"layers\": [", layers, "]")));
  EXPECT_LT(experts_section({run}).size(), 1U << 20);
}

TEST(FormatNoteTest, AnotherFormatIsToldAndThisOneIsNot) {
  const auto note = [](const char* description) {
    return format_note(Json::parse(description, "run.json"));
  };
  EXPECT_EQ(note("{}"), "");
  EXPECT_EQ(note("{\"format\": 1}"), "");
  EXPECT_EQ(note("{\"format\": 2, \"version\": \"9.1\"}"),
            "written by automodel 9.1, a newer format: read as far as it is known");
  EXPECT_EQ(
      note("{\"format\": \"x\"}"),
      "written by another automodel, in a format that is no number: read as far as it is known");
  const std::string page = report_page({run_with("", "{\"format\": 3, \"version\": \"<9>\"}")});
  EXPECT_THAT(page, HasSubstr("<p class=\"warning\" role=\"note\">a&lt;b&gt;: written by automodel "
                              "&lt;9&gt;, a newer format: read as far as it is known</p>"));
}

TEST(AlertTest, TheLatestSinceTheLastStartCounts) {
  const auto alert = [](const std::string& lines) {
    EventLog events;
    events.add(lines);
    const auto found = latest_alert(events);
    return found ? cat(found->event, ": ", found->text) : "";
  };
  const std::string advice =
      event("advice", ", \"step\": 4, \"kind\": \"disk\", \"text\": \"full\"");
  EXPECT_EQ(alert(event("start") + advice), "advice: step 4, kind disk, full");
  EXPECT_EQ(
      alert(event("start") + advice + event("failure", ", \"text\": \"died\"") + event("save")),
      "failure: died");
  EXPECT_EQ(alert(advice + event("start")), "");
}

}  // namespace
}  // namespace automodel::report
