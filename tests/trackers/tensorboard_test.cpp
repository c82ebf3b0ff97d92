#include "trackers/tensorboard.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <tensorboard/tensorboard_event.pb.h>

#include <cmath>
#include <limits>

#include "event_reader.h"
#include "support/errors.h"
#include "support/file_size_limit.h"
#include "support/temporary_directory.h"

namespace automodel::trackers {
namespace {

using test::TemporaryDirectory;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::SizeIs;

std::vector<tensorboard::Event> events_in(const std::string& folder) {
  std::vector<tensorboard::Event> events;
  for (const std::string& name : list_directory(folder)) {
    for (const std::string& record : test::read_event_records(path_join(folder, name))) {
      EXPECT_TRUE(events.emplace_back().ParseFromString(record));
    }
  }
  return events;
}

std::shared_ptr<const Record> record(const std::string& json, std::string set = "") {
  return std::make_shared<const Record>(record_of(Json::parse(json, "record"), std::move(set)));
}

std::vector<std::string> scalars_of(const tensorboard::Event& event) {
  std::vector<std::string> scalars;
  for (const auto& value : event.summary().value()) {
    scalars.push_back(cat(event.step(), " ", value.tag(), " ", value.simple_value()));
  }
  return scalars;
}

TEST(TensorBoardTest, AFileBeginsWithItsVersionTheFirstStepAndTheRecipe) {
  const TemporaryDirectory folder;
  make_tensorboard({.folder = folder.path(), .first_step = 7, .recipe_text = "seed: 1"});
  const auto events = events_in(folder.path());
  ASSERT_THAT(events, SizeIs(3));
  EXPECT_EQ(events[0].file_version(), "brain.Event:2");
  EXPECT_GT(events[0].wall_time(), 1.7e9);
  EXPECT_EQ(events[1].session_log().status(), tensorboard::SessionLog::START);
  EXPECT_EQ(events[1].step(), 7);
  const tensorboard::Summary::Value& text = events[2].summary().value(0);
  EXPECT_EQ(text.metadata().plugin_data().plugin_name(), "text");
  EXPECT_EQ(text.tensor().dtype(), 7);
  EXPECT_THAT(text.tensor().string_val(), ElementsAre("```yaml\nseed: 1\n```"));
}

TEST(TensorBoardTest, HistogramsHaveTheirBuckets) {
  const TemporaryDirectory folder;
  Record step;
  step.step = 3;
  step.histograms.emplace_back("gradients/model.layers.0",
                               Histogram{.count = 4,
                                         .min = -1.5,
                                         .max = 2.5,
                                         .sum = 1,
                                         .sum_of_squares = 8.75,
                                         .buckets = {{-1, 1}, {2, 2}, {4, 1}}});
  const auto made = std::make_shared<const Record>(step);
  make_tensorboard({.folder = folder.path()})->deliver({&made, 1});
  const auto events = events_in(folder.path());
  ASSERT_THAT(events, SizeIs(4));
  EXPECT_EQ(events[3].step(), 3);
  ASSERT_EQ(events[3].summary().value_size(), 1);
  EXPECT_EQ(events[3].summary().value(0).tag(), "gradients/model.layers.0");
  const tensorboard::HistogramProto& found = events[3].summary().value(0).histo();
  EXPECT_EQ(found.num(), 4);
  EXPECT_EQ(found.min(), -1.5);
  EXPECT_EQ(found.max(), 2.5);
  EXPECT_EQ(found.sum(), 1);
  EXPECT_EQ(found.sum_squares(), 8.75);
  EXPECT_THAT(found.bucket_limit(), ElementsAre(-1, 2, 4));
  EXPECT_THAT(found.bucket(), ElementsAre(1, 2, 1));
}

TEST(TensorBoardTest, NumbersOfRecordsAreScalars) {
  const TemporaryDirectory folder;
  const auto tracker = make_tensorboard({.folder = folder.path()});
  const std::vector<std::shared_ptr<const Record>> records = {
      record(R"({"step": 3, "epoch": 1, "timestamp": "now", "loss": 0.1, "mfu": null,
                 "moe/cv_mean": 2.5, "mode": "mdlm"})"),
      record(R"({"step": 3, "val_loss": 0.5, "lr": 0.25})", "default"),
      record(R"({"step": 3, "val_loss": 0.5})", "code")};
  const Delivery delivery = tracker->deliver(records);
  EXPECT_EQ(delivery.outcome, Delivery::Outcome::kDone);
  EXPECT_EQ(delivery.num_records, 3U);
  const auto events = events_in(folder.path());
  ASSERT_THAT(events, SizeIs(6));
  EXPECT_THAT(scalars_of(events[3]),
              ElementsAre("3 train/epoch 1", cat("3 train/loss ", 0.1F), "3 moe/cv_mean 2.5"));
  EXPECT_THAT(scalars_of(events[4]), ElementsAre("3 val/loss 0.5", "3 val/lr 0.25"));
  EXPECT_THAT(scalars_of(events[5]), ElementsAre("3 val_code/loss 0.5"));
  EXPECT_EQ(events[3].wall_time(), records[0]->unix_seconds);
}

TEST(TensorBoardTest, NumbersThatAreNotFiniteStaySo) {
  const TemporaryDirectory folder;
  const auto tracker = make_tensorboard({.folder = folder.path()});
  const std::vector<std::shared_ptr<const Record>> records = {
      record(R"({"step": 0, "loss": NaN, "grad_norm": Infinity})")};
  tracker->deliver(records);
  const auto events = events_in(folder.path());
  EXPECT_TRUE(std::isnan(events.at(3).summary().value(0).simple_value()));
  EXPECT_EQ(events.at(3).summary().value(1).simple_value(), std::numeric_limits<float>::infinity());
}

/// The records before the one that does not fit are settled, the one that does not is refused.
TEST(TensorBoardTest, WhatADiskHasNoRoomForIsRefused) {
  const TemporaryDirectory folder;
  const auto tracker = make_tensorboard({.folder = folder.path()});
  Record large;
  large.values.resize(1000, {"a_name_of_some_length", 1.0});
  const std::vector<std::shared_ptr<const Record>> records = {
      record(R"({"step": 0, "loss": 1.0})"), std::make_shared<const Record>(large)};
  const auto deliver = [&](std::span<const std::shared_ptr<const Record>> some) {
    const test::FileSizeLimit limit(4096);
    return tracker->deliver(some);
  };
  const Delivery first = deliver(records);
  const Delivery second = deliver(std::span(records).subspan(1));
  EXPECT_EQ(first.outcome, Delivery::Outcome::kDone);
  EXPECT_EQ(first.num_records, 1U);
  EXPECT_EQ(second.outcome, Delivery::Outcome::kRefused);
  EXPECT_EQ(second.num_records, 1U);
  EXPECT_THAT(second.problem, HasSubstr(": File too large"));
}

}  // namespace
}  // namespace automodel::trackers
