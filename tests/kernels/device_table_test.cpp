#include "kernels/base/device_table.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "kernels/base/dynamic_codes.h"

namespace automodel::kernels {
namespace {

TEST(DeviceTable, IsCopiedToADeviceOnce) {
  const at::Tensor& codes = dynamic_codes(/*is_signed=*/true);
  EXPECT_TRUE(table_on(codes, at::kCPU).is_same(codes));
  const at::Tensor copy = table_on(codes, at::kMeta);
  EXPECT_EQ(copy.device(), at::Device(at::kMeta));
  EXPECT_EQ(copy.sizes(), codes.sizes());
  EXPECT_TRUE(table_on(codes, at::kMeta).is_same(copy));
  EXPECT_FALSE(table_on(dynamic_codes(/*is_signed=*/false), at::kMeta).is_same(copy));
}

}  // namespace
}  // namespace automodel::kernels
