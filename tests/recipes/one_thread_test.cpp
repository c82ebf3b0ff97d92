#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <cstdlib>

namespace automodel::recipes {
namespace {

/// Ranks that tests fork need a process without threads, whatever ran in it before: tests, runs in
/// their process and programs that they start compute with one.
class OneThread final : public testing::Environment {
 public:
  void SetUp() override {
    ::setenv("OMP_NUM_THREADS", "1", 1);
    at::set_num_threads(1);
  }
};

const testing::Environment* const one_thread =
    testing::AddGlobalTestEnvironment(new OneThread);  // GoogleTest owns it

TEST(OneThread, IsWhatTestsComputeWith) {
  ASSERT_NE(one_thread, nullptr);
  EXPECT_EQ(at::get_num_threads(), 1);
}

}  // namespace
}  // namespace automodel::recipes
