#include "recipes/run/hosted_parameters.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

namespace automodel::recipes {
namespace {

/// With the CPU as the device, whose buffers are then moved like a CUDA device's.
TEST(HostedParametersTest, TheDevicesMemoryIsGivenBackUntilTheyReturn) {
  const at::Tensor buffer = at::arange(12, at::kFloat);
  const at::Tensor parameter = buffer.narrow(0, 4, 6).view({2, 3});
  const at::Tensor wanted = parameter.clone();
  // Shards may share a buffer.
  HostedParameters hosted({{"", buffer, {}}, {"layer", buffer.narrow(0, 2, 4), {}}}, at::kCPU);
  EXPECT_TRUE(at::equal(parameter, wanted));
  for (int i = 0; i < 2; ++i) {
    hosted.to_host();
    EXPECT_EQ(buffer.storage().nbytes(), 0U);
    EXPECT_EQ(parameter.storage().nbytes(), 0U);
    hosted.to_device();
    EXPECT_EQ(buffer.storage().nbytes(), 12 * sizeof(float));
    EXPECT_TRUE(at::equal(parameter, wanted));
    EXPECT_TRUE(at::equal(buffer, at::arange(12, at::kFloat)));
  }
}

TEST(HostedParametersTest, ThoseInAnotherPlaceAreLeftAlone) {
  const at::Tensor buffer = at::ones({4});
  HostedParameters hosted({{"", buffer, {}}}, at::kMeta);
  hosted.to_host();
  EXPECT_TRUE(at::equal(buffer, at::ones({4})));
}

}  // namespace
}  // namespace automodel::recipes
