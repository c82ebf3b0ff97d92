// Runs of W&B's trackers, for their tests.
#pragma once

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "core/clock.h"
#include "core/file.h"
#include "support/errors.h"
#include "support/temporary_directory.h"
#include "support/wandb_server.h"
#include "trackers/background_tracker.h"
#include "trackers/wandb.h"

namespace automodel::trackers {

using Records = std::vector<std::shared_ptr<const Record>>;

inline std::shared_ptr<const Record> record(const std::string& json, std::string set = "") {
  return std::make_shared<const Record>(record_of(Json::parse(json, "record"), std::move(set)));
}

inline std::shared_ptr<const Record> record(int64_t step) {
  return record(cat("{\"step\": ", step, ", \"loss\": ", step, ".5}"));
}

/// A row without its times, which are checked.
inline std::string text_of_row(const Json& row) {
  Json values = row;
  EXPECT_GT(values.at("_timestamp").as_double(), 1.7e9);
  EXPECT_GE(values.at("_runtime").as_double(), 0);
  for (const char* name : {"_timestamp", "_runtime"}) values.erase(name);
  return values.dump();
}

class WandbTest : public testing::Test {
 protected:
  WandbTest() {
    run_.settings.project = "a project";
    run_.settings.server = server_.address();
    run_.settings.app = "https://app";
    run_.settings.api_key = "a key";
    run_.settings.key_place = "WANDB_API_KEY";
    run_.settings.timeout_seconds = 10;
    run_.folder = folder_.path();
    run_.default_name = "org_model";
    run_.values = Json::parse(R"({"seed": 42, "optimizer": {"lr": 0.001, "eps": Infinity}})", "");
    run_.source = "recipe.yaml";
  }

  std::unique_ptr<Tracker> wandb() {
    return make_wandb(run_, std::make_shared<LeavingReporter>(warnings_));
  }
  std::unique_ptr<Tracker> offline() {
    return make_offline_wandb(run_, std::make_shared<LeavingReporter>(warnings_));
  }
  std::unique_ptr<BackgroundTracker> queued() {
    QueueOptions options;
    options.backoff_seconds = 0.01;
    options.longest_backoff_seconds = 0.05;
    auto reporter = std::make_shared<LeavingReporter>(warnings_);
    return std::make_unique<BackgroundTracker>(make_wandb(run_, reporter), options, reporter);
  }
  test::WandbServedRun only_run() const {
    const auto runs = server_.runs();
    EXPECT_EQ(runs.size(), 1U);
    return runs.empty() ? test::WandbServedRun{} : runs.begin()->second;
  }
  /// Throws when it does not come true.
  static void wait(const std::function<bool()>& condition) {
    const double deadline = monotonic_seconds() + 60;
    while (!condition()) {
      if (monotonic_seconds() > deadline) throw std::runtime_error("waited in vain");
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }
  std::string kept_id() const { return std::string(trim(read_file(folder_.file("wandb_run_id")))); }

  test::TemporaryDirectory folder_;
  test::Warnings warnings_;
  test::WandbServer server_;
  WandbRun run_;
};

}  // namespace automodel::trackers
