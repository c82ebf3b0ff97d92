#include <gtest/gtest.h>

#include <filesystem>

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

/// Another CMake project finds the installed package, builds the example and trains on two ranks.
TEST(ExampleTest, AnotherProjectShardsAModuleOfItsOwn) {
  const test::TemporaryDirectory folder;
  const std::string build = std::filesystem::path(test::automodel_binary()).parent_path().string();
  const std::string example = test::source_file("tests/example");
  run_well({"/usr/bin/env", "cmake", "--install", build, "--component", "devel", "--prefix",
            folder.file("package")});
  run_well({"/usr/bin/env", "cmake", "-S", example, "-B", folder.file("build"), "-G", "Ninja",
            "-DCMAKE_BUILD_TYPE=Release", cat("-DCMAKE_PREFIX_PATH=", folder.file("package"))});
  run_well({"/usr/bin/env", "cmake", "--build", folder.file("build")});
  std::filesystem::create_directory(folder.file("shards"));
  const auto start = [&, port = comm::free_port()](int rank) {
    return std::make_unique<test::Program>(std::vector<std::string>{
        folder.file("build/example"), cat(rank), cat(port), folder.file("shards")});
  };
  const auto first = start(0), second = start(1);
  const test::ProgramResult run = first->wait();
  ASSERT_EQ(run.status, 0) << run.err;
  ASSERT_EQ(second->wait().status, 0);
  std::vector<double> losses;
  for (const std::string& line : split(run.out, '\n')) {
    if (line.empty()) continue;
    losses.push_back(parse_double(split(line, ' ').back()).value());
  }
  ASSERT_EQ(losses.size(), 20u) << run.out;
  EXPECT_LT(losses.back(), 0.8 * losses.front()) << run.out;
  EXPECT_TRUE(path_exists(folder.file("shards/index.json")));
}

}  // namespace
}  // namespace automodel::distributed
