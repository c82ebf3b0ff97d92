#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "comm/rank_threads.h"
#include "comm/recording_group.h"

namespace automodel::comm {

/// Makes a run's group of one of the world's.
using Groups = std::function<ProcessGroup(const ProcessGroup&)>;

/// In a rank: `run` gives the same values to the bit over plain groups and over recorded ones,
/// which find no mistake. Where ranks are threads, the recorded groups keep NCCL's rules too.
inline void expect_same_when_recorded(
    const World& world, const std::string& what,
    const std::function<std::vector<at::Tensor>(const Groups&)>& run) {
  const std::vector<at::Tensor> wanted = run([](const ProcessGroup& group) { return group; });
  const auto record = std::make_shared<Recording>();
  const int rank = world.group().rank();
  const auto found = run([&](const ProcessGroup& group) {
    return recorded(rules_of_thread() ? ruled(group, rank) : group, record);
  });
  expect(!record->lines().empty() && !wanted.empty(), cat(what, ": nothing ran"));
  expect(record->mistakes().empty(), cat(what, ": ", join(record->mistakes(), "\n")));
  expect(found.size() == wanted.size(), cat(what, ": ", found.size(), " values"));
  for (size_t i = 0; i < wanted.size(); ++i) {
    expect(at::equal(found[i], wanted[i]), cat(what, ": value ", i, " differs"));
  }
}

}  // namespace automodel::comm
