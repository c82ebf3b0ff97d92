#include "peft/expert_layout.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include "core/error.h"
#include "core/json.h"
#include "support/temporary_directory.h"

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
    const at::Tensor stored = to_file(factor, part, ExpertLayout::kPeft19);
    EXPECT_EQ(stored.sizes().vec(), shape_in_file(part, ExpertLayout::kPeft19));
    EXPECT_EQ(name_in_file(part, ExpertLayout::kPeft19), part.name);
    EXPECT_TRUE(at::equal(from_file(stored, part, ExpertLayout::kPeft19), factor));
  }
}

// Expert 1's A are rows 2 and 3; its B the second of three columns of each rank.
TEST(ExpertLayoutTest, RowsGoByExpertsAndColumnsByRanks) {
  EXPECT_TRUE(
      at::equal(to_file(numbers(kA), kA, ExpertLayout::kPeft19).narrow(0, 2, 2), numbers(kA)[1]));
  EXPECT_TRUE(at::equal(to_file(numbers(kB), kB, ExpertLayout::kPeft19).select(1, 1),
                        numbers(kB)[1].select(1, 0)));
  EXPECT_TRUE(at::equal(to_file(numbers(kB), kB, ExpertLayout::kPeft19).select(1, 4),
                        numbers(kB)[1].select(1, 1)));
}

// Before 0.19.1 PEFT took the matrices' inputs for their outputs: A and B stand in each other's
// place, transposed.
TEST(ExpertLayoutTest, TheOlderLayoutHasTheFactorsExchanged) {
  EXPECT_EQ(name_in_file(kA, ExpertLayout::kPeft18), kB.name);
  EXPECT_EQ(name_in_file(kB, ExpertLayout::kPeft18), kA.name);
  EXPECT_EQ(shape_in_file(kA, ExpertLayout::kPeft18), (std::vector<int64_t>{5, 6}));
  EXPECT_EQ(shape_in_file(kB, ExpertLayout::kPeft18), (std::vector<int64_t>{6, 7}));
  const at::Tensor old_a = to_file(numbers(kA), kA, ExpertLayout::kPeft18);  // [in, r E]
  EXPECT_TRUE(at::equal(from_file(old_a, kA, ExpertLayout::kPeft18), numbers(kA)));
  const at::Tensor old_b = to_file(numbers(kB), kB, ExpertLayout::kPeft18);  // [E r, out]
  EXPECT_TRUE(at::equal(from_file(old_b, kB, ExpertLayout::kPeft18), numbers(kB)));
}

/// PEFT takes Llama 4's experts, which are stored [E, in, out], for [E, out, in].
TEST(ExpertLayoutTest, Llama4sFactorsAreExchangedWhereOthersAreNot) {
  const auto config_of = [](const char* golden) {
    return Json::parse_file(test::source_file(cat("tests/golden/", golden, "/config.json")));
  };
  for (const char* family : {"llama4", "llama4_tower"}) {
    EXPECT_EQ(layout_of_peft(config_of(family)), ExpertLayout::kPeft18) << family;
    EXPECT_EQ(layout_of_peft(config_of(family), true), ExpertLayout::kPeft19) << family;
  }
  for (const char* family : {"gpt_oss", "qwen3_moe"}) {
    EXPECT_EQ(layout_of_peft(config_of(family)), ExpertLayout::kPeft19) << family;
    EXPECT_EQ(layout_of_peft(config_of(family), true), ExpertLayout::kPeft18) << family;
  }
  // Columns of a rank go by experts.
  const at::Tensor stored = to_file(numbers(kA), kA, ExpertLayout::kPeft18);
  EXPECT_TRUE(at::equal(stored.select(1, 1), numbers(kA)[1][0]));
  EXPECT_TRUE(at::equal(stored.select(1, 3), numbers(kA)[0][1]));
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
