// Matrices whose parts lie on several ranks, changed as wholes.
#include "distributed/engine/matrix_exchange.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <map>

#include "comm/ranks.h"

namespace automodel::distributed {
namespace {

using comm::expect;
using comm::expect_ranks;
using tensor::FlatSegment;

const std::map<std::string, std::vector<int64_t>> kShapes = {
    {"a", {6, 4}}, {"b", {3, 10}}, {"c", {2, 2}}, {"d", {7, 3}}, {"e", {6, 4}}};

at::Tensor values_of(const std::string& name) {
  const auto& shape = kShapes.at(name);
  return at::arange(shape[0] * shape[1], at::kFloat).view(shape) + static_cast<double>(name[0]);
}

/// Mixes all elements of a matrix: each row minus the sum of the columns.
at::Tensor mixed(const at::Tensor& whole) {
  return whole * 2 - whole.sum(0, true) + whole.sum();
}

/// The segment of a tensor that the `index`-th of `count` ranks holds; parts need not be equal.
FlatSegment part(const std::string& name, int index, int count) {
  tensor::ShardSpec spec = tensor::ShardSpec::whole(kShapes.at(name));
  const int64_t numel = spec.global_numel();
  // Parts of different lengths, the last of which may be empty.
  const int64_t length = numel / count + 2;
  spec.flat_begin = std::min(numel, index * length);
  spec.flat_end = index + 1 == count ? numel : std::min(numel, spec.flat_begin + length);
  return {name, spec, 0};
}

/// Runs a step of this rank's parts, and compares what was written.
void expect_mixed(const comm::ProcessGroup& group, const std::vector<FlatSegment>& parts) {
  const MatrixExchange exchange(group, parts, at::kCPU);
  std::vector<int> written(parts.size());
  const auto of_part = [&](const at::Tensor& whole, size_t i) {
    return whole.flatten().narrow(0, parts[i].spec.flat_begin, parts[i].spec.numel());
  };
  for (int run = 0; run < 2; ++run) {
    exchange.run(
        {.read = [&](size_t i, at::Tensor out) { out.copy_(of_part(values_of(parts[i].fqn), i)); },
         .compute = mixed,
         .write =
             [&](size_t i, const at::Tensor& changed) {
               ++written[i];
               expect(changed.equal(of_part(mixed(values_of(parts[i].fqn)), i)), parts[i].fqn);
             }});
  }
  for (size_t i = 0; i < parts.size(); ++i) expect(written[i] == 2, parts[i].fqn);
}

TEST(MatrixExchangeTest, PartsBecomeThoseOfTheChangedMatrix) {
  for (const int num_ranks : {1, 2, 3, 4}) {
    expect_ranks(num_ranks, [&](comm::World& world) {
      std::vector<FlatSegment> parts;
      for (const auto& [name, shape] : kShapes) {
        const FlatSegment own = part(name, world.group().rank(), num_ranks);
        if (own.spec.numel() > 0) parts.push_back(own);
      }
      expect_mixed(world.group(), parts);
    });
  }
}

TEST(MatrixExchangeTest, ReplicasShareTheWork) {
  expect_ranks(4, [](comm::World& world) {
    std::vector<FlatSegment> whole, halves;
    for (const auto& [name, shape] : kShapes) {
      whole.push_back({name, tensor::ShardSpec::whole(shape), 0});
      const FlatSegment own = part(name, world.group().rank() % 2, 2);
      if (own.spec.numel() > 0) halves.push_back(own);
    }
    expect_mixed(world.group(), whole);
    expect_mixed(world.group(), halves);
    // Each rank computes as many matrices as the others, one more at most.
    int computed = 0;
    MatrixExchange(world.group(), whole, at::kCPU)
        .run({.read = [](size_t, at::Tensor out) { out.zero_(); },
              .compute =
                  [&](const at::Tensor& matrix) {
                    ++computed;
                    return matrix;
                  },
              .write = [](size_t, const at::Tensor&) {}});
    expect(computed == (world.group().rank() == 0 ? 2 : 1), cat(computed, " matrices"));
  });
}

TEST(MatrixExchangeTest, ARankMayHoldNothing) {
  expect_ranks(3, [](comm::World& world) {
    std::vector<FlatSegment> parts;
    if (world.group().rank() != 1) parts.push_back(part("a", world.group().rank() / 2, 2));
    expect_mixed(world.group(), parts);
  });
}

}  // namespace
}  // namespace automodel::distributed
