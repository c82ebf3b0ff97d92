#include <ATen/Parallel.h>
#include <gtest/gtest.h>

#include <unistd.h>

#include <cstdlib>

namespace automodel::recipes {
namespace {

/// Arrow's allocator starts a thread as it is loaded, unless the environment says otherwise then:
/// the process starts itself anew where it does not, as the program does (src/cli/start.cpp).
[[gnu::constructor]] void start_without_arrows_thread(int, char** argv, char**) {
  constexpr const char* kOptions = "JE_ARROW_MALLOC_CONF";
  if (std::getenv(kOptions) != nullptr) return;
  ::setenv(kOptions, "background_thread:false", 0);
  ::execv("/proc/self/exe", argv);
}

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
