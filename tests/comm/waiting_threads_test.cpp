#include "comm/network/waiting_threads.h"

#include <gtest/gtest.h>

#include <future>
#include <memory>
#include <set>
#include <thread>
#include <vector>

namespace automodel::comm {
namespace {

TEST(WaitingThreadsTest, OneWaitAfterTheOtherIsOnOneThread) {
  WaitingThreads threads;
  std::set<std::thread::id> ids;
  for (int i = 0; i < 50; ++i) {
    std::promise<std::thread::id> id;
    const auto held = std::make_shared<int>(i);
    threads.run([&id, held] { id.set_value(std::this_thread::get_id()); });
    ids.insert(id.get_future().get());
    while (held.use_count() > 1) std::this_thread::yield();  // then it is idle, or about to be
  }
  EXPECT_LT(ids.size(), 25U);
}

TEST(WaitingThreadsTest, WaitsAtOnceDoNotWaitForEachOther) {
  WaitingThreads threads;
  std::promise<void> last;
  const std::shared_future<void> has_come = last.get_future().share();
  std::vector<std::promise<void>> ended(3);
  for (auto& end : ended) {
    threads.run([&end, has_come] {
      has_come.wait();
      end.set_value();
    });
  }
  threads.run([&last] { last.set_value(); });
  for (auto& end : ended) end.get_future().get();
}

TEST(WaitingThreadsTest, WhatIsUnderWayOutlivesThem) {
  std::promise<void> go, done;
  {
    WaitingThreads threads;
    threads.run([&] {
      go.get_future().wait();
      done.set_value();
    });
  }
  go.set_value();
  done.get_future().get();
}

}  // namespace
}  // namespace automodel::comm
