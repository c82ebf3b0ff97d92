#include "tensor/dtype.h"

#include <gtest/gtest.h>

namespace automodel::tensor {
namespace {

TEST(DtypeTest, ReadsTheNamesOfRecipesInAnyCase) {
  EXPECT_EQ(parse_dtype("bf16"), at::kBFloat16);
  EXPECT_EQ(parse_dtype("torch.bfloat16"), at::kBFloat16);
  EXPECT_EQ(parse_dtype("Float"), at::kFloat);
  EXPECT_EQ(parse_dtype("half"), at::kHalf);
  EXPECT_EQ(parse_dtype("float8_e4m3fn"), at::kFloat8_e4m3fn);
  EXPECT_EQ(parse_dtype("bfloat"), std::nullopt);
}

TEST(DtypeTest, NamesReadBack) {
  for (const at::ScalarType dtype : {at::kFloat, at::kBFloat16, at::kHalf, at::kLong, at::kBool}) {
    EXPECT_EQ(parse_dtype(dtype_name(dtype)), dtype);
    EXPECT_EQ(parse_safetensors_dtype(safetensors_dtype_name(dtype)), dtype);
  }
}

}  // namespace
}  // namespace automodel::tensor
