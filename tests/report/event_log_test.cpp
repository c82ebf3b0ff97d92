#include "report/records/event_log.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "core/text.h"

namespace automodel::report {
namespace {

TEST(EventLogTest, OfEachNameTheFirstAndTheLatestStay) {
  EventLog events;
  for (int64_t i = 0; i < 30000; ++i) {
    events.add(cat("{\"event\": \"save\", \"step\": ", i, ", \"seconds\": 0.5}\n"));
    if (i % 10000 == 5000) events.add(cat("{\"event\": \"advice\", \"step\": ", i, "}\n"));
  }
  EXPECT_EQ(events.count("save"), 30000);
  EXPECT_EQ(events.count(), 30003);
  EXPECT_EQ(events.totals().at("save").seconds, 15000);
  EXPECT_LE(events.events().size(), 1100U);
  EXPECT_EQ(events.events().front().step, 0);
  EXPECT_EQ(events.latest("save")->step, 29999);
  EXPECT_EQ(events.latest("save")->number, 30002);
  EXPECT_EQ(events.latest("none"), nullptr);
  int64_t num_advice = 0, before = -1;
  for (const RunEvent& event : events) {
    num_advice += event.name == "advice" ? 1 : 0;
    EXPECT_GT(event.number, before);  // in their order
    before = event.number;
  }
  EXPECT_EQ(num_advice, 3);
}

TEST(EventLogTest, ASaveInTheBackgroundTakesWhatItWaits) {
  EventLog events;
  events.add(
      "{\"event\": \"save\", \"seconds\": 9, \"waited_seconds\": 2}\n"
      "{\"event\": \"save\", \"seconds\": 1}\n{\"event\": \"save\", \"seconds\": -5}\n");
  EXPECT_EQ(events.totals().at("save").seconds, 3);
}

TEST(EventLogTest, OnlyTheLatestLoadsOfExpertsAreKeptWhole) {
  EventLog events;
  const auto loads = [](const char* first, const char* second) {
    return cat(
        "{\"event\": \"expert_load\", \"step\": 1, \"layers\": [{\"layer\": 0, \"shares\": [",
        first, "]}, {\"layer\": 1, \"shares\": [", second, "]}]}\n");
  };
  events.add(loads("0.25, 0.25, 0.25, 0.25", "0.125, 0.5, 0.25, 0.125"));
  events.add(loads("1, 0", "\"x\", 0.5"));
  EXPECT_EQ(events.events()[0].fields.find("layers"), nullptr);
  EXPECT_EQ(number_of(events.events()[0].fields, "most"), 2);
  EXPECT_EQ(number_of(events.events()[0].fields, "least"), 0.5);
  EXPECT_NE(events.events()[1].fields.find("layers"), nullptr);
  EXPECT_EQ(number_of(events.events()[1].fields, "least"), 0);
}

TEST(EventLogTest, LinesThatAreNoEventsAreCounted) {
  EventLog events;
  events.add("{\"ev\n[1]\n\n{\"event\": 7}\n");
  EXPECT_EQ(events.num_unread(), 2);
  EXPECT_EQ(events.events().size(), 1U);
}

}  // namespace
}  // namespace automodel::report
