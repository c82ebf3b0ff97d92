#include "peft/expert_layout.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

namespace automodel::peft {
namespace {

tensor::ParameterPart part_of(const char* name, std::vector<int64_t> shape) {
  return {name, "", 0, std::move(shape)};
}

const tensor::ParameterPart kA = part_of("model.layers.0.mlp.experts.lora_A.weight", {3, 2, 5});
const tensor::ParameterPart kB = part_of("model.layers.0.mlp.experts.lora_B.weight", {3, 7, 2});

at::Tensor numbers(const tensor::ParameterPart& part) {
  return at::arange(part.shape[0] * part.shape[1] * part.shape[2], at::kFloat).view(part.shape);
}

TEST(ExpertLayoutTest, WhatIsWrittenIsReadBack) {
  for (const auto& part : {kA, kB}) {
    const at::Tensor factor = numbers(part);
    const at::Tensor stored = to_file(factor, part.name == kA.name);
    EXPECT_EQ(stored.sizes().vec(), shape_in_file(part, ExpertLayout::kPeft19));
    EXPECT_EQ(name_in_file(part, ExpertLayout::kPeft19), part.name);
    EXPECT_TRUE(at::equal(from_file(stored, part, ExpertLayout::kPeft19), factor));
  }
}

// Expert 1's A are rows 2 and 3; its B the second of three columns of each rank.
TEST(ExpertLayoutTest, RowsGoByExpertsAndColumnsByRanks) {
  EXPECT_TRUE(at::equal(to_file(numbers(kA), true).narrow(0, 2, 2), numbers(kA)[1]));
  EXPECT_TRUE(at::equal(to_file(numbers(kB), false).select(1, 1), numbers(kB)[1].select(1, 0)));
  EXPECT_TRUE(at::equal(to_file(numbers(kB), false).select(1, 4), numbers(kB)[1].select(1, 1)));
}

// Before 0.19.1 PEFT took the matrices' inputs for their outputs: A and B stand in each other's
// place, transposed.
TEST(ExpertLayoutTest, TheOlderLayoutHasTheFactorsExchanged) {
  EXPECT_EQ(name_in_file(kA, ExpertLayout::kPeft18), kB.name);
  EXPECT_EQ(name_in_file(kB, ExpertLayout::kPeft18), kA.name);
  EXPECT_EQ(shape_in_file(kA, ExpertLayout::kPeft18), (std::vector<int64_t>{5, 6}));
  EXPECT_EQ(shape_in_file(kB, ExpertLayout::kPeft18), (std::vector<int64_t>{6, 7}));
  const at::Tensor old_a = to_file(numbers(kA).transpose(1, 2), false);  // [in, r E]
  EXPECT_TRUE(at::equal(from_file(old_a, kA, ExpertLayout::kPeft18), numbers(kA)));
  const at::Tensor old_b = to_file(numbers(kB).transpose(1, 2), true);  // [E r, out]
  EXPECT_TRUE(at::equal(from_file(old_b, kB, ExpertLayout::kPeft18), numbers(kB)));
}

TEST(ExpertLayoutTest, ParametersAreNamedAsPeftNamesThem) {
  const char* inner = "model.layers.4.mlp.experts.base_layer.lora_";
  const auto keys = [&](int64_t width) {
    return tensor::KeyMap{part_of((std::string(inner) + "A.weight").c_str(), {3, 2, 7}),
                          part_of((std::string(inner) + "B.weight").c_str(), {3, width, 2}), kA,
                          part_of("model.layers.4.mlp.experts.lora_A.weight", {3, 2, 5})};
  };
  EXPECT_EQ(target_parameters(keys(10)),
            (std::vector<std::string>{"mlp.experts.gate_up_proj", "mlp.experts.down_proj"}));
  EXPECT_EQ(target_parameters(keys(5)),
            (std::vector<std::string>{"mlp.experts.up_proj", "mlp.experts.down_proj"}));
}

}  // namespace
}  // namespace automodel::peft
