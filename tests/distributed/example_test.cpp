#include <gtest/gtest.h>

#include <filesystem>
#include <memory>

#include "comm/ranks.h"
#include "core/file.h"
#include "core/text.h"
#include "support/program.h"
#include "support/temporary_directory.h"

namespace automodel::distributed {
namespace {

std::string run_well(const std::vector<std::string>& command) {
  const test::ProgramResult run = test::run_program(command);
  if (run.status != 0) throw std::runtime_error(cat(command[0], ": ", run.out, run.err));
  return run.out;
}

/// Another CMake project: finds the installed package and builds one page of examples/.
class ExampleTest : public ::testing::Test {
 protected:
  void build(const std::string& name) {
    const std::string tree = std::filesystem::path(test::automodel_binary()).parent_path().string();
    run_well({"/usr/bin/env", "cmake", "--install", tree, "--component", "devel", "--prefix",
              folder_.file("package")});
    run_well({"/usr/bin/env", "cmake", "-S", test::source_file("examples"), "-B",
              folder_.file("build"), "-G", "Ninja", "-DCMAKE_BUILD_TYPE=Debug",
              "-DCMAKE_CXX_FLAGS_DEBUG=-O0", cat("-DCMAKE_PREFIX_PATH=", folder_.file("package"))});
    run_well({"/usr/bin/env", "cmake", "--build", folder_.file("build"), "--target", name});
  }

  /// What rank 0 of `num_ranks` prints; `arguments` are those of a rank.
  template <typename Arguments>
  std::string run(const std::string& name, int num_ranks, const Arguments& arguments) {
    std::vector<std::unique_ptr<test::Program>> ranks;
    const int port = comm::free_port();
    for (int rank = 0; rank < num_ranks; ++rank) {
      std::vector<std::string> command = arguments(cat(rank), cat(port));
      command.insert(command.begin(), folder_.file("build/" + name));
      ranks.push_back(std::make_unique<test::Program>(command));
    }
    std::string out;
    for (const auto& rank : ranks) {
      const test::ProgramResult result = rank->wait();
      EXPECT_EQ(result.status, 0) << result.err;
      if (rank == ranks.front()) out = result.out;
    }
    return out;
  }

  const test::TemporaryDirectory folder_;
};

/// The last number of every line that has `word`.
std::vector<double> numbers_of(const std::string& out, const std::string& word) {
  std::vector<double> numbers;
  for (const std::string& line : split(out, '\n')) {
    if (line.find(word) == std::string::npos) continue;
    numbers.push_back(parse_double(split(line, ' ').back()).value());
  }
  return numbers;
}

TEST_F(ExampleTest, AnotherProjectShardsAModuleOfItsOwn) {
  build("sharded_module");
  std::filesystem::create_directory(folder_.file("shards"));
  const std::string out = run("sharded_module", 2, [&](const auto& rank, const auto& port) {
    return std::vector<std::string>{rank, port, folder_.file("shards")};
  });
  const std::vector<double> losses = numbers_of(out, "loss");
  ASSERT_EQ(losses.size(), 20u) << out;
  EXPECT_LT(losses.back(), 0.8 * losses.front()) << out;
  EXPECT_TRUE(path_exists(folder_.file("shards/index.json")));
}

/// Float32 sums in another order, as RanksTest bounds them, and a digit that is printed last.
TEST_F(ExampleTest, ATrainingLoopOfOnesOwnGivesTheSameLossesOnAnyRanksAndStrategy) {
  build("training_loop");
  const auto losses_of = [&](int num_ranks, const std::string& strategy) {
    const auto arguments = [&](const auto& rank, const auto& port) {
      return std::vector<std::string>{rank, cat(num_ranks), port, strategy};
    };
    return numbers_of(run("training_loop", num_ranks, arguments), "loss");
  };
  const std::vector<double> truth = losses_of(1, "ddp");
  ASSERT_EQ(truth.size(), 61u);  // with the validation's
  EXPECT_LT(truth[59], 0.7 * truth[0]);
  for (const std::string strategy : {"ddp", "fsdp2"}) {
    const std::vector<double> losses = losses_of(2, strategy);
    ASSERT_EQ(losses.size(), truth.size());
    for (size_t i = 0; i < truth.size(); ++i) {
      EXPECT_NEAR(losses[i], truth[i], 2e-6 * truth[i] + 1e-6) << strategy << ", step " << i;
    }
  }
}

TEST_F(ExampleTest, AModelOfOnesOwnLearnsUnderFullyShard) {
  build("own_model");
  const std::string out = run("own_model", 2, [](const auto& rank, const auto& port) {
    return std::vector<std::string>{rank, "2", port};
  });
  const std::vector<double> losses = numbers_of(out, "loss");
  ASSERT_EQ(losses.size(), 40u) << out;
  EXPECT_LT(losses.back(), 0.5 * losses.front()) << out;
  // A step: per micro-batch the root and three blocks, two of them again in backward; one reduction
  // of each for both. At the end all four are gathered to be read.
  EXPECT_NE(out.find("gathers 484, reductions 160,"), std::string::npos) << out;
}

}  // namespace
}  // namespace automodel::distributed
