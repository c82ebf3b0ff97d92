// What an optimizer of matrices takes a model's tensors for.
#include "recipes/build/tensor_roles.h"

#include <gtest/gtest.h>

#include "core/text.h"
#include "models/catalog.h"
#include "support/temporary_directory.h"

namespace automodel::recipes {
namespace {

using optim::TensorRole;

optim::TensorRoles roles_of(const char* golden) {
  const Json config =
      Json::parse_file(test::source_file(cat("tests/golden/", golden, "/config.json")));
  return tensor_roles(*models::build_causal_lm(config, at::kFloat));
}

TEST(TensorRolesTest, AreThoseOfUpstreamsGroups) {
  const auto roles = roles_of("qwen3_moe");
  EXPECT_EQ(roles.at("model.embed_tokens.weight"), TensorRole::kEmbedding);
  EXPECT_EQ(roles.at("lm_head.weight"), TensorRole::kHead);
  EXPECT_EQ(roles.at("model.norm.weight"), TensorRole::kVector);
  EXPECT_EQ(roles.at("model.layers.0.self_attn.q_proj.weight"), TensorRole::kMatrix);
  EXPECT_EQ(roles.at("model.layers.0.self_attn.k_norm.weight"), TensorRole::kVector);
}

/// A matrix in the files, a part of a parameter of three dimensions here and upstream.
TEST(TensorRolesTest, ExpertsAreNoMatrices) {
  const auto roles = roles_of("mixtral");
  int num_experts = 0;
  for (const auto& [name, role] : roles) {
    if (name.find(".experts.") == std::string::npos) continue;
    ++num_experts;
    EXPECT_EQ(role, TensorRole::kVector) << name;
  }
  EXPECT_GT(num_experts, 0);
  EXPECT_EQ(roles.at("model.layers.0.block_sparse_moe.gate.weight"), TensorRole::kMatrix);
}

TEST(TensorRolesTest, ATableOfPositionsIsAnEmbedding) {
  EXPECT_EQ(roles_of("gpt2").at("transformer.wpe.weight"), TensorRole::kEmbedding);
}

}  // namespace
}  // namespace automodel::recipes
