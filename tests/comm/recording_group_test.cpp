// What the recording group of tests/comm/recording_group.h notices: each mistake that a stream
// punishes with wrong numbers, and nothing of what is right.
#include "comm/recording_group.h"

#include <gtest/gtest.h>

#include <functional>

#include "comm/ranks.h"

namespace automodel::comm {
namespace {

using Texts = std::vector<std::string>;

/// A group of two ranks and its record.
struct Recorded {
  explicit Recorded(const World& world) : group(recorded(world.group(), record)) {}

  std::shared_ptr<Recording> record = std::make_shared<Recording>();
  ProcessGroup group;
};

/// The mistakes of a gather of 4 from 2 elements, of tensors `out` and `in`, that is followed by
/// `use` before its wait.
Texts mistakes_of(const World& world,
                  const std::function<void(const at::Tensor& out, const at::Tensor& in)>& use) {
  const Recorded recorded(world);
  const at::Tensor out = at::zeros({4}), in = at::ones({2});
  Work work = recorded.group.start_all_gather(out, in);
  use(out, in);
  work.wait();
  return recorded.record->mistakes();
}

void expect_texts(const Texts& found, const Texts& wanted) {
  expect(found == wanted, cat("found: ", join(found, "; ")));
}

TEST(RecordingGroupTest, ResultsAreThoseOfTheGroupInsideOnceTheyHaveBeenWaitedFor) {
  expect_ranks(2, [](World& world) {
    const Recorded recorded(world);
    const float rank = static_cast<float>(world.group().rank());
    const at::Tensor all = at::zeros({4});
    all.narrow(0, 2 * world.group().rank(), 2).fill_(rank);
    Work gather = recorded.group.start_all_gather(all, all.narrow(0, 2 * world.group().rank(), 2));
    const at::Tensor sum = at::full({3}, rank + 1);
    Work reduce = recorded.group.start_all_reduce(sum, ReduceOp::kSum);
    expect(all.isnan().all().item<bool>() && sum.isnan().all().item<bool>(), "there too early");
    reduce.wait();
    expect(at::equal(sum, at::full({3}, 3.0F)), "sum");
    expect(all.isnan().all().item<bool>(), "another's wait");
    gather.wait();
    expect(at::equal(all, at::tensor({0.0F, 0.0F, 1.0F, 1.0F})), "gather");
    expect_texts(recorded.record->mistakes(), {});
    expect_texts(recorded.record->lines(), {"start all_gather world", "start all_reduce world",
                                            "wait all_reduce world", "wait all_gather world"});
  });
}

TEST(RecordingGroupTest, WhatIsWrittenUnderWayIsAMistake) {
  expect_ranks(2, [](World& world) {
    expect_texts(mistakes_of(world, [](const at::Tensor&, const at::Tensor& in) { in.add_(1); }),
                 {"all_gather world: its input was written while it was under way"});
    expect_texts(mistakes_of(world, [](const at::Tensor& out, const at::Tensor&) { out.zero_(); }),
                 {"all_gather world: its output was written while it was under way"});
    expect_texts(mistakes_of(world,
                             [](const at::Tensor& out, const at::Tensor& in) {
                               out.isnan();
                               in.sum();
                             }),
                 {});
  });
}

TEST(RecordingGroupTest, MemoryThatIsFreedOrGivenAwayUnderWayIsAMistake) {
  expect_ranks(2, [](World& world) {
    const auto take_away = [](const at::Tensor& tensor) {
      c10::StorageImpl& storage = *tensor.storage().unsafeGetStorageImpl();
      return storage.set_data_ptr(at::zeros({4}).storage().unsafeGetStorageImpl()->set_data_ptr(
          at::DataPtr(nullptr, at::kCPU)));
    };
    at::DataPtr kept;
    expect_texts(
        mistakes_of(world, [&](const at::Tensor&, const at::Tensor& in) { kept = take_away(in); }),
        {"all_gather world: its input was freed while it was under way"});
    expect_texts(mistakes_of(world, [&](const at::Tensor& out,
                                        const at::Tensor&) { kept = take_away(out); }),
                 {"all_gather world: its output was freed while it was under way"});
  });
}

TEST(RecordingGroupTest, AnOperationOnAnothersMemoryIsAMistake) {
  expect_ranks(2, [](World& world) {
    const Recorded recorded(world);
    const at::Tensor out = at::zeros({4}), in = at::ones({2}), all = at::zeros({8});
    Work first = recorded.group.start_all_gather(out, in);
    Work second = recorded.group.start_all_gather(all, out);
    first.wait();
    second.wait();
    expect_texts(recorded.record->mistakes(),
                 {"all_gather world: it was given memory of all_gather world, which is under way",
                  "all_gather world: its input was written while it was under way"});
  });
}

TEST(RecordingGroupTest, AMissingWaitIsAMistake) {
  expect_ranks(2, [](World& world) {
    const Recorded recorded(world);
    const at::Tensor sum = at::ones({2});
    recorded.record->name(sum, "layers.0");
    { const Work work = recorded.group.start_all_reduce(sum, ReduceOp::kSum); }
    world.group().barrier();
    expect_texts(recorded.record->mistakes(), {"all_reduce layers.0: nobody waited for it"});
  });
}

}  // namespace
}  // namespace automodel::comm
