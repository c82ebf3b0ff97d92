// The rules of tests/comm/nccl_rules.h: what they allow gives what plain groups give, and what
// hangs or mixes messages up over NCCL is told by name, without any clock.
#include "comm/nccl_rules.h"

#include <gmock/gmock.h>

#include "comm/rank_threads.h"

namespace automodel::comm {
namespace {

using testing::HasSubstr;
using Texts = std::vector<std::string>;

ProcessGroup ruled_world(const World& world) {
  return ruled(world.group(), world.group().rank());
}

/// What every rank says of a body that no NCCL would survive.
Texts errors_of(int num_ranks, const std::function<void(const ProcessGroup&)>& body) {
  return run_rank_threads(num_ranks, [&](World& world) { body(ruled_world(world)); }).errors;
}

void expect_same(const ProcessGroup& group, const ProcessGroup& plain,
                 const std::function<at::Tensor(const ProcessGroup&)>& run) {
  expect(at::equal(run(group), run(plain)), "another value");
}

TEST(NcclRulesTest, EveryOperationGivesWhatAPlainGroupGives) {
  for (const int num_ranks : {2, 3}) {
    expect_rank_threads(num_ranks, [](World& world) {
      const ProcessGroup plain = world.group();
      const ProcessGroup group = ruled_world(world);
      const int64_t size = group.size();
      const at::Tensor x = at::sin(at::arange(4 * size, at::kFloat) + group.rank());
      for (const auto op : {ReduceOp::kSum, ReduceOp::kAvg, ReduceOp::kMax}) {
        for (const auto dtype : {at::kFloat, at::kBFloat16, at::kDouble}) {
          expect_same(group, plain, [&](const ProcessGroup& it) {
            at::Tensor sum = x.to(dtype, false, true);
            it.all_reduce(sum, op);
            return sum;
          });
          expect_same(group, plain, [&](const ProcessGroup& it) {
            at::Tensor whole = x.to(dtype, false, true);
            const at::Tensor part = whole.narrow(0, 4 * it.rank(), 4);
            it.reduce_scatter(part, whole, op);
            return part;
          });
        }
      }
      expect_same(group, plain, [&](const ProcessGroup& it) {
        at::Tensor all = at::zeros({4 * size * size});
        it.all_gather(all, x);
        return all;
      });
      expect_same(group, plain, [&](const ProcessGroup& it) {
        at::Tensor copy = x.clone();
        it.broadcast(copy, 1);
        return copy;
      });
      expect_same(group, plain, [&](const ProcessGroup& it) {
        ExchangeCounts counts;
        for (int rank = 0; rank < size; ++rank) {
          counts.in.push_back((rank + it.rank()) % 3);
          counts.out.push_back((rank + it.rank()) % 3);
        }
        const auto rows = std::accumulate(counts.in.begin(), counts.in.end(), int64_t{0});
        at::Tensor out = at::zeros({rows, 2});
        it.all_to_all(out, x.narrow(0, 0, 2).expand({rows, 2}).contiguous(), counts);
        return out;
      });
      expect(group.broadcast_text("hello", 0) == "hello", "text");
    });
  }
}

TEST(NcclRulesTest, MessagesArriveInTheirOrder) {
  expect_rank_threads(2, [](World& world) {
    const ProcessGroup group = ruled_world(world);
    std::vector<Work> works;
    const at::Tensor first = filled(2, 1), second = filled(2, 2);
    if (group.rank() == 0) {
      works = {group.start_send(first, 1), group.start_send(second, 1)};
    } else {
      works = {group.start_recv(first.zero_(), 0), group.start_recv(second.zero_(), 0)};
    }
    for (Work& work : works) work.wait();
    expect(first[0].item<float>() == 1 && second[0].item<float>() == 2, "order");
  });
}

TEST(NcclRulesTest, ReceivesBeforeSendsOnBothEndsAreADeadlock) {
  const Texts errors = errors_of(2, [](const ProcessGroup& group) {
    const at::Tensor coming = at::zeros({2});
    Work receiving = group.start_recv(coming, 1 - group.rank());
    Work sending = group.start_send(filled(2, 1), 1 - group.rank());
    receiving.wait();
    sending.wait();
  });
  const std::string text =
      "deadlock: rank 0 waits for recv from rank 1 of world (of its streams that of rank 0 is at "
      "recv from rank 1 of world, that of rank 1 is at recv from rank 0 of world); rank 1 waits "
      "for recv from rank 0 of world (of its streams that of rank 0 is at recv from rank 1 of "
      "world, that of rank 1 is at recv from rank 0 of world)";
  EXPECT_EQ(errors, (Texts{text, text}));
}

TEST(NcclRulesTest, ARingOfMessagesIsADeadlockWhileCommunicatorsAreMade) {
  const Texts errors = errors_of(4, [](const ProcessGroup& group) {
    const at::Tensor coming = at::zeros({2});
    Work receiving = group.start_recv(coming, (group.rank() + 3) % 4);
    Work sending = group.start_send(filled(2, 1), (group.rank() + 1) % 4);
    receiving.wait();
    sending.wait();
  });
  EXPECT_THAT(errors[0], HasSubstr("rank 2 waits for the start of the communicator of ranks 1, 2 "
                                   "in recv from rank 1 of world"));
}

TEST(NcclRulesTest, ASendWaitsForItsReceive) {
  const Texts errors = errors_of(2, [](const ProcessGroup& group) {
    group.send(filled(2, 1), 1 - group.rank());
    group.recv(at::zeros({2}), 1 - group.rank());
  });
  EXPECT_THAT(errors[1], HasSubstr("deadlock: rank 0 waits for send to rank 1 of world"));
}

TEST(NcclRulesTest, AMessageThatTakesAnothersPlaceIsNamed) {
  const Texts errors = errors_of(2, [](const ProcessGroup& group) {
    std::vector<Work> works;
    for (const int tag : {0, 1}) {
      works.push_back(group.rank() == 0 ? group.start_send(filled(2, tag), 1, tag)
                                        : group.start_recv(at::zeros({2}), 0, 1 - tag));
    }
    for (Work& work : works) work.wait();
  });
  EXPECT_THAT(errors[0], HasSubstr("recv from rank 0 of world (tag 1) takes another message: send "
                                   "to rank 1 of world (tag 0)"));
}

TEST(NcclRulesTest, UnlikeOrdersOfOneGroupsOperationsAreNamed) {
  const Texts errors = errors_of(2, [](const ProcessGroup& group) {
    at::Tensor sum = filled(2, 1), all = at::zeros({4});
    Work a = group.rank() == 0 ? group.start_all_reduce(sum, ReduceOp::kSum)
                               : group.start_all_gather(all, sum);
    a.wait();
  });
  EXPECT_EQ(errors[0],
            "different operations meet: that of rank 0 is at all_reduce of world, that of rank 1 "
            "is at all_gather of world");
}

TEST(NcclRulesTest, ARankThatLeavesIsNotWaitedForForEver) {
  const Texts errors = errors_of(2, [](const ProcessGroup& group) {
    at::Tensor sum = filled(2, 1);
    if (group.rank() == 0) group.all_reduce(sum, ReduceOp::kSum);
  });
  EXPECT_EQ(errors[0],
            "deadlock: rank 0 waits for the start of the communicator of ranks 0, 1 in all_reduce "
            "of world");
}

}  // namespace
}  // namespace automodel::comm
